"""Timers of both kinds of processors: in order of time, once, with the key's state, and nothing but what is due."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, bind, make_context, make_store, purchases

import holdfast as hf
from holdfast import _core
from holdfast.state import BatchTimers, Processor, any_due, declared_timers, keyed_driver

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
FIRED = pa.schema([("user", pa.string()), ("at", pa.int64()), ("namespace", pa.string()), ("seen", pa.int64())])


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


class Lists(hf.KeyedProcessor):
    far = hf.Timers("processing")

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> None:
        self.far.list()

    def on_timer(self, key: Any, time: datetime, namespace: str, ctx: hf.Context) -> None:
        raise AssertionError("there is no such time")


def minutes(time: datetime) -> int:
    return (time - START) // MINUTE


def ctx(batch_id: int = 1, *, watermark: float | None = None, now: float = 0) -> hf.Context:
    mark = None if watermark is None else int(at(watermark).timestamp() * 1000)
    return make_context(batch_id, watermark_ms=mark, timestamp_ms=int(at(now).timestamp() * 1000))


def run_batch(processor: Processor, store: Any, context: hf.Context, *rows: Any) -> list[Any]:
    """The rows that one batch gives, as tuples. ``rows``: (user, minute)."""
    given: list[Any] = []
    with bind(processor, FIRED, store) as bound:
        batches = [purchases([user for user, _ in rows], [minute for _, minute in rows])] if rows else []
        for batch in batches:
            for _, out in bound.process(batch, context):
                given += out.to_pylist()
        for _, out in bound.finish(context):
            given += out.to_pylist()
    return [tuple(row.values()) for row in given]


class Alarms(hf.KeyedProcessor):
    """Sets a timer at each row's minute; says when it fires, and how often its key was seen."""

    seen = hf.ValueState(pa.int64())
    due = hf.Timers("event")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        self.seen.update((self.seen.value() or 0) + len(rows))
        for minute in rows["amount"].to_pylist():
            self.due.register(at(minute))

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
        assert ctx.timers == "due"
        yield key[0], minutes(time), namespace, self.seen.value()


class BatchAlarms(hf.BatchProcessor):
    """The same, vectorised."""

    seen = hf.ReducingState(pa.int64(), "sum")
    due = hf.Timers("event")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.seen.add_only(batch, 1)
        times = pa.array([None if minute is None else at(minute) for minute in batch["amount"].to_pylist()])
        self.due.register(batch, times)

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        assert ctx.timers == "due"
        assert batch.schema == pa.schema(
            [*USER, pa.field("time", pa.timestamp("us", "UTC")), pa.field("namespace", pa.string())]
        )
        when = pa.array([minutes(time) for time in batch["time"].to_pylist()], pa.int64())
        return pa.record_batch([batch["user"], when, batch["namespace"], self.seen.get(batch)], schema=FIRED)


both = pytest.mark.parametrize("processor", [Alarms, BatchAlarms])


@both
def test_timers_fire_once_in_order_of_time_with_the_keys_state(processor):
    store = make_store()
    assert run_batch(processor(), store, ctx(1, watermark=0), ("b", 7), ("a", 9), ("a", 5), ("b", 5), ("a", 5)) == []
    assert run_batch(processor(), store, ctx(2, watermark=7)) == [("a", 5, "", 3), ("b", 5, "", 2), ("b", 7, "", 2)]
    assert run_batch(processor(), store, ctx(3, watermark=8)) == []
    assert run_batch(processor(), store, ctx(4, watermark=9)) == [("a", 9, "", 3)]
    assert run_batch(processor(), store, ctx(5, watermark=99)) == []


@both
def test_timers_that_rows_of_the_batch_set_fire_after_all_its_rows(processor):
    fired = run_batch(processor(), make_store(), ctx(watermark=6), ("b", 6), ("a", 3), ("a", 7), ("b", 1))
    assert fired == [("b", 1, "", 2), ("a", 3, "", 2), ("b", 6, "", 2)]


@both
def test_without_a_watermark_no_timer_of_event_time_fires(processor):
    assert run_batch(processor(), make_store(), ctx(watermark=None, now=1000), ("a", 1)) == []


