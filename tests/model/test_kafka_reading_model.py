"""Reading ranges of a partition against a model of its log: any log, any split, any order, any schedule of the client.

A test that knows the log says what is in a range. The client is `LogConsumer`, which behaves as librdkafka's does.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.partition_log import TOPIC, LogConsumer, Message, PartitionLog

from holdfast.errors import Corrupt, Unavailable
from holdfast.source.kafka import doubt, reading
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.reading import read_range

#: What is written between two looks at the log.
STEPS = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 30)),
    st.tuples(st.just("committed"), st.integers(0, 5)),
    st.tuples(st.just("aborted"), st.integers(0, 5)),
    st.tuples(st.just("open"), st.integers(1, 5)),
    st.tuples(st.just("end"), st.integers(0, 1)),
    st.tuples(st.just("compact"), st.integers(1, 9)),
)
WRITES = st.lists(STEPS, max_size=12)


def options(**more: str) -> SourceOptions:
    given_ = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": TOPIC, "kafkaConsumer.pollTimeoutMs": "5000"}
    return SourceOptions.parse({**given_, **more}, streaming=True)


def write(log: PartitionLog, writes: list[tuple[str, int]], draw: random.Random) -> None:
    for kind, count in writes:
        if kind == "compact":
            offsets = range(log.first, len(log.entries))
            log.compact([at for at in offsets if draw.randrange(10) < count])
        elif kind == "open":
            log.open_transaction(count)
        else:
            log.end_transaction(commit=bool(count))
            if kind == "plain":
                log.plain(count)
            elif kind != "end":
                log.transaction(count, commit=kind == "committed")


def read(source: SourceOptions, part: Range, pool: ConsumerPool) -> list[tuple[int, bytes]]:
    return rows_of(read_range(source, part, pool))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, bytes]]:
    return [
        row for batch in batches for row in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist())
    ]


def part_of(start: int, end: int) -> Range:
    return Range(TOPIC, 0, start, end)  # without an id: no broker is there to be asked for it


class World:
    """A log, a pool of consumers, and a stream that has read up to ``position``."""

    def __init__(self, draw: random.Random, failures: float) -> None:
        self.draw = draw
        self.log = PartitionLog()
        self.pool = ConsumerPool(connect=lambda _: LogConsumer(self.log, draw, failures))
        self.source = options()
        self.position = 0
        self.read: list[Range] = []

    def check(self, part: Range) -> None:
        self.compare(part, read(self.source, part, self.pool))

    def compare(self, part: Range, found: list[tuple[int, bytes]]) -> None:
        """Exactly what is visible; and of what was compacted since, what a consumer had fetched already."""
        there = self.log.visible(part.start, part.end)
        fetched = [row for row in found if self.log.compacted.get(row[0]) == row[1]]
        assert found == sorted({*there, *(row for row in fetched if part.start <= row[0] < part.end)}), part

    def batch(self, limit: int | None, tasks: int) -> None:
        """The next batch of the stream, as the planner cuts it; its tasks in any order."""
        end = self.log.last_stable if limit is None else min(self.log.last_stable, self.position + limit)
        inner = sorted(self.draw.sample(range(self.position, end), min(tasks - 1, end - self.position)))
        parts = [part_of(a, b) for a, b in pairwise(sorted({self.position, *inner, end}))]
        for part in self.draw.sample(parts, len(parts)) if self.draw.random() < 0.5 else parts:
            self.check(part)
        self.read += parts
        self.position = end

    def again(self) -> None:
        """A task that failed, or a replay: a range that was read before."""
        if self.read:
            self.check(self.draw.choice(self.read))

    def half_way(self) -> None:
        """A task that was given up: its generator is closed before its end."""
        if self.log.last_stable > self.position:
            batches: Any = read_range(self.source, part_of(self.position, self.log.last_stable), self.pool)
            next(batches, None)
            batches.close()

    def side_by_side(self) -> None:
        """Two tasks at once: two consumers of one pool."""
        if self.log.last_stable - self.position < 2:
            return
        middle = self.draw.randrange(self.position + 1, self.log.last_stable)
        parts = [part_of(self.position, middle), part_of(middle, self.log.last_stable)]
        self.draw.shuffle(parts)
        running: list[tuple[Range, Any, list[Any]]] = [(p, read_range(self.source, p, self.pool), []) for p in parts]
        for _, batches, found in running:
            found += [batch for batch in [next(batches, None)] if batch is not None]
        for part, batches, found in self.draw.sample(running, 2):
            self.compare(part, rows_of([*found, *batches]))
        self.position = self.log.last_stable


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(WRITES, st.sampled_from(["batch", "batch", "again", "half_way", "side_by_side"])), max_size=12),
    st.none() | st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.0, 0.3]),
    st.randoms(use_true_random=False),
)
def test_a_stream_hands_out_each_visible_record_once_in_its_range(
    script: list[tuple[list[tuple[str, int]], str]], limit: int | None, tasks: int, failures: float, draw: random.Random
) -> None:
    world = World(draw, failures)
    for writes, act in script:
        write(world.log, writes, draw)
        if act == "batch":
            world.batch(limit, tasks)
        else:
            getattr(world, act)()
    write(world.log, [("end", 1)], draw)
    while world.position < world.log.last_stable:
        world.batch(limit, tasks)


@settings(max_examples=examples(300))
@given(WRITES, st.lists(st.integers(0, 200), max_size=8), st.booleans(), st.randoms(use_true_random=False))
@example([("committed", 1)] * 80, [2, 100], True, random.Random(0))
def test_any_split_of_any_log(
    writes: list[tuple[str, int]], edges: list[int], all_at_once: bool, draw: random.Random
) -> None:
    world = World(draw, 0.0)
    if all_at_once:
        world.pool = ConsumerPool(connect=lambda _: LogConsumer(world.log))
    write(world.log, [*writes, ("end", 1)], draw)
    end = world.log.last_stable
    for a, b in pairwise(sorted({0, end, *(min(edge, end) for edge in edges)})):
        world.check(part_of(a, b))


def test_rows_that_came_with_the_end_of_the_log_are_handed_out() -> None:
    """80 transactions of one record: [0, 2), [2, 100), and 0 of the 30 records of [100, 160) came before this."""
    log = PartitionLog()
    for _ in range(80):
        log.transaction(1, commit=True)
    pool = ConsumerPool(connect=lambda _: LogConsumer(log))
    found = [read(options(), part_of(a, b), pool) for a, b in pairwise([0, 2, 100, 160])]
    assert [len(rows) for rows in found] == [1, 49, 30]


def test_rows_that_came_before_an_error_are_handed_out_when_loss_is_allowed() -> None:
    """What the client gave before it ran out of the log is in the range as much as what comes after the loss."""
    log = PartitionLog()
    log.plain(40)

    class Overtaken(LogConsumer):
        """Retention strikes after the first ten records were fetched."""

        def poll(self, timeout: float) -> Any:
            if self._fetch_at == 0:
                self._queue += [*map(self._record, range(10))]
                self._fetch_at = 10
                log.delete_before(30)
            return super().poll(timeout)

        def _record(self, at: int) -> Any:
            return Message(at, log.entries[at])  # type: ignore[arg-type]

    lossy = options(failOnDataLoss="false")
    pool = ConsumerPool(connect=lambda _: Overtaken(log))
    offsets = [at for at, _ in read(lossy, part_of(0, 35), pool)]
    assert offsets == [*range(10), *range(30, 35)]
    log.first = 0
    with pytest.raises(Corrupt, match=r"offset 10 is not there any more, the partition has \[30, 40\)"):
        read(options(), part_of(0, 35), ConsumerPool(connect=lambda _: Overtaken(log)))


def test_a_range_that_was_given_whole_is_not_lost_when_retention_comes_right_behind_it() -> None:
    log = PartitionLog()
    log.plain(20)

    class Overtaken(LogConsumer):
        def consume(self, count: int, timeout: float) -> Any:
            taken = super().consume(count, timeout)
            log.entries += [b"late"] * 10
            log.delete_before(25)
            self._fetch()
            return [*taken, *self._taken(1)]

    pool = ConsumerPool(connect=lambda _: Overtaken(log))
    assert [at for at, _ in read(options(), part_of(0, 20), pool)] == [*range(20)]
    assert [at for at, _ in read(options(), part_of(25, 30), pool)] == [*range(25, 30)]


@pytest.mark.parametrize("compacted", [[], [2, 3]], ids=["dense", "compacted"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_damage_behind_a_range_is_for_whoever_reads_there(compacted: list[int], fail: str) -> None:
    """A client's calls count messages: of a compacted stretch one goes past the range's end, and its error stopped a
    range that was whole.
    """

    class Damaged(LogConsumer):
        def _fetch(self) -> None:
            super()._fetch()
            if not any(message.error() for message in self._queue):
                self._queue.append(Message(5, error=KafkaError(KafkaError._BAD_MSG, "failed its CRC32C check")))

    log = PartitionLog()
    log.plain(5)
    log.compact(compacted)
    pool = ConsumerPool(connect=lambda _: Damaged(log))
    whole = [at for at in range(5) if at not in compacted]
    assert [at for at, _ in read(options(failOnDataLoss=fail), part_of(0, 5), pool)] == whole
    with pytest.raises(Corrupt, match=r"from offset 5 on is damaged: .* from offset 1 on, goes with it"):
        read(options(failOnDataLoss=fail), part_of(1, 6), pool)


def test_a_record_where_the_log_was_said_to_end_is_an_error_and_the_task_reads_anew() -> None:
    """A truncated log that was written again under a consumer: what was proven holds no more."""
    log = PartitionLog()
    log.transaction(3, commit=True)
    log.transaction(3, commit=False)
    pool = ConsumerPool(connect=lambda _: LogConsumer(log))
    assert len(read(options(), part_of(0, 5), pool)) == 3
    [consumer] = pool._idle
    log.entries[5] = b"other"
    consumer.client._fetch_at = 5
    consumer._paused = consumer.client._paused = False
    log.plain(4)
    with pytest.raises(Unavailable, match=r"offset 8 or later.*found one at 5"):
        read(options(), part_of(5, 12), pool)
    assert [at for at, _ in read(options(), part_of(5, 12), pool)] == [5, 8, 9, 10, 11]


def test_records_that_come_twice_are_handed_out_once() -> None:
    """librdkafka has given records again after a leader changed."""
    log = PartitionLog()
    log.plain(30)

    class Repeating(LogConsumer):
        def consume(self, count: int, timeout: float) -> Any:
            taken = super().consume(count, timeout)
            return [*taken[:12], *taken[5:]]

    pool = ConsumerPool(connect=lambda _: Repeating(log))
    assert [at for at, _ in read(options(), part_of(0, 25), pool)] == [*range(25)]
    assert [at for at, _ in read(options(), part_of(25, 30), pool)] == [*range(25, 30)]


def truncation(at: int, end: int) -> Message:
    """As librdkafka 2.16 says it, with auto.offset.reset=error."""
    said = f"Partition log truncation detected at offset {at} (leader epoch 3): broker end offset is {end} (offset"
    said += " leader epoch 2). Reset to INVALID.: Local: Partition log truncation detected (broker 1)"
    return Message(-1001, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, said))


@pytest.mark.parametrize("fail", [True, False])
def test_a_log_that_was_truncated_and_has_grown_again_is_told_from_one_that_is_whole(
    fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken for an offset that a namesake did not have, and read on without a word."""
    log = PartitionLog()
    log.plain(30)

    class Truncated(LogConsumer):
        struck = False

        def poll(self, timeout: float) -> Message | None:
            if self._app_at == 10 and not Truncated.struck:
                Truncated.struck = True
                self._queue, self._fetch_at = [], None
                return truncation(10, 7)
            return super().poll(timeout)

    pool = ConsumerPool(connect=lambda _: Truncated(log))
    source = options(failOnDataLoss=str(fail).lower())
    assert len(read(source, part_of(0, 10), pool)) == 10
    if fail:
        with pytest.raises(Corrupt, match=r"\[10, 20\): its log was truncated to offset 7, and was read up to 10"):
            read(source, part_of(10, 20), pool)
    else:
        assert [at for at, _ in read(source, part_of(10, 20), pool)] == [*range(10, 20)]
        assert "its log was truncated to offset 7" in caplog.text


