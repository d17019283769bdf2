"""How the tests' Kafka starts: with its classes from an archive. A broker that a test starts lives for seconds, and
most of its processor time loads what the one before it had loaded. Made and started, one took 4.1 processor seconds,
and takes 2.6 with the archive.

`HOLDFAST_PLAIN_SPARK=1` leaves that out too, as `make nightly` and `make oldest` do.

    python -m tests.kafka_jvm

makes the archive, once an environment, of the newest release. A JVM that it does not fit (another release of Kafka or
of Java) takes no notice of it.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests.spark_jvm import PLAIN

ARCHIVE = Path(sys.prefix) / "kafka-classes.jsa"
VARIABLE = "HOLDFAST_KAFKA_OPTS"


def set_environment() -> None:
    """Of this process, and so of the brokers that it starts, and of the programs that start some."""
    if PLAIN not in os.environ and ARCHIVE.exists():
        os.environ.setdefault(VARIABLE, f"-XX:SharedArchiveFile={shlex.quote(str(ARCHIVE))} -Xlog:disable")


def main() -> None:
    """Uses a broker, which writes down the classes it has loaded when it ends."""
    from tests.integration.kafka.kafka_world import KafkaWorld, eventually, values

    from holdfast.testing import KafkaBroker

    os.environ.pop(VARIABLE, None)  # a JVM that has an archive makes none
    new = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    with KafkaBroker(jvm_options=[f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable"]) as broker:
        world = KafkaWorld(broker)
        topic = world.topic(2)
        world.produce(topic, values(0, 10))
        for commit in (True, False):
            world.transaction(topic, values(0, 10), commit, partition=1)
        eventually(lambda: world.group_offset("some-group", topic) < 0)
        broker.stop(600)  # it writes the archive now
    if not new.exists():
        print("no archive of Kafka's classes; the tests take longer without it", file=sys.stderr)
        return
    new.replace(ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size >> 20} MiB of Kafka's classes, for the tests' brokers")


if __name__ == "__main__":
    main()
