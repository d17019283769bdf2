"""Time to live: what each kind of state gives out when, in both forms, on both backends, over whatever it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.ttl_slot import WAYS, TtlSlot, lifetimes_of
from tests.unit.state_bench import USER, bind

import holdfast as hf
from holdfast.checkpoint.expiry import BatchTime, Lifetime, StateExpiry, next_expiry, to_writer
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.state.ttl import TTL

T = 1_700_000_000_000
TTL_MS = 1_000


class Batch(hf.BatchProcessor):
    value = hf.ValueState(pa.int64(), ttl=TTL_MS)
    text = hf.ValueState(pa.string(), ttl=TTL_MS)
    total = hf.ReducingState(pa.int64(), "sum", ttl=TTL_MS)
    first = hf.ReducingState(pa.string(), "first", ttl=TTL_MS)
    own = hf.ReducingState(pa.int64(), lambda a, b: a + b, ttl=TTL_MS)
    count = hf.AggregatingState(pa.int64(), "count", ttl=TTL_MS)
    items = hf.ListState(pa.int64(), ttl=TTL_MS)
    entries = hf.MapState(pa.string(), pa.int64(), ttl=TTL_MS)
    kept = hf.ValueState(pa.int64())


class ReadBatch(hf.BatchProcessor):
    value = hf.ValueState(pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))
    items = hf.ListState(pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))
    entries = hf.MapState(pa.string(), pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))
    total = hf.ReducingState(pa.int64(), "sum", ttl=TTL(TTL_MS, refresh="read_and_write"))


@pytest.fixture(params=[(way, complete) for way in WAYS for complete in (False, True)], ids=str)
def slot(request: pytest.FixtureRequest, tmp_path: Any) -> TtlSlot:
    way, complete = request.param
    return TtlSlot(tmp_path, way=way, complete=complete)


def fill(states: Any) -> None:
    users = ["a", "b"]
    states.value.put(users, [1, 2])
    states.text.put(users, ["one", "two"])
    states.total.add_only(users, [1, 2])
    states.first.add_only(users, ["x", "y"])
    states.own.add_only(users, [1, 2])
    states.count.add_only(users, [1, 2])
    states.items.add(users, [1, 2])
    states.entries.put(users, "m", [1, 2])
    states.kept.put(users, [1, 2])


def seen(states: Any) -> dict[str, Any]:
    users = ["a", "b"]
    return {
        "value": states.value.get(users).to_pylist(),
        "contains": states.value.contains(users).to_pylist(),
        "text": states.text.get(users).to_pylist(),
        "total": states.total.get(users).to_pylist(),
        "first": states.first.get(users).to_pylist(),
        "own": states.own.get(users).to_pylist(),
        "count": states.count.get(users).to_pylist(),
        "items": states.items.get(users).to_pylist(),
        "entries": states.entries.entries(users).to_pylist(),
        "entry": states.entries.get(users, "m").to_pylist(),
        "has": states.entries.contains(users, "m").to_pylist(),
        "size": states.entries.count(users).to_pylist(),
        "kept": states.kept.get(users).to_pylist(),
    }


ALIVE = {
    "value": [1, 2],
    "contains": [True, True],
    "text": ["one", "two"],
    "total": [1, 2],
    "first": ["x", "y"],
    "own": [1, 2],
    "count": [1, 1],
    "items": [[1], [2]],
    "entries": [[("m", 1)], [("m", 2)]],
    "entry": [1, 2],
    "has": [True, True],
    "size": [1, 1],
    "kept": [1, 2],
}
GONE = {
    "value": [None, None],
    "contains": [False, False],
    "text": [None, None],
    "total": [None, None],
    "first": [None, None],
    "own": [None, None],
    "count": [0, 0],
    "items": [[], []],
    "entries": [[], []],
    "entry": [None, None],
    "has": [False, False],
    "size": [0, 0],
    "kept": [1, 2],
}


def test_every_state_forgets_when_its_time_is_over(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    assert slot.act(Batch(), T + TTL_MS - 1, seen) == ALIVE
    assert slot.act(Batch(), T + TTL_MS, seen) == GONE
    assert slot.act(Batch(), T + 5 * TTL_MS, seen) == GONE


def test_what_was_written_again_lives_on_and_what_was_read_does_not(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    slot.act(Batch(), T + 600, fill)
    assert slot.act(Batch(), T + 1_500, seen)["total"] == [2, 4]
    assert slot.act(Batch(), T + 1_600, seen) == GONE


def test_a_fold_over_what_expired_starts_anew(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    add = slot.act(
        Batch(),
        T + TTL_MS,
        lambda s: (
            s.total.add(["a", "a"], [10, 5]).to_pylist(),
            s.first.add(["a", "a"], ["new", "late"]).to_pylist(),
            s.own.add(["a"], [7]).to_pylist(),
            s.count.add(["a"], [7]).to_pylist(),
            s.items.add(["a"], [7]),
            s.items.get(["a"]).to_pylist(),
        ),
    )
    assert add == ([10, 15], ["new", "new"], [7], [1], None, [[7]])
    after = slot.act(Batch(), T + TTL_MS + 1, seen)
    assert (after["total"], after["items"]) == ([15, None], [[7], []])


def test_list_elements_and_map_entries_go_each_by_itself_and_the_rest_keeps_its_order(slot: TtlSlot):
    for number in range(4):

        def add(s: Any, n: int = number) -> None:
            s.items.add(["a"], [n])
            s.entries.put(["a"], f"m{n}", [n])

        slot.act(Batch(), T + 400 * number, add)
    got = slot.act(Batch(), T + 1_400, lambda s: (s.items.get(["a"]).to_pylist(), s.entries.keys(["a"]).to_pylist()))
    assert got == ([[2, 3]], [["m2", "m3"]])
    slot.act(Batch(), T + 1_500, lambda s: s.entries.put(["a"], "m0", [9]))
    assert slot.act(Batch(), T + 1_900, lambda s: s.entries.entries(["a"]).to_pylist()) == [[("m0", 9), ("m3", 3)]]


def test_an_add_that_changes_nothing_is_a_write(slot: TtlSlot):
    """A second "first" leaves the value as it is, and its time starts anew, as in Flink."""
    slot.act(Batch(), T, fill)
    slot.act(Batch(), T + 900, lambda s: (s.first.add_only(["a"], ["other"]), s.total.add_only(["b"], [None])))
    after = slot.act(Batch(), T + 1_100, seen)
    assert (after["first"], after["total"]) == (["x", None], [None, None])


def test_clear_and_remove_over_what_expired(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    slot.act(
        Batch(),
        T + TTL_MS,
        lambda s: (s.value.clear(["a"]), s.items.clear(["a"]), s.entries.remove(["a"], "m"), s.total.clear(["a"])),
    )
    assert slot.act(Batch(), T + TTL_MS + 1, seen) == GONE


def test_put_and_clear_in_the_batch_that_finds_it_expired(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    slot.act(Batch(), T + TTL_MS, lambda s: (s.value.get(["a"]), s.value.put(["a"], [5]), s.value.clear(["a"])))
    assert slot.act(Batch(), T + TTL_MS + 1, seen)["value"] == [None, None]
    slot.act(Batch(), T + TTL_MS + 2, lambda s: s.value.put(["a"], [6]))
    assert slot.act(Batch(), T + TTL_MS + 3, seen)["value"] == [6, None]


def test_reads_refresh_where_the_state_says_so(slot: TtlSlot):
    def write(s: Any) -> None:
        s.value.put(["a", "b"], [1, 2])
        s.items.add(["a", "b"], [1, 2])
        s.entries.put(["a", "b", "a"], ["m", "m", "n"], [1, 2, 3])
        s.total.add_only(["a", "b"], [1, 2])

    def read(s: Any, users: list[str]) -> Any:
        return (
            s.value.get(users).to_pylist(),
            s.items.get(users).to_pylist(),
            s.entries.get(users, "m").to_pylist(),
            s.total.get(users).to_pylist(),
        )

    slot.act(ReadBatch(), T, write)
    slot.act(ReadBatch(), T + 900, lambda s: read(s, ["a"]))
    assert slot.act(ReadBatch(), T + 1_800, lambda s: read(s, ["a", "b"])) == (
        [1, None],
        [[1], []],
        [1, None],
        [1, None],
    )
    assert slot.act(ReadBatch(), T + 1_800, lambda s: s.entries.keys(["a"]).to_pylist()) == [["m"]]
    assert slot.act(ReadBatch(), T + 2_800, lambda s: read(s, ["a"])) == ([None], [[]], [None], [None])


def test_a_clock_that_goes_back_brings_nothing_back_and_loses_no_write(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    assert slot.act(Batch(), T + TTL_MS, seen) == GONE
    assert slot.act(Batch(), T, seen) == GONE
    slot.act(Batch(), T - 10 * TTL_MS, fill)
    assert slot.act(Batch(), T - 10 * TTL_MS, seen) == ALIVE
    assert slot.act(Batch(), T + 2 * TTL_MS - 1, seen) == ALIVE  # it was back for a moment only
    assert slot.act(Batch(), T + 2 * TTL_MS, seen) == GONE


def test_an_older_value_of_a_later_stamp_stays_covered(slot: TtlSlot):
    """Rows of event time come in any order: the newer value expires first, and the older must not show through."""
    processor = with_ttl(TTL(TTL_MS, time="event"))

    def write(event_ms: int, watermark_ms: int, n: int) -> None:
        lifetimes = lifetimes_of(processor)
        with (
            slot.batch(lifetimes, BatchTime(T, watermark_ms)) as stamps,
            bind(processor, USER, slot.store),
        ):
            stamps.advance(event_ms)
            processor.value.put(["a"], [n])

    write(50_500, 0, 1)
    slot.expiry = ()  # as an earlier Holdfast left it, which forgot the rows' times with the batch
    if slot.way == "base":
        slot.way = "deltas"  # from here on the base has the older value only
    write(50_000, 50_000, 2)
    assert slot.act(processor, T, got, watermark_ms=51_200)[0] is None
    slot.store.evict_clean()
    assert slot.act(processor, T, got, watermark_ms=51_300)[0] is None
    slot.fold()
    slot.store = slot.opened()
    assert slot.act(processor, T, got, watermark_ms=51_300)[0] is None


def with_ttl(ttl: Any) -> Any:
    class Changed(hf.BatchProcessor):
        value = hf.ValueState(pa.int64(), ttl=ttl)
        items = hf.ListState(pa.int64(), ttl=ttl)

    return Changed()


def put(n: int) -> Callable[[Any], None]:
    return lambda s: (s.value.put(["a"], [n]), s.items.add(["a"], [n]))  # type: ignore[return-value]


def got(s: Any) -> tuple[Any, Any]:
    return (s.value.get(["a"]).to_pylist()[0], s.items.get(["a"]).to_pylist()[0])


def test_a_ttl_that_is_added_counts_from_its_first_batch(slot: TtlSlot):
    slot.act(with_ttl(None), T, put(1))
    assert slot.act(with_ttl(TTL_MS), T + 50_000, got) == (1, [1])
    assert slot.act(with_ttl(TTL_MS), T + 50_999, got) == (1, [1])
    slot.act(with_ttl(TTL_MS), T + 50_999, lambda s: s.items.add(["a"], [2]))
    assert slot.act(with_ttl(TTL_MS), T + 51_000, got) == (None, [2])


def test_a_ttl_that_becomes_shorter_counts_at_once(slot: TtlSlot):
    slot.act(with_ttl(10 * TTL_MS), T, put(1))
    assert slot.act(with_ttl(10 * TTL_MS), T + 5_000, got) == (1, [1])
    assert slot.act(with_ttl(TTL_MS), T + 5_001, got) == (None, [])


def test_a_ttl_that_becomes_longer_brings_nothing_back(slot: TtlSlot):
    slot.act(with_ttl(TTL_MS), T, put(1))
    slot.act(with_ttl(TTL_MS), T + 900, lambda s: s.items.add(["a"], [2]))
    slot.act(with_ttl(TTL_MS), T + 1_000, lambda s: None)  # nobody looked at what expired
    assert slot.act(with_ttl(10 * TTL_MS), T + 1_001, got) == (None, [2])
    assert slot.act(with_ttl(10 * TTL_MS), T + 10_899, got) == (None, [2])
    assert slot.act(with_ttl(10 * TTL_MS), T + 10_900, got) == (None, [])


def test_a_ttl_that_is_taken_away_brings_nothing_back_and_keeps_the_rest(slot: TtlSlot):
    slot.act(with_ttl(None), T, put(0))
    slot.act(with_ttl(TTL_MS), T, lambda s: None)
    slot.act(with_ttl(TTL_MS), T + 500, lambda s: s.items.add(["a"], [2]))
    slot.act(with_ttl(TTL_MS), T + 1_000, lambda s: None)
    assert slot.act(with_ttl(None), T + 1_000_000, got) == (None, [2])
    slot.act(with_ttl(None), T + 1_000_000, put(3))
    assert slot.act(with_ttl(None), T + 9_000_000, got) == (3, [2, 3])
    assert slot.act(with_ttl(TTL_MS), T + 9_000_000, got) == (3, [2, 3])  # counts from here
    assert slot.act(with_ttl(TTL_MS), T + 9_000_999, got) == (3, [2, 3])
    assert slot.act(with_ttl(TTL_MS), T + 9_001_000, got) == (None, [])


def test_a_ttl_that_comes_back_counts_from_its_first_batch(slot: TtlSlot):
    slot.act(with_ttl(None), T, put(0))
    slot.act(with_ttl(TTL_MS), T, lambda s: None)
    slot.act(with_ttl(TTL_MS), T + 1_000, lambda s: None)  # 0 is gone
    slot.act(with_ttl(TTL_MS), T + 1_000, put(1))
    slot.act(with_ttl(None), T + 1_500, lambda s: s.items.add(["a"], [2]))
    slot.act(with_ttl(3 * TTL_MS), T + 90_000, lambda s: None)  # it is back, and nobody looks
    slot.act(with_ttl(3 * TTL_MS), T + 92_000, lambda s: s.items.add(["a"], [3]))
    slot.act(with_ttl(None), T + 92_100, lambda s: None)
    slot.act(with_ttl(2 * TTL_MS), T + 92_500, lambda s: None)  # and once more
    slot.act(with_ttl(2 * TTL_MS), T + 93_500, lambda s: s.items.add(["a"], [4]))
    slot.store.evict_clean()
    assert slot.act(with_ttl(2 * TTL_MS), T + 94_499, got) == (1, [1, 2, 3, 4])
    assert slot.act(with_ttl(2 * TTL_MS), T + 94_500, got) == (None, [4])
    assert slot.expiry[0].floor_ms is None
    assert slot.act(with_ttl(2 * TTL_MS), T + 95_500, got) == (None, [])


def test_a_clock_that_went_back_takes_nothing_early_where_a_ttl_comes_back(slot: TtlSlot):
    slot.act(with_ttl(TTL_MS), T, put(1))
    slot.act(with_ttl(None), T + 50_000, lambda s: None)
    slot.act(with_ttl(TTL_MS), T + 10, lambda s: s.items.add(["a"], [2]))  # what it writes has the latest stamp too
    assert slot.act(with_ttl(TTL_MS), T + 50_999, got) == (1, [1, 2])
    assert slot.act(with_ttl(TTL_MS), T + 51_000, got) == (None, [])


def test_a_ttl_that_comes_back_before_there_is_a_watermark_counts_from_the_first(slot: TtlSlot):
    """As in a query that began with an earlier one's state."""
    processor = with_ttl(TTL(TTL_MS, time="event"))
    slot.act(processor, T, put(1), watermark_ms=T)
    slot.act(with_ttl(None), T, put(2), watermark_ms=T + 10)
    slot.act(processor, T, lambda s: None, watermark_ms=0)
    assert slot.act(processor, T, got, watermark_ms=T + 50_000) == (2, [1, 2])  # counts from here
    assert slot.act(processor, T, got, watermark_ms=T + 50_999) == (2, [1, 2])
    assert slot.act(processor, T, got, watermark_ms=T + 51_000) == (None, [])


