"""What a witness says, what traces say, and what names of a ring say: without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.offline_wire import OfflineWire
from tests.unit.test_partition_log import data, marker

from holdfast.commit.sink import Committable, Scope
from holdfast.commit.traces import Known, Trace, check_traces
from holdfast.errors import Corrupt, Incompatible
from holdfast.kafka.partition_log import Ending, LogPart, LogRecord, PartitionLog
from holdfast.kafka.transactional_ids import (
    EPOCH_RING,
    TransactionalId,
    driver_id,
    drivers_ago,
    epoch_in_name,
    may_be_of_earlier,
)
from holdfast.kafka.transactions import Prepared, Transactions
from holdfast.kafka.wire import NO_TOPIC_ID
from holdfast.sink.kafka.sink import KafkaSink
from holdfast.sink.kafka.witness import Place, Verdict, Witnesses, _is_of, _trace, _verdict

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"
SCOPE = Scope(QUERY, "run", 20, "kafka")
NAME = str(TransactionalId(QUERY, "kafka", 3, 0, 1, 0))
ONE = Prepared(NAME, 7, 5)
PLACE = Place("holdfast-witness", "topic-1", 2, 100)
LATER = Place("holdfast-witness", "topic-1", 2, 200)


def record(offset: int, ending: Ending, producer_epoch: int = 5, name: str = NAME) -> LogRecord:
    return LogRecord(offset, name.encode(), b"", 7, producer_epoch, ending)


@pytest.mark.parametrize("ending", Ending)
def test_a_witness_ended_as_its_transaction_did(ending: Ending) -> None:
    part = LogPart(0, 300, (record(101, Ending.COMMITTED, 4), record(120, ending), record(130, Ending.ABORTED, 6)))
    assert _verdict(ONE, PLACE, part, LATER) is Verdict[ending.name]


def test_a_witness_that_is_gone_was_aborted_only_if_nothing_else_can_have_taken_it() -> None:
    empty = LogPart(0, 300, ())
    assert _verdict(ONE, PLACE, empty, LATER) is Verdict.ABORTED
    assert _verdict(ONE, PLACE, None, LATER) is Verdict.NOT_KNOWN, "the log has lost its end"
    assert _verdict(ONE, PLACE, LogPart(150, 300, ()), LATER) is Verdict.NOT_KNOWN, "somebody deleted what was there"


def test_a_log_that_does_not_reach_a_later_claim_yet_is_asked_again() -> None:
    """A new leader does not know at once how much of its log all replicas have, and shows less."""
    empty = LogPart(0, 150, ())
    for claim in (LATER, PLACE):
        assert _verdict(ONE, PLACE, empty, claim) is Verdict.OPEN
    for elsewhere in (Place("", "", -1, -1), Place("holdfast-witness", "topic-2", 2, 200)):
        assert _verdict(ONE, PLACE, empty, elsewhere) is Verdict.NOT_KNOWN


def test_keys_of_a_query_and_sink_are_told_from_others() -> None:
    assert _is_of(NAME.encode(), SCOPE)
    assert _is_of(f"{driver_id(QUERY, 'kafka')}/4".encode(), SCOPE)
    others = (
        f"{driver_id(QUERY, 'kafka-2')}/4",
        NAME.replace("kafka", "kafka-e1-0-0-0"),
        NAME.replace("0f0f", "1f1f", 1),
    )
    for other in (*(text.encode() for text in others), b"", b"\xff\xfe", b"holdfast-"):
        assert not _is_of(other, SCOPE)


def test_a_witness_that_is_damaged_or_belongs_elsewhere_is_told() -> None:
    with pytest.raises(Corrupt, match="the record at holdfast-witness-2, offset 101 is damaged"):
        _trace(LogRecord(101, NAME.encode(), b"nonsense", 7, 5, Ending.COMMITTED), PLACE, SCOPE)


NOBODY: dict[int, str] = {}
KNOWN = Known("/data/checkpoint", (3, 4, 6), {3: "a", 4: "b", 6: "d"}.get, 41)


@pytest.mark.parametrize(
    "trace",
    [
        Trace(4, "b", 41),
        Trace(6, "d"),
        Trace(2, "whoever"),  # so long ago that its epoch is forgotten
        Trace(3),
        Trace(batch_id=7),
    ],
)
def test_traces_of_known_drivers_are_nothing_strange(trace: Trace) -> None:
    check_traces("kafka", [trace], KNOWN)


@pytest.mark.parametrize(
    "trace",
    [Trace(4, "b", 42), Trace(4, "x", 41), Trace(3, "x"), Trace(7, "e"), Trace(5, "c"), Trace(9), Trace(batch_id=42)],
)
def test_traces_of_strangers_stop_a_start_and_say_what_to_choose(trace: Trace) -> None:
    with pytest.raises(Incompatible, match=r"restored from a backup.*newest checkpoint.*`holdfast fork /data/checkp"):
        check_traces("kafka", [Trace(3, "a", 40), trace], KNOWN)
    with pytest.raises(Incompatible):
        check_traces("kafka", [Trace(1, "a", 0)], Known("/data/checkpoint", (), NOBODY.get, None))


def test_who_is_stopped_by_a_stranger_is_told_what_and_where() -> None:
    traces = [
        Trace(3, "a", 40, "old"),
        Trace(9, "z", 43, "offset 7"),
        Trace(9, "z", 44, ""),
        Trace(3, "a", 41, "known"),
    ]
    with pytest.raises(Incompatible, match=r"Sink 'kafka'.* is of batch 41, .* there is batch 44 \(offset 7\)\. "):
        check_traces("kafka", traces, KNOWN)
    with pytest.raises(
        Incompatible, match=r"of no batch, .* there is no batch that is not here, but by another driver\. T"
    ):
        check_traces("kafka", [Trace(9)], Known("/data/checkpoint", (1,), NOBODY.get, None))


def test_epochs_in_names_are_a_ring_where_there_are_witnesses() -> None:
    assert {epoch_in_name(epoch, witnessed=True) for epoch in range(100)} == set(range(EPOCH_RING))
    for ago in range(EPOCH_RING - 3):
        assert drivers_ago(epoch_in_name(40 - ago, witnessed=True), 40, witnessed=True) == ago
    for after in (1, 2, 3):
        assert drivers_ago(epoch_in_name(40 + after, witnessed=True), 40, witnessed=True) == -after
    assert drivers_ago(37, 40, witnessed=True) == 3, "a name of before there were witnesses"
    assert drivers_ago(3, 40, witnessed=False) == 37


@pytest.mark.parametrize("epoch", range(1, 40))
def test_a_name_may_be_of_an_earlier_driver_exactly_if_one_made_it(epoch: int) -> None:
    made = {epoch_in_name(earlier, witnessed=True) for earlier in range(1, epoch)}
    for named in range(EPOCH_RING):
        assert may_be_of_earlier(named, epoch, witnessed=True) == (named in made)
    assert may_be_of_earlier(37, epoch, witnessed=False) == (epoch > 37)


class LogWire(OfflineWire):
    """One partition of witnesses; over its quota, a client is answered with no partition at all."""

    def __init__(self, log: bytes, end: int, throttled: int = 0) -> None:
        super().__init__()
        self.topic_id: object = PLACE.topic_id
        self.log, self.end, self.throttled = log, end, throttled

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        return {(topic, PLACE.partition): 1 for topic in topics}

    async def know(self, node: int) -> None:
        assert node == 1

    async def brokers(self) -> list[int]:
        return [1]

    async def send(self, request: Any, node: int) -> Any:
        if isinstance(request, MetadataRequest):
            parts = [SimpleNamespace(partition_index=number, leader_id=1) for number in range(4)]
            return SimpleNamespace(topics=[SimpleNamespace(error_code=0, topic_id=self.topic_id, partitions=parts)])
        if isinstance(request, ListOffsetsRequest):
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=0, offset=0)])])
        if self.throttled:
            self.throttled -= 1
            return SimpleNamespace(error_code=0, responses=[])
        at = request.topics[0].partitions[0].fetch_offset
        records = self.log if at < self.end else b""
        part = SimpleNamespace(
            error_code=int(at > self.end), log_start_offset=0, high_watermark=self.end, records=records
        )
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[part])])


def test_a_place_behind_the_end_of_a_log_that_was_lost_does_not_stop_every_start() -> None:
    """One replica, and its disk: the topic is the same one, and empty."""
    log = data(0, 7, f"{driver_id(QUERY, 'kafka')}/4")
    mine = Prepared(driver_id(QUERY, "kafka"), 7, 0)
    witnesses = Witnesses(Transactions({}, 1000, LogWire(log, 1)), PLACE.topic)
    assert witnesses.traces(PLACE, SCOPE) == []
    assert witnesses.traces_before(PLACE, SCOPE, mine, []) == ([], 0)


class ReadFrom(LogWire):
    """Knows from where it was read."""

    def __init__(self, log: bytes, end: int) -> None:
        super().__init__(log, end)
        self.starts: list[int] = []

    async def send(self, request: Any, node: int) -> Any:
        if not isinstance(request, (MetadataRequest, ListOffsetsRequest)):
            self.starts.append(request.topics[0].partitions[0].fetch_offset)
        return await super().send(request, node)


def test_a_start_after_a_batch_without_rows_reads_on_from_the_claim_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read its partition from the beginning: all that queries of any name had ever left there."""
    wire = ReadFrom(data(100, 7, "k"), 101)
    monkeypatch.setattr(KafkaSink, "_transactions", lambda self: Transactions({}, 1000, wire))
    sink = KafkaSink("nowhere:1", "t", name="kafka")
    witness = asdict(PLACE)
    assert sink.traces(replace(SCOPE, recorded={"witness": witness}), []) == []
    assert wire.starts and min(wire.starts) == PLACE.since
    wire.starts.clear()
    older = Committable(0, 0, 1, 1, {"witness": {**witness, "since": 90}})
    assert sink.traces(replace(SCOPE, recorded={"witness": witness}), [older]) == []
    assert min(wire.starts) == 90
    transactions, elsewhere = Transactions({}, 1000, wire), {**witness, "partition": 3}
    assert sink._witnesses_at(transactions, replace(SCOPE, recorded={"witness": elsewhere}), []) == [(PLACE.topic, 3)]
    assert sink._witnesses_at(transactions, SCOPE, []) != [(PLACE.topic, 3)]