def test_the_watermark_that_spark_begins_with_fires_nothing_of_before_1970():
    class Old(Alarms):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            assert ctx.watermark is None
            self.due.register(datetime(1965, 7, 1, tzinfo=timezone.utc))

    assert run_batch(Old(), make_store(), make_context(watermark_ms=0), ("a", 1)) == []


def test_a_null_time_sets_nothing():
    assert run_batch(BatchAlarms(), make_store(), ctx(watermark=9), ("a", None), ("b", 1)) == [("b", 1, "", 1)]


def test_a_null_among_the_values_of_a_dictionary_is_no_time_and_no_namespace() -> None:
    """It was found by the core, which refused it, and the batch was lost."""

    def of_dictionary(value: Any, type: pa.DataType) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([value, None], type))

    due = BatchTimers("due", "event", _key_columns(), make_store().timers(0x8000))
    times, users = of_dictionary(at(1), pa.timestamp("us", "UTC")), ["a", "b"]
    due.register(users, times)
    assert [len(timers) for timers in due.list(users).to_pylist()] == [1, 0]
    due.delete(users, times)
    assert [len(timers) for timers in due.list(users).to_pylist()] == [0, 0]
    due.check()
    assert (due.registered, due.deleted) == (1, 1)
    with pytest.raises(hf.InvalidRequest, match="timers 'due', namespaces: expected strings, found 1 nulls"):
        due.register(users, at(1), of_dictionary("", pa.string()))


def test_timers_of_processing_time_go_by_the_batchs_own_timestamp():
    class Due(Alarms):
        due = hf.Timers("processing")

    store = make_store()
    run_batch(Due(), store, ctx(1, watermark=1000, now=0), ("a", 5))
    assert run_batch(Due(), store, ctx(2, watermark=1000, now=4.9)) == []
    assert run_batch(Due(), store, ctx(3, watermark=1000, now=5)) == [("a", 5, "", 1)]


def test_a_timer_that_is_set_again_while_it_fires_fires_in_its_place_until_it_is_not_due():
    class Every(Alarms):
        """Each timer sets the next, two minutes later."""

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
            self.due.register(time + 2 * MINUTE)
            yield from super().on_timer(key, time, namespace, ctx)

    store = make_store()
    fired = run_batch(Every(), store, ctx(watermark=8), ("a", 1), ("a", 4))
    assert [row[1] for row in fired] == [1, 3, 4, 5, 6, 7, 8]
    with bind(Every(), FIRED, store) as bound:
        [] = list(bound.finish(ctx(2, watermark=8)))
        table = store.timers(0x8000)
        assert table.next_due() == int(at(9).timestamp() * 1e6)


def test_a_timer_that_is_set_while_others_fire_is_in_order_with_those_of_its_own_key():
    class Sets(Alarms):
        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
            if time == at(1):
                self.due.register(at(2))
            yield from super().on_timer(key, time, namespace, ctx)

    fired = run_batch(Sets(), make_store(), ctx(watermark=9), ("a", 1), ("a", 5), ("b", 3))
    assert [row[:2] for row in fired] == [("a", 1), ("b", 3), ("a", 2), ("a", 5)]  # Flink: a 1, a 2, b 3, a 5


@pytest.mark.parametrize("chunk", [1, 64])
def test_rows_and_timers_of_a_slot_are_never_at_work_at_once(monkeypatch: pytest.MonkeyPatch, chunk: int):
    """Not even between the rows that a call gives: each runs to its end, in one thread, before the next begins."""

    class Watched(Alarms):
        def watched(self, rows: Iterator[Any]) -> Iterator[Any]:
            assert self.__dict__.setdefault("thread", threading.get_ident()) == threading.get_ident()
            assert not self.__dict__.get("at_work"), "two calls at once"
            self.at_work = True
            yield "", 0, "", 0
            yield from rows
            self.at_work = False

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
            Alarms.process(self, key, rows, ctx)
            yield from self.watched(iter([]))

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
            yield from self.watched(super().on_timer(key, time, namespace, ctx))

    monkeypatch.setattr(keyed_driver, "CHUNK_KEYS_MIN", chunk)
    rows = [(f"u{number % 5}", number % 3) for number in range(60)]
    fired = run_batch(Watched(), make_store(), ctx(watermark=9), *rows)
    assert len(fired) == 5 + 2 * 15