def test_until_cleaned_gives_out_until_a_time_that_a_replay_knows(slot: TtlSlot):
    lazy = TTL(TTL_MS, visibility="until_cleaned")  # cleaned at multiples of 125
    start = T // 125 * 125 + 60
    slot.act(with_ttl(lazy), start, put(1))
    assert slot.act(with_ttl(lazy), start + TTL_MS + 64, got) == (1, [1])
    assert slot.act(with_ttl(lazy), start + TTL_MS + 65, got) == (None, [])


def test_event_time_goes_by_the_watermark_and_stamps_by_the_rows(slot: TtlSlot):
    """A batch that spans more event time than the TTL: by the watermark, all it wrote would be gone in the next."""
    processor = with_ttl(TTL(TTL_MS, time="event"))
    first, second = Lifetime(1, "event", TTL_MS, 1, False), Lifetime(2, "event", TTL_MS, 1, False)
    assert lifetimes_of(processor) == [first, second]

    def late(s: Any) -> None:
        put(1)(s)

    with slot.batch([first, second], BatchTime(T, 0)) as stamps:
        stamps.advance(50_000)
        stamps.advance(40_000)
        with bind(processor, USER, slot.store):
            late(processor)
    assert slot.act(processor, T, got, watermark_ms=45_000) == (1, [1])
    assert slot.act(processor, T + 10**9, got, watermark_ms=50_999) == (1, [1])
    assert slot.act(processor, T, got, watermark_ms=51_000) == (None, [])


