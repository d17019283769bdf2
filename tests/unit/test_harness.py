"""`holdfast.testing.Harness`: what a test of a processor sees, without Spark."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import Backend

import holdfast as hf
from holdfast.state import fresh_copy
from holdfast.testing import Harness
from holdfast.testing.rows import schema_of

UTC = timezone.utc
IN, OUT = "user string, amount long", "user string, amount long, total long"


class RunningTotal(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        ctx.counters.add("rows", batch.num_rows)
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


class Everything(hf.KeyedProcessor):
    """One state of each kind, and all that a context knows."""

    last = hf.ValueState(pa.int64())
    amounts = hf.ListState(pa.int64())
    counts = hf.MapState(pa.int64(), pa.int64())
    total = hf.ReducingState(pa.int64(), "sum")
    longest = hf.ReducingState(pa.int64(), max)
    mean = hf.AggregatingState(pa.int64(), "avg")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for amount in rows["amount"].to_pylist():
            self.last.update(amount)
            self.amounts.add(amount)
            self.counts[amount] = (self.counts.get(amount) or 0) + 1
            for state in (self.total, self.longest, self.mean):
                state.add(amount)
        yield {"batch": ctx.batch_id, "at": ctx.timestamp, "mark": ctx.watermark_ms, "chance": ctx.random.random()}


def running(**options: Any) -> Harness:
    return Harness(RunningTotal(), "user", IN, OUT, **options)


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"user": user, "amount": amount} for user, amount in pairs]


@pytest.fixture(params=["rocksdb", "hashmap"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


def test_rows_in_output_out_and_states_in_between(backend: Backend) -> None:
    with running(backend=backend) as harness:
        assert harness.state("total") == {}
        out = harness.process(rows(("ada", 1), ("bob", 2)), rows(("ada", 3)))
        assert out["total"].to_pylist() == [1, 2, 4]
        assert harness.metrics.counters == {"rows": 3}
        assert harness.process(rows(("ada", 10)))["total"].to_pylist() == [14]
        assert harness.state("total") == {"ada": 14, "bob": 2}
        assert harness.state("total", "bob") == 2
        assert harness.state("total", "eve") is None
        before = harness.snapshot()
        assert harness.process().num_rows == 0
        assert harness.process([]).num_rows == 0
        assert harness.snapshot().handle == before.handle, "Spark runs no slot that has no rows"
        assert (harness.metrics.slots, harness.metrics.counters) == (0, {})


def test_every_kind_of_state_is_read(backend: Backend) -> None:
    schema = pa.schema(
        [("batch", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("mark", pa.int64()), ("chance", pa.float64())]
    )
    with Harness(Everything(), ["user"], IN, schema, backend=backend) as harness:
        harness.process(rows(("ada", 5), ("ada", 5), ("bob", 1)))
        found = {name: harness.state(name, "ada") for name in ("last", "amounts", "counts", "total", "longest", "mean")}
        assert found == {"last": 5, "amounts": [5, 5], "counts": {5: 2}, "total": 10, "longest": 5, "mean": 5.0}
        assert harness.state("counts") == {"ada": {5: 2}, "bob": {1: 1}}
        assert harness.state("amounts", "eve") == []


def test_an_empty_list_is_a_value_of_a_value_state_and_no_list_of_a_list_state() -> None:
    class Empties(hf.BatchProcessor):
        value = hf.ValueState(pa.list_(pa.int64()))
        elements = hf.ListState(pa.int64())

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.value.put(batch, [[]])
            self.elements.update(batch, [[]])

    with Harness(Empties(), "user", IN, OUT) as harness:
        harness.process(rows(("ada", 1)))
        assert (harness.state("value"), harness.state("elements")) == ({"ada": []}, {})


def test_time_is_moved_by_hand_and_never_back() -> None:
    schema = "batch long, at timestamp, mark long, chance double"
    with Harness(Everything(), "user", IN, schema) as harness:
        first = harness.process(rows(("ada", 1))).to_pylist()[0]
        assert (first["batch"], first["mark"]) == (0, None)
        harness.advance(60_000)
        harness.watermark_ms = 5
        second = harness.process(rows(("ada", 1))).to_pylist()[0]
        assert (second["batch"], second["mark"], (second["at"] - first["at"]).total_seconds()) == (1, 5, 60.0)
        assert second["chance"] != first["chance"]
        with pytest.raises(hf.InvalidRequest, match="cannot go back to 4"):
            harness.watermark_ms = 4
        with pytest.raises(hf.InvalidRequest, match="cannot go back"):
            harness.timestamp_ms -= 1


def test_a_replay_starts_from_the_version_before_and_gives_the_same(backend: Backend) -> None:
    schema = "batch long, at timestamp, mark long, chance double"
    with Harness(Everything(), "user", IN, schema, backend=backend) as harness:
        with pytest.raises(hf.InvalidRequest, match="no batch to replay"):
            harness.replay()
        harness.process(rows(("ada", 1)))
        harness.advance(1)
        out = harness.process(rows(("ada", 2)))
        harness.advance(5)
        now = harness.timestamp_ms
        for _ in range(3):
            assert harness.replay() == out
            assert harness.timestamp_ms == now
            assert harness.state("amounts", "ada") == [1, 2]
        assert harness.process(rows(("ada", 3)))["batch"].to_pylist() == [2]


@pytest.mark.parametrize("lose", [False, True])
def test_a_kill_costs_nothing_that_was_committed(backend: Backend, lose: bool) -> None:
    with running(backend=backend, settings={"fold.deltas.max": 2, "snapshot.deltas.max": 3}) as harness:
        for number in range(1, 13):
            assert harness.process(rows(("ada", 1), ("bob", 2)))["total"].to_pylist() == [number, 2 * number]
            harness.kill(lose_local_copies=lose)
        assert harness.state("total") == {"ada": 12, "bob": 24}


def test_a_snapshot_is_gone_back_to_and_on_from(backend: Backend) -> None:
    with running(backend=backend) as harness:
        harness.process(rows(("ada", 1)))
        taken = harness.snapshot()
        for _ in range(5):
            harness.advance(1)
            harness.process(rows(("ada", 1), ("new", 1)))
        later = harness.snapshot()
        harness.restore(taken)
        assert harness.state("total") == {"ada": 1}
        assert harness.timestamp_ms == taken.timestamp_ms
        assert harness.process(rows(("ada", 10)))["total"].to_pylist() == [11]
        harness.restore(later)
        assert harness.state("total") == {"ada": 6, "new": 5}
        with pytest.raises(hf.InvalidRequest, match="no batch to replay"):
            harness.replay()


def test_a_batch_that_fails_leaves_no_trace(backend: Backend) -> None:
    class Fails(RunningTotal):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            yield from super().process(batch, ctx)
            if "bob" in batch["user"].to_pylist():
                raise ValueError("no bobs")

    with Harness(Fails(), "user", IN, OUT, backend=backend) as harness:
        harness.process(rows(("ada", 1)))
        before = harness.snapshot()
        with pytest.raises(ValueError, match="no bobs"):
            harness.process(rows(("ada", 5), ("bob", 1)))
        assert harness.snapshot() == before
        assert harness.state("total") == {"ada": 1}
        assert harness.process(rows(("ada", 1)))["total"].to_pylist() == [2]


class Reminders(hf.KeyedProcessor):
    alarm = hf.Timers("processing")
    fired = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        for at in rows["at"].to_pylist():
            self.alarm.register(dt.datetime.fromtimestamp(at, dt.timezone.utc), str(at))
        return None

    def on_timer(self, key: Any, time: Any, namespace: str, ctx: Any) -> Any:
        self.fired.add(1)
        yield key[0], int(namespace), self.fired.get()


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_timers_fire_when_time_is_moved_and_again_in_a_replay(backend: Backend) -> None:
    schema = "user string, at long"
    with Harness(Reminders(), "user", schema, "user string, at long, nth long", backend=backend) as harness:
        start = harness.timestamp_ms // 1000
        harness.process([{"user": "ada", "at": start + 10}, {"user": "bob", "at": start + 5}])
        before = harness.snapshot()
        assert harness.process().num_rows == 0
        assert harness.snapshot().handle == before.handle  # a slot that has nothing to do makes no version
        harness.advance(7_000)
        due = [{"user": "bob", "at": start + 5, "nth": 1}]
        assert harness.process().to_pylist() == due
        assert harness.replay().to_pylist() == due
        harness.kill()
        assert list(harness.state("alarm")) == ["ada"]
        harness.advance(60_000)
        assert harness.process().to_pylist() == [{"user": "ada", "at": start + 10, "nth": 1}]
        assert harness.state("alarm") == {}


class Broadcast:
    """One of Spark's: where it has arrived it is pickled no more."""

    def __reduce__(self) -> Any:
        raise RuntimeError("Broadcast can only be serialized in driver")