def test_what_a_timer_deletes_does_not_fire():
    class First(Alarms):
        """The first one takes the others with it."""

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
            for later, name in self.due.list():
                self.due.delete(later, name)
            assert self.due.list() == []
            yield from super().on_timer(key, time, namespace, ctx)

    fired = run_batch(First(), make_store(), ctx(watermark=8), ("a", 3), ("a", 2), ("a", 90), ("b", 5), ("a", 8))
    assert fired == [("a", 2, "", 4), ("b", 5, "", 1)]


def test_namespaces_tell_timers_of_one_key_and_time_apart():
    class Named(hf.KeyedProcessor):
        due = hf.Timers("event")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            for name in ("x", "y", "z", "y"):
                self.due.register(at(1), name)
            self.due.delete(at(1), "x")
            self.due.delete(at(1), "unknown")
            assert self.due.list() == [(at(1), "y"), (at(1), "z")]

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
            return key[0], minutes(time), namespace, None

    fired = run_batch(Named(), make_store(), ctx(watermark=1), ("a", 0))
    assert fired == [("a", 1, "y", None), ("a", 1, "z", None)]


def test_the_last_of_setting_and_deleting_counts():
    class Undecided(Alarms):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.due.register(at(1))
            self.due.delete(at(1))
            self.due.delete(at(2))
            self.due.register(at(2))

    assert run_batch(Undecided(), make_store(), ctx(watermark=9), ("a", 0)) == [("a", 2, "", None)]


def test_timers_of_two_kinds_set_each_other():
    class Both(hf.KeyedProcessor):
        event = hf.Timers("event")
        clock = hf.Timers("processing")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.clock.register(at(1))

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
            if ctx.timers == "clock" and time < at(3):
                self.event.register(time + MINUTE)
            elif ctx.timers == "event":
                self.clock.register(time + MINUTE)
            return key[0], minutes(time), ctx.timers, None

    fired = run_batch(Both(), make_store(), ctx(watermark=9, now=9), ("a", 0))
    assert fired == [("a", 1, "clock", None), ("a", 2, "event", None), ("a", 3, "clock", None)]


def test_timers_of_several_declarations_fire_in_order_of_time_and_those_of_one_time_in_order_of_declaration():
    class Order(hf.KeyedProcessor):
        """Payment is due at each row's minute; a reminder one minute before, and one with it."""

        payment = hf.Timers("event")
        reminder = hf.Timers("event")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            for minute in rows["amount"].to_pylist():
                self.reminder.register(at(minute - 1))
                self.reminder.register(at(minute))
                self.payment.register(at(minute))

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
            return key[0], minutes(time), ctx.timers, None

    fired = run_batch(Order(), make_store(), ctx(watermark=9), ("a", 3), ("b", 7), ("b", 4), ("a", 9))
    assert [(minute, timers, user) for user, minute, timers, _ in fired] == [
        (2, "reminder", "a"),
        (3, "payment", "a"),
        (3, "reminder", "a"),
        (3, "reminder", "b"),
        (4, "payment", "b"),
        (4, "reminder", "b"),
        (6, "reminder", "b"),
        (7, "payment", "b"),
        (7, "reminder", "b"),
        (8, "reminder", "a"),
        (9, "payment", "a"),
        (9, "reminder", "a"),
    ]
    store, rows = make_store(), [(f"u{i % 300}", (i * 37) % 501) for i in range(2000)]
    fired = run_batch(Order(), store, ctx(watermark=600), *rows)
    declared = {"payment": 0, "reminder": 1}
    assert fired == sorted(fired, key=lambda row: (row[1], declared[row[2]], row[0]))
    assert len(fired) == len(set(rows)) + len({(user, minute - by) for user, minute in rows for by in (0, 1)})
    assert [store.timers(0x8000 + number).next_due() for number in (0, 1)] == [None, None]


