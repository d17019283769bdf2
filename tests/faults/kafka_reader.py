"""A read_committed consumer in a process of its own, which knows nothing of who wrote.

    python -m tests.faults.kafka_reader SERVERS TOPIC '{"partition": offset to start at, …}'

Prints a line of JSON for each record up to the last stable offsets: [partition, offset, key, value].
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.kafka_reading import read_messages
from tests.spark_sessions import ROOT

Record = tuple[int, int, str, str]


class TopicReader:
    """What is visible of a topic; each look goes on where the last one ended, since what is visible stays."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._records: list[Record] = []
        self._starts: dict[int, int] = {}

    def records(self) -> list[Record]:
        """All that is visible, each partition in its order."""
        command = [sys.executable, "-m", __spec__.name, self._servers, self._topic, json.dumps(self._starts)]
        # A session of its own: Ctrl-C in the terminal is for the harness.
        read = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, timeout=120, start_new_session=True
        )
        for line in read.stdout.splitlines():
            record: Record = tuple(json.loads(line))
            self._records.append(record)
            self._starts[record[0]] = record[1] + 1
        return self._records


def main(servers: str, topic: str, starts: str) -> None:
    places = {int(partition): int(offset) for partition, offset in json.loads(starts).items()}
    for message in read_messages(servers, topic, starts=places):
        record = message.partition(), message.offset(), message.key().decode(), message.value().decode()
        print(json.dumps(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