def test_a_copy_of_a_processor_is_one_whole() -> None:
    class Counting(hf.BatchProcessor):
        def __init__(self) -> None:
            self.broken = {"list": (one := [1]), "broadcast": Broadcast()}
            self.one, self.same = one, one
            self.again: Any = self.close

    before = Counting()
    after = fresh_copy(before)
    assert after.one is after.same and after.one is not before.one and after.one == [1]
    assert after.again.__self__ is after
    assert after.broken is before.broken


def test_a_processor_keeps_nothing_but_its_states() -> None:
    class Remembers(hf.BatchProcessor):
        def __init__(self) -> None:
            self.seen = 0
            self.arrow = pa  # pickled by its name, so a query takes it
            self.shared = Broadcast()

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            self.seen += batch.num_rows
            return {"user": "all", "amount": 0, "total": self.seen}

    with Harness(Remembers(), "user", IN, OUT) as harness:
        assert harness.process(rows(("ada", 1)), rows(("bob", 1)))["total"].to_pylist() == [1, 2]
        assert harness.process(rows(("ada", 1)))["total"].to_pylist() == [1], "a query has a fresh copy too"


def test_a_restart_with_another_processor() -> None:
    class Doubled(RunningTotal):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            yield batch.append_column("total", pa.compute.multiply(self.total.add(batch, batch["amount"]), 2))

    class Other(RunningTotal):
        total = hf.ReducingState(pa.int64(), "max")

    with running() as harness:
        harness.process(rows(("ada", 1)))
        harness.restart(Doubled())
        assert harness.process(rows(("ada", 1)))["total"].to_pylist() == [4]
        with pytest.raises(hf.Incompatible, match="recorded .*sum.* declared .*max"):
            harness.restart(Other())
        harness.restart()
        assert harness.process(rows(("ada", 1)))["total"].to_pylist() == [6], "and goes on with the one before"