@pytest.mark.parametrize("first_watermark_ms", [0, 40_000])
def test_rows_of_an_earlier_event_time_make_nothing_older(slot: TtlSlot, first_watermark_ms: int):
    """What is written, or looked at, in a batch of older rows lives on by the latest that the slot ever had; so does
    what a batch without rows touches, as one that fires timers. Also where no watermark had come with the latest."""
    ttl = TTL(TTL_MS, time="event", refresh="read_and_write")

    class Folded(hf.BatchProcessor):
        value = hf.ValueState(pa.int64(), ttl=ttl)
        total = hf.ReducingState(pa.int64(), "sum", ttl=ttl)
        read = hf.ReducingState(pa.int64(), "sum", ttl=ttl)

    def batch(watermark_ms: int, event_ms: int | None, *, reads: bool = False) -> tuple[Any, ...]:
        processor = Folded()
        with (
            slot.batch(lifetimes_of(processor), BatchTime(T, watermark_ms)) as stamps,
            bind(processor, USER, slot.store),
        ):
            if event_ms is not None:
                stamps.advance(event_ms)
            if not reads:
                processor.value.put(["a"], [1])
                processor.total.add_only(["a"], [1])
            if event_ms == 50_000:
                processor.read.add_only(["a"], [1])
            states = (processor.value, processor.total, processor.read)
            return tuple(state.get(["a"])[0].as_py() for state in states)

    assert batch(first_watermark_ms, 50_000) == (1, 1, 1)
    assert batch(45_000, 46_000) == (1, 2, 1)
    assert batch(45_000, None) == (1, 3, 1)
    assert batch(50_999, 46_000, reads=True) == (1, 3, 1)
    assert batch(51_999, None, reads=True) == (None, None, None)  # it was looked at, at 50,999


