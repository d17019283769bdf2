"""Several inputs in real Spark: rows of a key meet in its slot, in an order that a replay repeats, with a watermark
that is the earliest of the inputs'.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import MATCHED, Match, MatchByKey
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BATCHES = 4
UTC = pa.timestamp("us", "UTC")
ORDERS = pa.schema([("order_id", pa.int64()), ("amount", pa.int64()), ("ts", UTC)])
PAYMENTS = pa.schema([("paid", pa.int64()), ("order", pa.int64()), ("at", UTC)])
LATE_ORDERS, LATE_PAYMENTS = hf.SideOutput("late_orders"), hf.SideOutput("late_payments")


def orders(number: int) -> pa.Table:
    ids = range(number * 100, number * 100 + 100)
    times = [START + timedelta(minutes=10 * number, seconds=i) for i in range(100)]
    return pa.table([list(ids), [7 * i for i in ids], times], schema=ORDERS)


def payments(number: int) -> pa.Table:
    """For orders of this batch and of those before, some before the order has come."""
    chance = random.Random(number)
    found: list[dict[str, Any]] = [
        {"paid": chance.randrange(1, 50), "order": chance.randrange(number * 100 + 150), "at": None} for _ in range(150)
    ]
    for second, row in enumerate(found):
        row["at"] = START + timedelta(minutes=10 * number - 30, seconds=second)
    return pa.Table.from_pylist(found, schema=PAYMENTS)


def expected(batches: int, payments_first_from: int = BATCHES) -> list[tuple[Any, ...]]:
    """By plain Python."""
    amounts: dict[int, int] = {}
    paid: dict[int, int] = defaultdict(int)
    found = []
    for number in range(batches):
        known = dict(amounts)
        amounts |= {row["order_id"]: row["amount"] for row in orders(number).to_pylist()}
        if number < payments_first_from:
            known = amounts
        for row in payments(number).to_pylist():
            paid[row["order"]] += row["paid"]
            found.append((row["order"], known.get(row["order"]), paid[row["order"]], number))
    return sorted(found, key=str)


class Two:
    """Two streams of files into one query."""

    def __init__(self, streams: Callable[[str], FileStream], folder: Path) -> None:
        self.orders, self.payments = streams("orders"), streams("payments")
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"

    def write(self, *numbers: int) -> None:
        self.orders.write(*map(orders, numbers))
        self.payments.write(*map(payments, numbers))

    def frame(self, processor: Any, **options: Any) -> DataFrame:
        key = {"orders": "order_id", "payments": "order"}
        inputs = {"orders": self.orders.events(), "payments": self.payments.events()}
        return hf.connect(inputs, key, processor, MATCHED, **{"name": "match", **options})

    def run(self, frame: DataFrame, sinks: Any = None) -> None:
        given: dict[str, Any] = {"checkpoint": self.checkpoint, "trigger": {"availableNow": True}}
        hf.write_exactly_once(frame, sinks or hf.FileSink(str(self.out)), **given).awaitTermination()

    def found(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in hf.FileSink.read(str(self.out)).to_pylist()), key=str)


@pytest.fixture
def two(streams: Callable[[str], FileStream], tmp_path: Path) -> Two:
    return Two(streams, tmp_path)


@pytest.mark.parametrize("processor", [Match, MatchByKey])
def test_rows_of_a_key_meet_over_restarts_and_replays(two: Two, processor: Any) -> None:
    two.write(0, 1)
    two.run(two.frame(processor()))
    assert two.found() == expected(2)
    newest = max(int(path.name) for path in (two.checkpoint / "commits").iterdir() if path.name.isdigit())
    (two.checkpoint / "commits" / str(newest)).unlink()  # killed after the commit record: the batch runs again
    (two.checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    two.write(2, 3)
    two.run(two.frame(processor()))
    assert two.found() == expected(4)


def test_a_task_that_fails_and_is_tried_again_sees_the_same(two: Two, tmp_path: Path) -> None:
    two.write(*range(BATCHES))
    two.run(two.frame(Match(str(tmp_path / "failed"))))
    assert (tmp_path / "failed").exists()
    assert two.found() == expected(BATCHES)


def test_the_watermark_is_the_earliest_of_the_inputs_and_late_rows_are_each_inputs_own(two: Two) -> None:
    """Payments happen 30 minutes before the orders of their batch: by the orders' watermark all of them were late."""
    two.write(*range(BATCHES))
    marks = {"orders": ("ts", "1 second"), "payments": ("at", "1 second")}
    late = {"orders": LATE_ORDERS, "payments": LATE_PAYMENTS}
    frame = two.frame(Match(), watermark=marks, late=late)
    paths = {tag: f"{two.out}-{tag.name}" for tag in (LATE_ORDERS, LATE_PAYMENTS)}
    sinks: dict[hf.SideOutput | None, hf.FileSink] = {None: hf.FileSink(str(two.out))}
    sinks.update((tag, hf.FileSink(path, name=tag.name)) for tag, path in paths.items())
    two.run(frame, sinks)
    assert two.found() == expected(BATCHES)
    assert not any(list(Path(path).glob("*.parquet")) for path in paths.values())
    two.payments.write(payments(0))  # of long ago by now
    two.orders.write(orders(9))
    two.run(two.frame(Match(), watermark=marks, late=late), sinks)
    assert two.found() == expected(BATCHES)
    assert not list(Path(paths[LATE_ORDERS]).glob("*.parquet"))
    found = hf.FileSink.read(paths[LATE_PAYMENTS]).to_pylist()
    assert sorted(found, key=str) == sorted(payments(0).to_pylist(), key=str)


