"""Writes records into Kafka as the world does, so that whoever reads them meets what topics really hold.

Transactions of one to five records, aborted ones between them, and the marker that ends each; so that offsets have gaps
everywhere, and an end of the log may be a marker. The same seed makes the same transactions of the same records. Owner:
one thread; a feed that is made again with the same name aborts what the one before it left open.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

ROWS_MAX = 5
_WITHIN_S = 60.0
_ATTEMPTS_MAX = 5
_quiet = logging.getLogger("holdfast.testing.kafka")


class Record(NamedTuple):
    """What goes in; without a partition, the key says which."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None


class TransactionalFeed:
    """A producer of one topic.

    Parameters
    ----------
    name
        Of the feed: its transactional id. No two that live at a time share one.
    decoy
        The value of records in aborted transactions: one that a test would notice, were it ever read.
    small_max
        How many small transactions one `send` may make; what is left goes into transactions of ``rest_rows``. Each
        costs some milliseconds. None: all of them are small.
    config
        Settings of librdkafka, beside the servers.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        name: str,
        *,
        seed: int = 0,
        decoy: bytes = b"aborted",
        small_max: int | None = None,
        rest_rows: int = 10_000,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._topic, self._decoy = topic, decoy
        self._small_max, self._rest_rows = small_max, rest_rows
        self._draw = random.Random(seed)
        settings = {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, **(config or {})}
        self._producer = Producer(settings, logger=_quiet)
        self._producer.init_transactions(_WITHIN_S)

    def send(self, records: Iterable[Record]) -> None:
        """All of them, in order, committed when this returns; each once, whatever is aborted on the way."""
        for some in self._cut(list(records)):
            if self._draw.random() < 0.3:
                decoys = [record._replace(value=self._decoy) for record in some[:ROWS_MAX]]
                self._produce(decoys)
                self._until_done(self._producer.abort_transaction)
            self._commit(some)

    def _cut(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        at = made = 0
        while at < len(records):
            small = self._small_max is None or made < self._small_max
            count = self._draw.randint(1, ROWS_MAX) if small else self._rest_rows
            yield records[at : at + count]
            at, made = at + count, made + 1

    def _commit(self, records: Sequence[Record]) -> None:
        for attempt in range(_ATTEMPTS_MAX):
            try:
                self._produce(records)
                self._until_done(self._producer.commit_transaction)
                return
            except KafkaException as error:
                # Nothing of it will be seen, so it is written once more: as a producer must.
                if not error.args[0].txn_requires_abort() or attempt == _ATTEMPTS_MAX - 1:
                    raise
                self._until_done(self._producer.abort_transaction)

    def _produce(self, records: Iterable[Record]) -> None:
        self._producer.begin_transaction()
        for value, key, partition in records:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, -1 if partition is None else partition)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        # Written, also where it is going to be aborted: else there would be nothing to skip.
        if self._producer.flush(_WITHIN_S):
            raise TimeoutError(f"{self._topic} was not written within {_WITHIN_S:g} s")

    def _until_done(self, end: Callable[[float], None]) -> None:
        for attempt in range(_ATTEMPTS_MAX):
            try:
                end(_WITHIN_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or attempt == _ATTEMPTS_MAX - 1:
                    raise