def test_a_timer_that_another_declarations_timer_deletes_or_sets_before_it_fires_as_if_both_were_one():
    class Step(hf.KeyedProcessor):
        """A response takes the time-out with it; a time-out that fires asks for another response."""

        response = hf.Timers("event")
        time_out = hf.Timers("event")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            [minute] = rows["amount"].to_pylist()
            self.response.register(at(minute))
            self.time_out.register(at(5))

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
            if ctx.timers == "response":
                self.time_out.delete(at(5))
            else:
                self.response.register(at(6))
            return key[0], minutes(time), ctx.timers, None

    fired = run_batch(Step(), make_store(), ctx(watermark=9), ("in time", 4), ("late", 7))
    assert fired == [
        ("in time", 4, "response", None),
        ("late", 5, "time_out", None),
        ("late", 6, "response", None),
        ("late", 7, "response", None),
    ]


def test_vectorised_timers_fire_declaration_by_declaration_in_the_order_of_the_class():
    class Two(hf.BatchProcessor):
        late = hf.Timers("event")
        early = hf.Timers("event")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.early.register(batch, [at(1), at(3)])
            self.late.register(batch, [at(2), at(4)])

        def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
            for user, time in zip(batch["user"].to_pylist(), batch["time"].to_pylist()):
                yield user, minutes(time), ctx.timers, None

    fired = run_batch(Two(), make_store(), ctx(watermark=9), ("a", 0), ("b", 0))
    expected = [("late", 2), ("late", 4), ("early", 1), ("early", 3)]
    assert [(timers, minute) for _, minute, timers, _ in fired] == expected


@both
def test_many_timers_of_few_keys_fire_all_and_each_key_in_order(processor):
    rows = [(f"u{i % 7}", (i * 37) % 501) for i in range(2000)]
    fired = run_batch(processor(), make_store(), ctx(watermark=500), *rows)
    assert sorted((user, minute) for user, minute, _, _ in fired) == sorted(set(rows))
    assert fired == sorted(fired, key=lambda row: (row[1], row[0]))


def test_vectorised_timers_are_listed_deleted_and_named():
    store = make_store()
    due = BatchTimers("due", "event", _key_columns(), store.timers(0x8000))
    keys = pa.array(["a", "b", "a"])
    due.register(keys, pa.array([at(2), at(1), at(1)]), ["x", "y", "x"])
    due.register(["c"], [at(3)])
    due.delete(["a", "q"], [at(1), at(1)], "x")
    listed = due.list(pa.array(["a", "b", "c", "q"]))
    assert listed.type == pa.list_(pa.struct([("time", pa.timestamp("us", "UTC")), ("namespace", pa.string())]))
    assert listed.to_pylist() == [
        [{"time": at(2), "namespace": "x"}],
        [{"time": at(1), "namespace": "y"}],
        [{"time": at(3), "namespace": ""}],
        [],
    ]


def test_keys_of_several_columns_come_back_as_they_were():
    keys = pa.schema([("user", pa.string()), ("at", pa.struct([("shop", pa.int32()), ("day", pa.date32())]))])
    output = pa.schema([*keys, pa.field("minute", pa.int64())])

    class Both(hf.BatchProcessor):
        due = hf.Timers("event")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.due.register(batch, [at(3), at(1), at(2)])

        def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            assert batch.schema.names == ["user", "at", "time", "namespace"]
            assert self.due.list(batch).to_pylist() == [[]] * 3
            when = pa.array([minutes(time) for time in batch["time"].to_pylist()], pa.int64())
            return pa.record_batch([batch["user"], batch["at"], when], schema=output)

    class OneByOne(hf.KeyedProcessor):
        due = hf.Timers("event")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.due.register(at({"a": 3, "b": 1, "c": 2}[key[0]]))

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
            return (*key, minutes(time))

    places = [{"shop": number, "day": START.date()} for number in (7, 8, 9)]
    rows = pa.record_batch([pa.array(["a", "b", "c"]), pa.array(places, keys.field("at").type)], schema=keys)
    for processor in (Both(), OneByOne()):
        with bind(processor, output, make_store(keys), keys) as bound:
            context = ctx(watermark=9)
            assert not list(bound.process(rows, context))
            [(_, out)] = bound.finish(context)
        assert out.to_pylist() == [
            {"user": user, "at": places[place], "minute": minute}
            for user, place, minute in [("b", 1, 1), ("c", 2, 2), ("a", 0, 3)]
        ]


