"""Makes the checkpoints of one release: its program is killed at each step that matters, and what it left is packed.

    python -m tests.upgrade.make_checkpoints RELEASE PYTHON OUTPUT [--steps STEP …] [--keep FOLDER] [--go-on] [--source]

PYTHON is the interpreter of an environment that has that release. Run once for a release, never again: what it made is
what was written then. ``--go-on`` lets today's code go on from each in place, on the same broker, and judges.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import Producer
from tests.kafka_reading import unstable
from tests.spark_jvm import environment_of_users
from tests.upgrade.judge import judge
from tests.upgrade.kafka_past import KafkaPast, create_topic

from holdfast.testing import KafkaBroker

#: Of a worker, of a sink's task, of the driver.
STEPS = (
    "idle",
    "after_delta",
    "sink_mid",
    "sink_after_prepare",
    "before_record",
    "after_record",
    "mid_commit",
    "after_commit",
)
PARTITIONS = 2
TOPIC = "draws"
#: What a checkpoint is made of; the rest of a run's folder belongs to its machine.
KEPT = ("checkpoint", "state", "out", "past.json")
STARTS_MAX = 5
PROGRAM = Path(__file__).with_name("stream.py")


class Run:
    """One run of the program, by whichever interpreter."""

    def __init__(self, python: str, folder: Path, servers: str, last_batch: int, *source: str) -> None:
        environment = environment_of_users()  # the interpreter has a pyspark of its own, and nothing of the tests
        environment["HOLDFAST_FAULT_FILE"] = str(folder / "fault")
        with (folder / "log.txt").open("a") as log:
            self._process = subprocess.Popen(
                [python, str(PROGRAM), str(folder), servers, TOPIC, str(last_batch), *source],
                cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self._folder = folder

    def wait_for_batch(self, wanted: int) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, number = line.strip().partition(" ")
            if word == "batch" and int(number) >= wanted:
                return
        raise AssertionError(f"ended before batch {wanted}: {self.said()}")

    def wait_for(self, happened: Callable[[], bool], within_s: float = 240) -> None:
        deadline = time.monotonic() + within_s
        while not happened():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def wait(self) -> int:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            said.read()
        return self._process.wait()

    def said(self) -> str:
        return (self._folder / "log.txt").read_text()[-4000:]

    def kill(self) -> None:
        """All that belongs to it."""
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self._process.pid:
                    process.send_signal(signal.SIGKILL)
            except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                continue
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def older_code_dies(python: str, folder: Path, servers: str, step: str, *source: str) -> None:
    """Two runs: one is killed while it works, one at the step."""
    first = Run(python, folder, servers, 99, *source)
    first.wait_for_batch(3)
    first.kill()
    second = Run(python, folder, servers, 7 if step == "idle" else 99, *source)
    if step == "idle":
        assert second.wait() == 0, second.said()
        return
    second.wait_for_batch(6)
    hidden = folder / ".fault"
    hidden.write_text(f"{step}:1:SIGKILL")
    hidden.rename(folder / "fault")
    try:
        # Who dies first may be a worker, which Spark would replace: everything dies with it.
        second.wait_for((folder / "fault.struck").exists)
    finally:
        second.kill()


def todays_code_goes_on(folder: Path, servers: str, last_batch: int, *source: str) -> None:
    """Until nothing is open: a batch that a stop cut short has transactions that readers wait for, until the next start
    ends them.
    """
    for last in range(last_batch, last_batch + STARTS_MAX):
        run = Run(sys.executable, folder, servers, last, *source)
        try:
            assert run.wait() == 0, run.said()
        finally:
            run.kill()
        if not unstable(servers, TOPIC):
            return


def feed(servers: str, topic: str) -> None:
    create_topic(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers})
    for seq in range(24 * 200):
        producer.produce(topic, str(seq).encode(), f"user-{seq % 7}".encode(), seq % 7 % 2)
    assert producer.flush(60) == 0


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("release")
    arguments.add_argument("python")
    arguments.add_argument("output", type=Path)
    arguments.add_argument("--steps", nargs="*", default=STEPS)
    arguments.add_argument("--go-on", action="store_true")
    arguments.add_argument("--source", action="store_true", help="read a Kafka topic")
    given = arguments.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    for step in given.steps:
        folder = Path(tempfile.mkdtemp(prefix=f"older-{step}-"))
        source = ["input"] if given.source else []
        with KafkaBroker() as broker:
            servers = broker.bootstrap_servers
            create_topic(servers, TOPIC, PARTITIONS)
            for topic in source:
                feed(servers, topic)
            older_code_dies(given.python, folder, servers, step, *source)
            query_id = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
            KafkaPast.of(servers, TOPIC, PARTITIONS, query_id).write(folder / "past.json")
            with tarfile.open(given.output / f"{given.release}-{step}.tar.gz", "w:gz") as archive:
                for name in KEPT:
                    archive.add(folder / name, name)
            print("made", step, flush=True)
            if given.go_on:
                todays_code_goes_on(folder, servers, 12, *source)
                print("went on", step, judge(servers, TOPIC, folder / "out", source=bool(source)), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
