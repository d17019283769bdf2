"""What a query of earlier code had left in a topic and at its transactions' coordinators, written down and made again.

A broker's own data cannot be kept: what is open in it is over its time limit when it is started a month later. So the
past is told to a new broker: the same transactional ids, with the same producer ids and epochs (a broker gives producer
ids in order, from 0 on, and an epoch more with each start of a producer), the same rows, and the same ends, or none.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.kafka.kafka_world import eventually

from holdfast.kafka.partition_log import Ending, PartitionLog
from holdfast.kafka.transactional_ids import pattern_of
from holdfast.kafka.transactions import Answer, Prepared, Transactions

_quiet = logging.getLogger("tests.kafka")
_PATIENCE_MS = 60_000.0


@dataclass(frozen=True)
class Row:
    """One record. ``ending``: committed, aborted or open."""

    partition: int
    key: str
    value: str
    producer_id: int
    producer_epoch: int
    ending: str


@dataclass(frozen=True)
class Name:
    """A transactional id as its coordinator knew it last."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str


@dataclass(frozen=True)
class KafkaPast:
    """One topic, and all that wrote to it."""

    topic: str
    partitions: int
    names: tuple[Name, ...]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, path: Path) -> KafkaPast:
        found = json.loads(path.read_text())
        names = tuple(Name(**name) for name in found["names"])
        return cls(found["topic"], found["partitions"], names, tuple(Row(**row) for row in found["rows"]))

    @classmethod
    def of(cls, servers: str, topic: str, partitions: int, query_id: str) -> KafkaPast:
        """As it is now. Nobody may be writing."""
        transactions = Transactions({"bootstrap.servers": servers}, _PATIENCE_MS)
        listed = [name for name, _ in transactions.listing(pattern_of(query_id))]
        known = [one for one in transactions.describe(listed) if one is not None]
        names = [Name(one.transactional_id, one.producer_id, one.producer_epoch, one.state) for one in known]
        rows = []
        for partition in range(partitions):
            part = PartitionLog(transactions.wire, topic, partition, _PATIENCE_MS).read(0, lambda key: True)
            assert part is not None and part.start == 0
            for one in part.records:
                by = one.producer_id, one.producer_epoch
                rows.append(Row(partition, one.key.decode(), one.value.decode(), *by, one.ending.value))
        names.sort(key=lambda name: name.producer_id)
        return cls(topic, partitions, tuple(names), tuple(rows))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=0))

    def happen(self, servers: str) -> None:
        """All of it once more, at a new broker."""
        create_topic(servers, self.topic, self.partitions)
        by_producer: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            by_producer[row.producer_id, row.producer_epoch].append(row)
        transactions = Transactions({"bootstrap.servers": servers}, _PATIENCE_MS)
        next_id = 0  # of a new broker
        for name in self.names:
            _use_up(transactions, servers, next_id, name.producer_id)
            next_id = name.producer_id + 1
            for one in _epochs_of(name):
                self._play(transactions, servers, one, by_producer.pop((one.producer_id, one.producer_epoch), []))
            # An end is answered before its markers are written; whoever began the id has to wait for them, too.
            eventually(lambda name=name: _state_of(transactions, name) == name.state)  # type: ignore[misc]
        assert not by_producer, f"rows of producers that no id is known of: {sorted(by_producer)}"

    def _play(self, transactions: Transactions, servers: str, one: Prepared, rows: list[Row]) -> None:
        """One epoch of a producer: it begins, and its transaction if it had one."""
        producer = _begun(servers, one.transactional_id)
        [known] = transactions.describe([one.transactional_id])
        assert known is not None and known.prepared == one, (known, one)
        if not rows:
            return
        producer.begin_transaction()
        for row in rows:
            producer.produce(self.topic, row.value.encode(), row.key.encode(), row.partition)
        assert producer.flush(60) == 0
        [ending] = {row.ending for row in rows}
        if ending != Ending.OPEN.value:
            assert transactions.end([one], commit=ending == Ending.COMMITTED.value) == [Answer.DONE]


def create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers}, logger=_quiet)
    admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(120)


def _epochs_of(name: Name) -> Iterator[Prepared]:
    for epoch in range(name.producer_epoch + 1):
        yield Prepared(name.transactional_id, name.producer_id, epoch)


def _begun(servers: str, transactional_id: str) -> Producer:
    # Nothing of it is ended by its end: librdkafka leaves open what is open.
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
    producer = Producer({**settings, "reconnect.backoff.ms": 10, "retry.backoff.ms": 20}, logger=_quiet)
    producer.init_transactions(60)
    return producer


def _use_up(transactions: Transactions, servers: str, next_id: int, wanted: int) -> None:
    """Producer ids below the one that is wanted, so that it is given next."""
    number = 0
    while next_id != wanted:
        name = f"before-{wanted}-{number}"
        _begun(servers, name)
        [known] = transactions.describe([name])
        assert known is not None and known.producer_id < wanted, f"{known}: expected less than {wanted}"
        next_id, number = known.producer_id + 1, number + 1


def _state_of(transactions: Transactions, name: Name) -> str:
    [known] = transactions.describe([name.transactional_id])
    return known.state if known is not None else "missing"