def test_several_key_columns_and_null_keys() -> None:
    with Harness(
        RunningTotal(), ["user", "shop"], f"{IN}, shop int", f"{IN}, shop int, total long", null_keys=True
    ) as harness:
        given = [{"user": "ada", "amount": 1, "shop": 1}, {"user": None, "amount": 2, "shop": 2}]
        harness.process(given)
        assert harness.state("total") == {("ada", 1): 1, (None, 2): 2}
        assert harness.state("total", "ada", 1) == 1
        with pytest.raises(hf.InvalidRequest, match="the key columns are user, shop"):
            harness.state("total", "ada")


def test_a_key_that_is_a_struct() -> None:
    given = [{"shop": {"city": "Ulm", "at": {"x": 1}}, "amount": 5}]
    schema = "shop struct<city: string, at: struct<x: int>>, amount long"
    with Harness(RunningTotal(), "shop", schema, f"{schema}, total long") as harness:
        harness.process(given, given)
        assert harness.state("total") == {("Ulm", (1,)): 10}
        for key in (("Ulm", (1,)), {"city": "Ulm", "at": {"x": 1}}):
            assert harness.state("total", key) == 10


def test_rows_of_all_forms_and_those_that_are_none() -> None:
    import pandas as pd

    with running() as harness:
        given = rows(("ada", 1))
        for form in (given, pa.Table.from_pylist(given), pa.RecordBatch.from_pylist(given), pd.DataFrame(given)):
            harness.process(form)
        assert harness.state("total", "ada") == 4
        for wrong, told in (
            ([{"user": "ada"}], "expected the columns user, amount, found user"),
            ([{"user": "ada", "amount": "1"}], "column 'amount'"),
            ("ada", "expected a list of dicts"),
            (pa.table({"amount": [1]}), "the columns are"),
        ):
            with pytest.raises(hf.InvalidRequest, match=told):
                harness.process(wrong)
        with pytest.raises(hf.InvalidRequest, match="null"):
            harness.process([{"user": None, "amount": 1}])
        assert harness.state("total") == {"ada": 4}