def test_a_client_that_went_by_another_log_is_sent_where_it_was() -> None:
    """A truncation past what was read, or an epoch that is not known, takes nothing away."""
    log = PartitionLog()
    log.plain(30)
    told = [truncation(10, 10), Message(-1001, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "No epoch found"))]

    class Mistaken(LogConsumer):
        def poll(self, timeout: float) -> Message | None:
            if self._app_at == 10 and told:
                self._queue, self._fetch_at = [], None
                return told.pop()
            return super().poll(timeout)

    pool = ConsumerPool(connect=lambda _: Mistaken(log))
    assert len(read(options(), part_of(0, 10), pool)) == 10
    assert [at for at, _ in read(options(), part_of(10, 20), pool)] == [*range(10, 20)]
    assert not told


class Stale(LogConsumer):
    """Of a leader that does not know some of its log, for its first answers."""

    end, answers = 8, 3
    said = Message(-1001, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))

    def poll(self, timeout: float) -> Message | None:
        if self.answers and self._app_at == 10:
            self.answers -= 1
            self._queue, self._fetch_at = [], None
            return self.said
        return super().poll(timeout)

    def get_watermark_offsets(self, place: Any, timeout: float, cached: bool) -> tuple[int, int]:
        return 0, self.end


@pytest.mark.parametrize("fail", [True, False])
def test_a_leader_that_does_not_know_its_log_yet_is_asked_again(
    fail: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer was taken for a truncation: the query stopped, or left out what was there. The wait is no silence."""
    monkeypatch.setattr(doubt, "PAUSE_S", 0.1)
    log = PartitionLog()
    log.plain(20)
    pool = ConsumerPool(connect=lambda _: Stale(log))
    source = options(failOnDataLoss=str(fail).lower(), **{"kafkaConsumer.pollTimeoutMs": "50"})
    assert len(read(source, part_of(0, 10), pool)) == 10
    [consumer] = pool._idle
    assert [at for at, _ in read(source, part_of(10, 20), pool)] == [*range(10, 20)]
    assert consumer.client.answers == 0
    assert not caplog.messages


@pytest.mark.parametrize("said", [Stale.said, truncation(10, 10), truncation(10, 15)], ids=["end", "there", "after"])
def test_what_is_not_there_for_a_while_is_lost(
    said: Message, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the client spoke of a truncation past what was read, a range that is not there was skipped in silence."""
    monkeypatch.setattr(doubt, "PAUSE_S", 0.1)
    monkeypatch.setattr(doubt, "DOUBT_MS", 300.0)

    class Truncated(Stale):
        answers = 1_000

    Truncated.said = said
    log = PartitionLog()
    log.plain(20)
    for fail in ("true", "false"):
        pool, source = ConsumerPool(connect=lambda _: Truncated(log)), options(failOnDataLoss=fail)
        assert len(read(source, part_of(0, 10), pool)) == 10
        if fail == "true":
            with pytest.raises(Corrupt, match=r"offset 10 is not there any more, the partition has \[0, 8\)"):
                read(source, part_of(10, 20), pool)
        else:
            assert read(source, part_of(10, 20), pool) == []
            assert "offset 10 is not there any more" in caplog.text


def ends(monkeypatch: pytest.MonkeyPatch, *high: int) -> list[int]:
    """What leaders say of the log's end, question by question; the last answer stays."""
    left = list(high)

    class Leaders:
        def __init__(self, options: SourceOptions) -> None:
            pass

        def high_watermarks(self, partitions: list[Any]) -> dict[Any, int]:
            return dict.fromkeys(partitions, left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr(reading, "Cluster", Leaders)
    monkeypatch.setattr(doubt, "PAUSE_S", 0.01)
    monkeypatch.setattr(doubt, "DOUBT_MS", 100.0)
    return left


@pytest.mark.parametrize("fail", [True, False])
def test_a_range_whose_log_ends_before_it_is_lost_and_not_waited_for_at_each_start(
    fail: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an unclean election no start came past its batch, whatever failOnDataLoss said."""
    log = PartitionLog()
    log.plain(90)
    ends(monkeypatch, 90)
    pool = ConsumerPool(connect=lambda _: LogConsumer(log))
    source = options(failOnDataLoss=str(fail).lower(), **{"kafkaConsumer.pollTimeoutMs": "50"})
    told = r"t-0 \[80, 100\) was read up to 90, and its log ends at 90"
    if fail:
        with pytest.raises(Corrupt, match=told):
            read(source, part_of(80, 100), pool)
    else:
        assert [at for at, _ in read(source, part_of(80, 100), pool)] == [*range(80, 90)]
        assert re.search(told, caplog.text)
        log.plain(30)
        assert [at for at, _ in read(source, part_of(90, 95), pool)] == [*range(90, 95)], "as a consumer of nothing"


@pytest.mark.parametrize("high", [[90, 90, 120], [120]], ids=["a leader that was asleep", "an open transaction"])
def test_a_range_whose_log_has_it_is_waited_for(high: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    log = PartitionLog()
    log.plain(90)
    log.open_transaction(30)
    left = ends(monkeypatch, *high)
    source = options(failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "50"})
    with pytest.raises(Unavailable, match=r"ended at offset 90: .* an open transaction holds it back"):
        read(source, part_of(80, 100), ConsumerPool(connect=lambda _: LogConsumer(log)))
    assert left == [120]


class Slow(LogConsumer):
    """Takes its time for each few offsets, and says how far it is in its statistics only."""

    def __init__(self, log: PartitionLog, config: Mapping[str, Any], fetches: int) -> None:
        super().__init__(log)
        self._config, self._fetches = config, fetches

    def _fetch(self) -> None:
        place = self._fetch_at
        if place is None or place >= self._log.last_stable:
            super()._fetch()
            return
        time.sleep(0.01)
        if not self._fetches:
            return
        self._fetches -= 1
        self._fetch_at = min(place + 5, self._log.last_stable)
        self._queue += [Message(at, value) for at, value in self._log.visible(place, self._fetch_at)]
        if "stats_cb" in self._config:
            at = {"next_offset": self._fetch_at}
            self._config["stats_cb"](json.dumps({"topics": {TOPIC: {"partitions": {"0": at}}}}))


def test_a_long_stretch_of_aborted_records_is_skipped_for_as_long_as_the_client_gets_further() -> None:
    log = PartitionLog()
    log.plain(5)
    log.transaction(200, commit=False)
    log.plain(5)
    clients: list[Mapping[str, Any]] = []

    def connect(config: Mapping[str, Any], fetches: int = 1000) -> LogConsumer:
        clients.append(config)
        return Slow(log, config, fetches)

    source = options(**{"kafkaConsumer.pollTimeoutMs": "200"})
    pool = ConsumerPool(connect=connect)
    assert [at for at, _ in read(source, part_of(0, 211), pool)] == [*range(5), *range(206, 211)]
    assert ["stats_cb" in config for config in clients] == [False, True]
    assert not pool._idle, "what counts is not kept: what it says would pile up"
    with pytest.raises(Unavailable, match=r"got no further, within 200 ms"):
        read(source, part_of(0, 211), ConsumerPool(connect=partial(connect, fetches=15)))
