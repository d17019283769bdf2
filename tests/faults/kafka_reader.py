"""A read_committed consumer in a process of its own, which knows Kafka, and nothing of who wrote.

    python kafka_reader.py SERVERS TOPIC

For each line on standard input it looks once: it asks for the last stable offsets, reads up to them, and prints a line
of JSON for each new record, [partition, offset, key, value], then an empty line. It goes on where the last look ended,
since what is visible stays.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Record = tuple[int, int, str, str]
_WITHIN_S = 300.0  # a broker may be away for a while, on a busy machine
_quiet = logging.getLogger("reader")


class TopicReader:
    """What is visible of a topic, as the process sees it. Not for two threads."""

    def __init__(self, servers: str, topic: str) -> None:
        # A session of its own: Ctrl-C in the terminal is for the harness.
        self._process = subprocess.Popen(
            [sys.executable, __file__, servers, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._records: list[Record] = []

    def records(self) -> list[Record]:
        """All that is visible by now, each partition in its order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line == "\n":
                return self._records
            partition, offset, key, value = json.loads(line)
            self._records.append((partition, offset, key, value))
        raise AssertionError(f"the reader ended with {self._process.wait()}: its error is on standard error")

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class _Looks:
    """The consumer's side."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": "a-stranger", "isolation.level": "read_committed"}
        quick = {"fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 500}
        whole = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._settings = {**settings, **quick, **whole}
        self._consumer = Consumer(self._settings, logger=_quiet)
        self._topic = topic
        self._places = dict.fromkeys(self._consumer.list_topics(topic, _WITHIN_S).topics[topic].partitions, 0)
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, number, place) for number, place in self._places.items()])

    def look(self) -> list[Record]:
        """What has become visible since the last look."""
        deadline = time.monotonic() + _WITHIN_S
        ends = {number: self._stable_end(number, deadline) for number in self._places}
        found = []
        while any(self._places[number] < end for number, end in ends.items()):
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._topic}: read up to {self._places}, not up to {ends}, in {_WITHIN_S:g} s")
            message: Any = self._consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                found.append(_record(message))
                self._places[message.partition()] = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._places[message.partition()] = max(self._places[message.partition()], message.offset())
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise SystemExit(f"{self._topic}: the log has lost what was visible: {message.error()}")
        return found

    def _stable_end(self, number: int, deadline: float) -> int:
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), 5.0, cached=False)
                return int(end)
            except KafkaException as error:  # its broker is away
                if time.monotonic() > deadline:
                    raise
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    # Said for minutes after a broker that was asleep is back, by a client that was there all the time.
                    self._consumer.close()
                    self._consumer = Consumer(self._settings, logger=_quiet)
                    self._assign()
                time.sleep(0.1)


def _record(message: Any) -> Record:
    return message.partition(), message.offset(), message.key().decode(), message.value().decode()


def main(servers: str, topic: str) -> None:
    looks = _Looks(servers, topic)
    for _ in sys.stdin:
        for record in looks.look():
            print(json.dumps(record))
        print(flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