@pytest.mark.parametrize(
    ("before", "watermark_ms"),
    [(None, 0), (None, 40_000), (TTL(5 * TTL_MS, time="event"), 40_000)],
    ids=["added before there is a watermark", "added", "added again"],
)
def test_a_ttl_of_event_time_that_is_added_knows_what_rows_the_slot_had(slot: TtlSlot, before: Any, watermark_ms: int):
    """Of another state's TTL, in earlier batches: older rows make what it writes no older."""

    def program(ttl: Any) -> Any:
        class Both(hf.BatchProcessor):
            first = hf.ValueState(pa.int64(), ttl=TTL(TTL_MS, time="event"))
            later = hf.ValueState(pa.int64(), ttl=ttl)

        return Both()

    def batch(ttl: Any, event_ms: int) -> None:
        processor, time = program(ttl), BatchTime(T, watermark_ms)
        with slot.batch(lifetimes_of(processor), time) as stamps, bind(processor, USER, slot.store):
            stamps.advance(event_ms)
            processor.first.put(["a"], [1])
            processor.later.put(["a"], [1])

    def look(s: Any) -> tuple[Any, Any]:
        return s.first.get(["a"])[0].as_py(), s.later.get(["a"])[0].as_py()

    again = TTL(TTL_MS, time="event")
    batch(before, 41_000)
    batch(None, 50_000)
    batch(again, 42_000)
    assert slot.act(program(again), T, look, watermark_ms=50_999) == (1, 1)
    assert slot.act(program(again), T, look, watermark_ms=51_000) == (None, None)