def test_what_a_quota_holds_back_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    log = PartitionLog(LogWire(data(0, 7, "k"), 1, throttled=3), PLACE.topic, PLACE.partition, 1000)
    part = log.read(0, lambda key: True)
    assert part is not None and [one.key for one in part.records] == [b"k"]


@pytest.mark.parametrize("unknown", NO_TOPIC_ID)
def test_a_topic_whose_id_brokers_do_not_know_is_not_taken_for_another_one(unknown: str) -> None:
    """As before an upgrade of Kafka, and while it lasts: what witnesses said of what was recorded was not known."""
    wire = LogWire(data(101, 7, NAME) + marker(102, 7, commit=True), 103)
    witnesses, one = Witnesses(Transactions({}, 1000, wire), PLACE.topic), Prepared(NAME, 7, 0)
    before = replace(PLACE, topic_id=unknown)
    assert witnesses.verdicts(SCOPE, [(one, before)], LATER) == [Verdict.COMMITTED]
    assert witnesses.place_of(SCOPE, before) == PLACE, "it knows the id by now"
    wire.topic_id = unknown
    assert witnesses.verdicts(SCOPE, [(one, PLACE)], LATER) == [Verdict.COMMITTED]
    assert witnesses.place_of(SCOPE, PLACE) == PLACE
    wire.topic_id = "topic-2"
    assert witnesses.verdicts(SCOPE, [(one, PLACE)], LATER) == [Verdict.NOT_KNOWN]
    assert witnesses.place_of(SCOPE, PLACE).since == 0