def test_what_is_wrong_is_told_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for options, told in (
        ({"key": "usr"}, "key column 'usr' is not in the input, which has user, amount"),
        ({"processor": RunningTotal}, r"a class needs its \(\)"),
        ({"processor": hf.BatchProcessor()}, r"BatchProcessor lacks the method process\(self, batch, ctx\)"),
        ({"settings": {"slotz": 1}}, "nearest is"),
        ({"backend": "heap"}, "not one of rocksdb, hashmap"),
        ({"output_schema": "user strin"}, "found 'strin'"),
    ):
        given: dict[str, Any] = {"processor": RunningTotal(), "key": "user", "input_schema": IN, "output_schema": OUT}
        with pytest.raises(hf.InvalidRequest, match=told):
            Harness(**{**given, **options})
    assert not os.listdir(tmp_path), "and leaves nothing"
    with running() as harness, pytest.raises(hf.InvalidRequest, match="no state 'sum'; it has total"):
        harness.state("sum")


def test_a_folder_of_ones_own_stays(tmp_path: Any) -> None:
    with running(folder=tmp_path) as harness:
        harness.process(rows(("ada", 1)))
        assert harness._own_folder is None
    assert os.listdir(tmp_path / "state")
    harness = running()
    folder = harness._folder
    harness.close()
    assert not os.path.exists(folder)


SCHEMAS = [
    "user string, total long",
    "a: int, b: array<map<string, decimal(9, 2)>>, c: struct<x: double, `y z`: timestamp>",
    "a BIGINT NOT NULL, b decimal, c decimal(5), d timestamp_ntz, e date, f binary, g boolean, h tinyint, i smallint",
    "`odd ``name` float, s struct<a:int,b:string>",
]


@pytest.mark.parametrize("text", ["", "user", "user string,", "user string total long", "a array<int", "a map<int>"])
def test_a_text_that_is_no_schema(text: str) -> None:
    with pytest.raises(hf.InvalidRequest, match="is not a schema such as"):
        schema_of(text, "input")


@pytest.mark.spark
def test_a_schemas_text_is_read_as_spark_reads_it(spark: Any) -> None:
    from pyspark.sql import types

    for text in SCHEMAS:
        assert schema_of(text, "input") == schema_of(types.StructType.fromDDL(text), "input"), text


# --- time to live
TTL_MS = 60_000


class Short(hf.KeyedProcessor):
    """A state of each kind that lives for a minute, and one that stays. A key with the amount 0 only looks."""

    last = hf.ValueState(pa.int64(), ttl="1 min")
    amounts = hf.ListState(pa.int64(), ttl="1 min")
    counts = hf.MapState(pa.int64(), pa.int64(), ttl="1 min")
    total = hf.ReducingState(pa.int64(), "sum", ttl="1 min")
    longest = hf.ReducingState(pa.int64(), max, ttl="1 min")
    mean = hf.AggregatingState(pa.int64(), "avg", ttl="1 min")
    kept = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        yield {"user": key[0], "before": self.total.get()}
        for amount in rows["amount"].to_pylist():
            if amount:
                self.last.update(amount)
                self.amounts.add(amount)
                self.counts[amount] = amount
                for state in (self.total, self.longest, self.mean, self.kept):
                    state.add(amount)


SHORT_LIVED = {"last": 5, "amounts": [5], "counts": {5: 5}, "total": 5, "longest": 5, "mean": 5.0}
GONE: dict[str, Any] = {"last": None, "amounts": [], "counts": {}, "total": None, "longest": None, "mean": None}