def test_without_a_watermark_nothing_counts(slot: TtlSlot):
    processor = with_ttl(TTL(TTL_MS, time="event"))
    slot.act(processor, T, put(1), watermark_ms=0)
    assert slot.expiry == ()
    assert slot.act(processor, T + 10**9, got, watermark_ms=T) == (1, [1])  # counts from here
    assert slot.act(processor, T + 10**9, got, watermark_ms=T + TTL_MS - 1) == (1, [1])
    assert slot.act(processor, T + 10**9, got, watermark_ms=T + TTL_MS) == (None, [])


def test_rows_before_the_first_watermark_do_not_age_what_was_there_before_the_ttl(slot: TtlSlot):
    slot.act(with_ttl(None), T, put(1))
    with slot.batch(lifetimes_of(with_ttl(TTL(TTL_MS, time="event"))), BatchTime(T, 0)) as stamps:
        stamps.advance(T - 10 * TTL_MS)  # one old row
    processor = with_ttl(TTL(TTL_MS, time="event"))
    assert not any(state.counts for state in slot.expiry)
    assert slot.act(processor, T, got, watermark_ms=T) == (1, [1])  # counts from here
    assert slot.act(processor, T, got, watermark_ms=T + TTL_MS - 1) == (1, [1])
    assert slot.act(processor, T, got, watermark_ms=T + TTL_MS) == (None, [])