@pytest.mark.parametrize("marked", ["orders", "payments"])
def test_the_watermark_of_one_input_holds_for_the_operator(two: Two, marked: str) -> None:
    """Of a union Spark knows the first input's columns: with the watermark on the second there was none."""

    class Marks(hf.BatchProcessor):
        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> dict[str, Any]:
            return {"order_id": ctx.watermark_ms, "amount": 0, "paid": 0, "batch": ctx.batch_id}

        process_payments = process_orders

    two.write(0, 1)
    watermark = {"orders": ("ts", "1 second"), "payments": ("at", "1 second")}[marked]
    two.run(two.frame(Marks(), watermark={marked: watermark}))
    seen = {(batch, mark) for mark, _, _, batch in two.found()}
    latest = (orders(0)["ts"] if marked == "orders" else payments(0)["at"]).to_pylist()[-1]
    assert seen == {(0, 0), (1, int(latest.timestamp() * 1000) - 1000)}


def test_an_input_that_falls_silent_holds_back_the_watermark(two: Two) -> None:
    class Marks(hf.BatchProcessor):
        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> dict[str, Any]:
            return {"order_id": ctx.watermark_ms, "amount": 0, "paid": 0, "batch": ctx.batch_id}

        process_payments = process_orders

    two.write(0, 1)
    two.orders.write(orders(2), orders(3))  # in batches without payments
    two.run(two.frame(Marks(), watermark={"orders": ("ts", "1 second"), "payments": ("at", "1 second")}))
    seen = {(batch, mark) for mark, _, _, batch in two.found()}
    first, second = (int(payments(number)["at"].to_pylist()[-1].timestamp() * 1000) - 1000 for number in (0, 1))
    assert seen == {(0, 0), (1, first), (2, second), (3, second)}
    # Over a restart Spark knows the earliest only, not how far each was: orders are ahead, and hold it nevertheless.
    two.payments.write(payments(4), payments(5))
    two.run(two.frame(Marks(), watermark={"orders": ("ts", "1 second"), "payments": ("at", "1 second")}))
    assert {(batch, mark) for mark, _, _, batch in two.found()} - seen == {(4, second), (5, second)}


def test_inputs_in_another_order_go_on_where_they_were(two: Two) -> None:
    """Spark tells sources apart by their place in the plan: each would have gone on with the other's offsets."""
    two.write(0, 1)
    two.run(two.frame(Match()))
    two.write(2, 3)
    key = {"orders": "order_id", "payments": "order"}
    turned = {"payments": two.payments.events(), "orders": two.orders.events()}

    two.run(hf.connect(turned, key, Match(), MATCHED, name="match"))
    assert two.found() == expected(4, payments_first_from=2)