def states_of(harness: Harness, user: str) -> dict[str, Any]:
    return {name: harness.state(name, user) for name in SHORT_LIVED}


@pytest.mark.parametrize("killed", [False, True])
def test_states_of_each_kind_expire(backend: Backend, killed: bool) -> None:
    with Harness(Short(), "user", IN, "user string, before long", backend=backend) as harness:
        harness.process(rows(("ada", 5)))
        harness.advance(TTL_MS - 1)
        harness.process(rows(("bob", 7)))
        assert states_of(harness, "ada") == SHORT_LIVED
        harness.advance(1)
        assert states_of(harness, "ada") == SHORT_LIVED, "no batch had that time yet"
        harness.process(rows(("eve", 0)))
        if killed:
            harness.kill(lose_local_copies=True)
        assert states_of(harness, "ada") == GONE
        assert harness.state("total") == {"bob": 7}
        assert harness.state("kept") == {"ada": 5, "bob": 7}
        out = harness.process(rows(("ada", 1), ("bob", 1)))
        assert {row["user"]: row["before"] for row in out.to_pylist()} == {"ada": None, "bob": 7}
        assert harness.state("total") == {"ada": 1, "bob": 8}
        assert harness.replay() == out


def test_what_expired_is_back_in_a_version_from_before(backend: Backend) -> None:
    with Harness(Short(), "user", IN, "user string, before long", backend=backend) as harness:
        harness.process(rows(("ada", 5)))
        taken = harness.snapshot()
        harness.advance(TTL_MS)
        harness.process(rows(("bob", 7)))
        assert states_of(harness, "ada") == GONE
        harness.restore(taken)
        assert states_of(harness, "ada") == SHORT_LIVED


WRONG, LATE = hf.SideOutput("wrong", "user string, why string"), hf.SideOutput("late")


class Refusing(RunningTotal):
    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        for row in batch.to_pylist():
            if row["amount"] < 0:
                ctx.output(WRONG, {"user": row["user"], "why": "below 0"})
        good = batch.select(["user", "amount"]).filter(pa.compute.greater_equal(batch["amount"], 0))
        yield from super().process(good, ctx)


def test_side_outputs_and_late_rows_are_those_of_the_last_batch() -> None:
    timed = IN + ", at timestamp"
    with Harness(Refusing(), "user", timed, OUT, side_outputs=[WRONG], event_time="at", late=LATE) as h:
        rows = [
            {"user": "ada", "amount": amount, "at": datetime.fromtimestamp(9 + amount, UTC)} for amount in (1, -2, 3)
        ]
        assert h.process(rows)["total"].to_pylist() == [1, 4]
        assert h.side_output(WRONG).to_pylist() == [{"user": "ada", "why": "below 0"}]
        assert h.side_output(LATE).num_rows == 0
        h.watermark_ms = 10_000
        assert h.process(rows)["total"].to_pylist() == [7]
        assert h.side_output(LATE).to_pylist() == [rows[0], rows[1]]
        assert h.side_output(WRONG).num_rows == 0
        assert h.metrics.late_rows_aside == 2
        assert h.metrics.counters == {"rows": 1}
        assert h.replay()["total"].to_pylist() == [7]
        assert h.side_output(LATE).to_pylist() == [rows[0], rows[1]]
        with pytest.raises(hf.InvalidRequest, match="is none; there are wrong, late"):
            h.side_output(hf.SideOutput("other"))


def test_late_rows_without_a_time_to_tell_them_are_refused() -> None:
    with pytest.raises(hf.InvalidRequest, match="late rows are told by event_time="):
        running(late="drop")
    with pytest.raises(hf.InvalidRequest, match="event_time is 'amount'; expected a timestamp column"):
        running(late="drop", event_time="amount")