class Notes(hf.BatchProcessor):
    """Rows say what to do: set a timer, delete it, or nothing. Those that fire give their key, as text."""

    seen = hf.AggregatingState(pa.int64(), "count", ttl=hf.TTL("1 d"))
    due = hf.Timers("event")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.seen.add_only(batch, 1)
        for what, change in (("set", self.due.register), ("delete", self.due.delete)):
            some = batch.filter(pa.compute.equal(batch["what"], what))
            change(some, [at(1)] * some.num_rows)

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        for key, count in zip(batch["key"].to_pylist(), self.seen.get(batch).to_pylist()):
            yield repr(key), count


class NotesByKey(hf.KeyedProcessor):
    """The same, a key at a time."""

    seen = hf.AggregatingState(pa.int64(), "count", ttl=hf.TTL("1 d"))
    due = hf.Timers("event")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        for what in rows["what"].to_pylist():
            self.seen.add(1)
            if what == "set":
                self.due.register(at(1))
            elif what == "delete":
                self.due.delete(at(1))

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
        return repr(key[0]), self.seen.get()


PLACE = pa.struct([("x", pa.float64()), ("shop", pa.string())])


@pytest.mark.parametrize("kind", [Notes, NotesByKey])
@pytest.mark.parametrize("is_restored", [False, True], ids=["one store", "restored"])
@pytest.mark.parametrize(
    ("type", "one", "other", "given"),
    [
        (pa.float64(), -0.0, 0.0, "0.0"),
        (pa.float64(), float("nan"), -float("nan"), "nan"),
        (pa.float64(), None, None, "None"),
        (pa.string(), None, None, "None"),
        (pa.string(), "", "", "''"),
        (PLACE, {"x": -0.0, "shop": None}, {"x": 0.0, "shop": None}, "{'x': 0.0, 'shop': None}"),
        (PLACE, None, None, "None"),
        (pa.decimal128(5, 2), Decimal("1.10"), Decimal("1.1"), "Decimal('1.10')"),
        (pa.binary(), b"\x00\xff", b"\x00\xff", "b'\\x00\\xff'"),
    ],
)
def test_a_key_in_another_spelling_has_the_same_timers(
    kind: type[Any], is_restored: bool, type: pa.DataType, one: Any, other: Any, given: str
) -> None:
    """Null, NaN and -0.0: set by one spelling and deleted by the other, or set by both and fired once."""
    keys = pa.schema([("key", type)])
    groups: dict[str, Any] = {"max_parallelism": 16, "first_key_group": 0, "end_key_group": 16, "null_keys": True}

    def rows(key: Any, what: str) -> pa.RecordBatch:
        return pa.record_batch([pa.array([key], type), [what]], names=["key", "what"])

    for last, fired in (("delete", []), ("set", [(given, 2)])):
        store = _core.Store(keys, **groups)
        store.begin(1)
        found: list[Any] = []
        deltas: list[pa.RecordBatch] = []
        for number, batch in enumerate([rows(one, "set"), rows(other, last), rows(one, "nothing").slice(0, 0)], 1):
            context = ctx(number, watermark=9 if number == 3 else 0, now=0)
            with bind(kind(), pa.schema([("key", pa.string()), ("seen", pa.int64())]), store, keys) as bound:
                for _, out in (*bound.process(batch, context), *bound.finish(context)):
                    found += [tuple(row.values()) for row in out.to_pylist()]
            deltas.append(pa.record_batch(store.take_delta()))
            store.commit()
            if is_restored:
                store = _core.Store(keys, **groups)
                for sequence, delta in enumerate(deltas, 1):
                    store.apply_delta(delta, sequence)
            store.begin(number + 1)
        assert found == fired, last