@pytest.mark.parametrize(
    ("names", "key", "declared"),
    [
        (("zz", "payments"), "order", r"payments \(order\), zz \(order_id\)"),
        (("orders", "payments"), "paid", r"orders \(order_id\), payments \(paid\)"),
    ],
    ids=["renamed", "other key"],
)
def test_another_name_or_key_of_an_input_is_refused(
    two: Two, names: Any, key: str, declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the new names each source would have gone on where the other was: rows lost, rows twice."""
    two.write(0)
    two.run(two.frame(Match()))
    processor = Match()
    processor.process_zz = processor.process_orders  # type: ignore[attr-defined]
    monkeypatch.setattr(declared_operators, "_declared", {})  # as in a new program
    inputs = dict(zip(names, (two.orders.events(), two.payments.events())))
    changed = hf.connect(inputs, dict(zip(names, ("order_id", key))), processor, MATCHED, name="match")
    recorded = r"recorded orders \(order_id\), payments \(order\)"
    with pytest.raises(hf.Incompatible, match=f"{recorded}, declared {declared}"):
        two.run(changed)


def test_one_input_without_rows(two: Two) -> None:
    two.orders.write(*map(orders, range(2)))
    two.payments.write(payments(0), payments(0).slice(0, 0))
    two.run(two.frame(Match()))
    assert two.found() == expected(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": {"orders": "order_id"}}, "input 'payments': key= names no key columns of it"),
        ({"key": {"orders": "order_id", "payments": "order", "refunds": "id"}}, "key= names 'refunds'; the inputs are"),
        ({"key": "order_id"}, "key column 'order_id' is not in the input, which has paid, order, at"),
        (
            {"key": {"orders": "order_id", "payments": "at"}},
            r"input 'payments' is \(at: timestamp.*expected the same types",
        ),
        ({"watermark": ("ts", "1 minute")}, 'watermark is .*; expected {"orders": '),
        ({"watermark": {"payment": ("at", "1 minute")}}, "watermark= names 'payment'"),
        ({"watermark": {"payments": "at"}}, "input 'payments': watermark is 'at'"),
        ({"late": "drop", "watermark": {"orders": ("ts", "1 minute")}}, "input 'payments': late rows are told by"),
        ({"late": {"orders": "ignore"}}, "input 'orders': late is 'ignore'"),
        (
            {"side_outputs": [hf.SideOutput("x")]},
            "side output 'x': it takes the late rows of no input, so it needs a schema",
        ),
        ({"processor": hf.BatchProcessor()}, "BatchProcessor lacks the method process_orders"),
        ({"settings": {"slotz": 4}}, r"'slotz' in settings= .*nearest is 'spark\.holdfast\.slots'"),
    ],
)
def test_what_contradicts_itself_is_refused_on_the_driver(two: Two, change: dict[str, Any], message: str) -> None:
    two.write(0)
    inputs = {"orders": two.orders.events(), "payments": two.payments.events()}
    given = {
        "key": {"orders": "order_id", "payments": "order"},
        "processor": Match(),
        "output_schema": MATCHED,
        "name": "match",
        **change,
    }
    with pytest.raises(hf.InvalidRequest, match=message):
        hf.connect(inputs, **given)


def test_inputs_that_are_none_are_refused(two: Two, spark: SparkSession) -> None:
    two.write(0)
    events = two.orders.events()
    for inputs, message in (
        ([events, events], "expected DataFrames by name"),
        ({"a": events, "b": "events"}, "expected DataFrames by name"),
        ({"a": events}, "1 inputs; expected 2 to 16"),
        ({"a": events, "two words": events}, "an input is named 'two words'; expected a Python identifier"),
    ):
        with pytest.raises(hf.InvalidRequest, match=message):
            hf.connect(inputs, "order_id", Match(), MATCHED, name="match")  # type: ignore[arg-type]
    fixed = spark.read.parquet(str(two.orders.source))
    with pytest.raises(hf.InvalidRequest, match="input 'payments': the DataFrame does not stream"):
        hf.connect({"orders": events, "payments": fixed}, "order_id", Match(), MATCHED, name="match")