def test_late_rows_of_other_columns_than_the_inputs_are_refused_as_a_query_refuses_them() -> None:
    timed = IN + ", at timestamp"
    for schema, told in ((IN, "late rows have the input's columns"), ("user strin", "found 'strin'")):
        with pytest.raises(hf.InvalidRequest, match=told):
            Harness(RunningTotal(), "user", timed, OUT, event_time="at", late=hf.SideOutput("late", schema))
    with Harness(Refusing(), "user", timed, OUT, event_time="at", late=hf.SideOutput("late", timed)) as harness:
        assert harness.side_output(hf.SideOutput("late")).num_rows == 0


# --- several inputs
class Match(hf.BatchProcessor):
    """Payments with their order; those without one go aside, and an order is told when its time is over."""

    amount = hf.ValueState(pa.int64())
    due = hf.Timers("event")

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.amount.put(batch, batch["amount"])
        self.due.register(batch, batch["at"])

    def process_payments(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for order, amount in zip(batch["order"].to_pylist(), self.amount.get(batch).to_pylist()):
            if amount is None:
                ctx.output(WRONG, {"user": str(order), "why": "no order"})
            else:
                yield {"id": order, "amount": amount}

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for order in batch["id"].to_pylist():
            yield {"id": order, "amount": None}


ORDERS = {"orders": "id long, amount long, at timestamp", "payments": "order long"}
KEYS = {"orders": "id", "payments": "order"}


def order(number: int, amount: int, second: int) -> dict[str, Any]:
    return {"id": number, "amount": amount, "at": datetime.fromtimestamp(second, UTC)}


def test_inputs_by_name_come_in_their_order(backend: Backend) -> None:
    given: dict[str, Any] = {"event_time": {"orders": "at"}, "late": {"orders": LATE}, "side_outputs": [WRONG]}
    with Harness(Match(), KEYS, ORDERS, "id long, amount long", backend=backend, **given) as h:
        out = h.process(payments=[{"order": 1}, {"order": 2}], orders=[order(1, 10, 50)])
        assert out.to_pylist() == [{"id": 1, "amount": 10}]
        assert h.side_output(WRONG).to_pylist() == [{"user": "2", "why": "no order"}]
        assert h.state("amount") == {1: 10}
        assert h.process(payments=[{"order": 3}]).num_rows == 0
        h.watermark_ms = 50_000
        out = h.process(orders=[order(2, 20, 60), order(3, 30, 40)])
        assert out.to_pylist() == [{"id": 1, "amount": None}]
        assert h.side_output(LATE).to_pylist() == [order(3, 30, 40)]
        assert h.state("amount") == {1: 10, 2: 20}
        h.kill(lose_local_copies=True)
        assert h.replay() == out
        h.watermark_ms = 60_000
        assert h.process().to_pylist() == [{"id": 2, "amount": None}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": {"orders": "id"}}, "input 'payments': key names no key columns of it"),
        ({"key": {"orders": "at", "payments": "order"}}, "expected the same types"),
        ({"input_schema": {"orders": "id long"}}, "1 inputs; expected 2 to 16"),
        ({"late": {"payments": "drop"}}, "input 'payments': late rows are told by event_time="),
        ({"event_time": {"refunds": "at"}}, "event_time= names 'refunds'; the inputs are orders, payments"),
        ({"side_outputs": [hf.SideOutput("x")]}, "it takes the late rows of no input, so it needs a schema"),
        ({"processor": RunningTotal()}, "lacks the method process_orders"),
    ],
)
def test_wrong_inputs_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"processor": Match(), "key": KEYS, "input_schema": ORDERS, "output_schema": "id long, amount long"}
    with pytest.raises(hf.InvalidRequest, match=message):
        Harness(**{**given, **change})


def test_rows_for_no_input_are_refused() -> None:
    with Harness(Match(), KEYS, ORDERS, "id long, amount long", event_time={"orders": "at"}) as h:
        with pytest.raises(hf.InvalidRequest, match="rows for refunds; the inputs are orders, payments"):
            h.process(refunds=[])
        with pytest.raises(hf.InvalidRequest, match=r"rows that name no input.*process\(orders=rows\)"):
            h.process([])
    with running() as h, pytest.raises(hf.InvalidRequest, match=r"the only input has no name: process\(rows\)"):
        h.process(orders=[])