def test_the_other_time_is_refused():
    was = (StateExpiry(1, "processing", 5, T, T - 5, T),)
    with pytest.raises(Incompatible, match=r"state 1 counts its time to live in processing time.*new name"):
        next_expiry(was, [Lifetime(1, "event", 5, 1, False)], BatchTime(T, T), "here")


class PerKey(hf.KeyedProcessor):
    value = hf.ValueState(pa.int64(), ttl=TTL_MS)
    total = hf.ReducingState(pa.int64(), "sum", ttl=TTL_MS)
    own = hf.ReducingState(pa.int64(), lambda a, b: a + b, ttl=TTL_MS)
    items = hf.ListState(pa.int64(), ttl=TTL_MS)
    entries = hf.MapState(pa.string(), pa.int64(), ttl=TTL_MS)

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        before = (self.value.value(), self.total.get(), self.own.get(), self.items.get(), self.entries.items())
        has = self.entries.contains("m")
        for n in rows["n"].to_pylist():
            if n is not None:
                self.value.update(n)
                self.total.add(n)
                self.own.add(n)
                self.items.add(n)
                self.entries.put("m", n)
        after = (self.value.value(), self.total.get(), self.own.get(), self.items.get(), self.entries.items())
        yield {"user": key[0], "seen": repr((before, has, after))}


class PerKeyRead(PerKey):
    value = hf.ValueState(pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))
    total = hf.ReducingState(pa.int64(), "sum", ttl=TTL(TTL_MS, refresh="read_and_write"))
    own = hf.ReducingState(pa.int64(), lambda a, b: a + b, ttl=TTL(TTL_MS, refresh="read_and_write"))
    items = hf.ListState(pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))
    entries = hf.MapState(pa.string(), pa.int64(), ttl=TTL(TTL_MS, refresh="read_and_write"))

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        if rows["n"].to_pylist() != [0]:  # of 0 nothing is read
            yield from super().process(key, rows, ctx)


OUTPUT = pa.schema([("user", pa.string()), ("seen", pa.string())])
NOTHING: tuple[Any, ...] = (None, None, None, [], [])


def rows(*pairs: tuple[str, int | None]) -> pa.RecordBatch:
    return pa.record_batch({"user": [u for u, _ in pairs], "n": pa.array([n for _, n in pairs], pa.int64())})


def told(slot: TtlSlot, processor: Any, now_ms: int, *pairs: tuple[str, int | None]) -> dict[str, Any]:
    return {row["user"]: eval(row["seen"]) for row in slot.run(processor, now_ms, rows(*pairs), OUTPUT)}


def of(n: int) -> Any:
    return (n, n, n, [n], [("m", n)])


