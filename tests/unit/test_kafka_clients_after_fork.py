"""A process with Kafka clients that forks, as user code does with multiprocessing: its child comes to its end."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, sys, time
from holdfast.clock import SystemClock
from holdfast.kafka.client import admin_client
from holdfast.sink.kafka.plain_writer import PRODUCERS
from holdfast.source.kafka.consumers import POOL
from holdfast.source.kafka.group_offsets import GroupOffsets
from holdfast.source.kafka.offsets import Range

config, clock, part = {"bootstrap.servers": "127.0.0.1:1"}, SystemClock(), Range("t", 0, 5, 9)
held = [admin_client(config), PRODUCERS.lease(config, clock), POOL.lease(config, part)]
PRODUCERS.give_back(config, PRODUCERS.lease(config, clock))
POOL.give_back(POOL.lease(config, part), intact=False)
offsets = GroupOffsets(config, "g", clock)
offsets.commit({("t", 0): 1})

child = os.fork()
if child == 0:
    signal.alarm(30)  # ends it where it hangs
    # It has clients of its own, which end as they should.
    mine = [admin_client(config), PRODUCERS.lease(config, clock), POOL.lease(config, part)]
    assert not {id(one) for one in mine} & {id(one) for one in held}
    del held, mine, offsets
    sys.exit(3)
offsets.close()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_ends() -> None:
    """It hung: librdkafka waited for threads that only the parent has."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