def test_what_is_no_time_or_no_namespace_is_refused_and_the_batch_is_lost():
    store = make_store()
    due = BatchTimers("due", "event", _key_columns(), store.timers(0x8000))
    with pytest.raises(hf.InvalidRequest, match=r"timers 'due', times: expected timestamp\[us, tz=UTC\]"):
        due.register(["a"], [12])
    with pytest.raises(hf.InvalidRequest, match="timers 'due', namespaces: expected strings, found 1 nulls"):
        due.register(["a"], [at(1)], pa.array([None], pa.string()))
    with pytest.raises(hf.InvalidRequest, match="an operation failed"):
        due.check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5,), r"', time: expected timestamp\[us, tz=UTC\], found 5"),
        ((None,), "a timer has a time"),
        ((START, None), '"" is the namespace of timers that need none'),
        ((START, 7), "', namespace: expected string, found 7"),
    ],
)
def test_what_is_no_time_or_no_namespace_of_a_key_is_refused(arguments, message):
    class Wrong(Alarms):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.due.register(*arguments)

    with pytest.raises(hf.InvalidRequest, match=message):
        run_batch(Wrong(), make_store(), ctx(), ("a", 1))


def test_due_is_told_before_a_batch_begins():
    store = make_store()
    timers = [(0x8000, "event"), (0x8001, "processing")]
    assert not any_due(store, timers, ctx(watermark=99, now=99))
    BatchTimers("due", "event", _key_columns(), store.timers(0x8000)).register(["a"], [at(5)])
    assert not any_due(store, timers, ctx(watermark=4.99, now=99))
    assert any_due(store, timers, ctx(watermark=5, now=0))
    assert not any_due(store, timers, ctx(watermark=None, now=99))


def test_a_processor_has_timers_and_what_they_call():
    class NothingToCall(hf.KeyedProcessor):
        due = hf.Timers("event")

    class NothingThatCalls(hf.BatchProcessor):
        def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            return None

    class OtherForm(hf.BatchProcessor):
        due = hf.Timers("event")

        def on_timer(self, key: Any, time: datetime, namespace: str, ctx: hf.Context) -> None:
            return None

    with pytest.raises(hf.InvalidRequest, match=r"timers 'due' and no method .* call; define on_timer\(self, key"):
        declared_timers(NothingToCall())
    with pytest.raises(hf.InvalidRequest, match=r"defines on_timers\(self, batch, ctx\) and declares no timers"):
        declared_timers(NothingThatCalls())
    with pytest.raises(hf.InvalidRequest, match=r"define on_timers\(self, batch, ctx\)"):
        declared_timers(OtherForm())
    with pytest.raises(hf.InvalidRequest, match="Timers: domain is 'clock'; expected one of 'event', 'processing'"):
        hf.Timers("clock")  # type: ignore[arg-type]
    assert [declared.name for declared in declared_timers(Alarms())] == ["due"]


def _key_columns() -> Any:
    from holdfast.state.columns import KeyColumns

    return KeyColumns(USER)


@pytest.mark.parametrize(("microseconds", "asks"), [(3 * 10**17, True), (-(10**17), True), (-(10**17), False)])
def test_a_time_that_python_does_not_know_is_named(microseconds: int, asks: bool) -> None:
    """Past 9999, or before the year 1: a BatchProcessor sets it, and the program becomes a KeyedProcessor."""

    class Far(hf.BatchProcessor):
        far = hf.Timers("processing")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.far.register(batch, pa.array([microseconds], pa.timestamp("us", "UTC")))

    store = make_store()
    with bind(Far(), FIRED, store) as bound:
        for _ in bound.process(purchases(["ada"], [1]), ctx()):
            pass
    message = f"timers 'far', times: {microseconds} microseconds since 1970 have no Python value.*BatchProcessor"
    with pytest.raises(hf.InvalidRequest, match=message):
        run_batch(Lists(), store, ctx(2), *([("ada", 2)] if asks else []))