def test_per_key(slot: TtlSlot):
    told(slot, PerKey(), T, ("a", 1), ("b", 2))
    told(slot, PerKey(), T + 500, ("b", None))
    assert told(slot, PerKey(), T + 999, ("a", None), ("b", None)) == {
        "a": (of(1), True, of(1)),
        "b": (of(2), True, of(2)),
    }
    assert told(slot, PerKey(), T + 1_000, ("a", 7), ("b", None)) == {
        "a": (NOTHING, False, of(7)),
        "b": (NOTHING, False, NOTHING),
    }


def test_per_key_a_read_refreshes_the_key_that_was_read_and_none_beside_it(slot: TtlSlot):
    """States read ahead for the keys to come: keys that read nothing would live on."""
    told(slot, PerKeyRead(), T, ("a", 1), ("b", 2), ("c", 3))
    told(slot, PerKeyRead(), T + 900, ("a", None), ("b", 0), ("c", None))
    assert told(slot, PerKeyRead(), T + 1_800, ("a", None), ("b", None), ("c", None)) == {
        "a": (of(1), True, of(1)),
        "b": (NOTHING, False, NOTHING),
        "c": (of(3), True, of(3)),
    }


def touched_by(users: list[str]) -> Callable[[Any], None]:
    def touch(s: Any) -> None:
        s.value.put(users, 1)
        s.items.add(users, 1)

    return touch


def test_a_fold_leaves_out_what_is_expired_and_disk_comes_down(tmp_path: Any):
    """The oldest run may stay for long: all are merged once the cutoff has moved by a quarter of the TTL."""
    slot = TtlSlot(tmp_path, way="base")
    processor = with_ttl(TTL_MS)
    most = 0
    for batch in range(60):
        users = [f"user-{batch}-{n}" for n in range(50)]
        slot.act(processor, T + 100 * batch, touched_by(users))
        most = max(most, len(slot.stored()))
    alive = 2 * 50 * 10
    assert alive <= len(slot.stored()) <= most <= 1.5 * alive
    slot.act(processor, T + 10**9, lambda s: None)
    assert slot.stored() == {}


def test_a_small_state_of_a_short_ttl_has_no_large_one_written_again_and_again():
    """All tables are merged together: the state that lives longest says how often."""
    short = StateExpiry(1, "processing", 1_000, T, T - 1_000, T)
    long = StateExpiry(2, "processing", 400_000_000, T, T - 400_000_000, T)
    assert [row[3] for row in to_writer([short], [1])] == [250]
    assert [row[3] for row in to_writer([short, long], [1, 2])] == [100_000_000] * 2
    assert [row[3] for row in to_writer([short], [1, 3])] == [86_400_000]
    assert [row[3] for row in to_writer([replace(short, ttl_ms=None)], [1])] == [86_400_000]
    assert to_writer([], [1, 2]) == []


def test_a_complete_store_lets_go_of_keys_that_nobody_touches(tmp_path: Any):
    slot = TtlSlot(tmp_path, complete=True)
    processor = with_ttl(TTL_MS)
    most = 0
    for batch in range(200):
        users = [f"user-{batch}-{n}" for n in range(500)]
        slot.act(processor, T + 100 * batch, touched_by(users))
        most = max(most, slot.store.counters["entries"])
    assert most < 4 * 2 * 500 * 10


def test_expiry_writes_nothing(slot: TtlSlot):
    slot.act(Batch(), T, fill)
    slot.act(Batch(), T + TTL_MS, seen)
    assert slot.deltas[-1].num_rows == 0


def test_declarations():
    assert hf.ValueState(pa.int64(), ttl="7 d").ttl == TTL("7 d")
    assert TTL("7 d").duration_ms == TTL(timedelta(days=7)).duration_ms == 7 * 86_400_000
    assert hf.ValueState(pa.int64()).ttl is None
    wrong: Any
    for wrong in (0, "soon", -1, 1.5):
        with pytest.raises(InvalidRequest):
            hf.ValueState(pa.int64(), ttl=wrong)
    for wrong in ({"refresh": "read"}, {"visibility": "never"}, {"time": "wall"}):
        with pytest.raises(InvalidRequest, match="expected"):
            TTL("1 d", **wrong)
