"""Broadcast inputs in real Spark: rules that change while orders flow reach every slot whole, in one order, before the
orders of their batch, over restarts and replays.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import JUDGED, Judge, JudgeByKey
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
UTC = pa.timestamp("us", "UTC")
ORDERS = pa.schema(
    [("order_id", pa.int64()), ("user", pa.string()), ("rule", pa.string()), ("amount", pa.int64()), ("ts", UTC)]
)
RULES = pa.schema([("name", pa.string()), ("least", pa.int64())])
NAMES = ("a", "b", "c", "d")
BATCHES = 6


def orders(number: int, users: int = 20) -> pa.Table:
    chance = random.Random(number)
    found = [
        (number * 100 + i, f"user-{chance.randrange(users)}", chance.choice(NAMES), chance.randrange(9), None)
        for i in range(100)
    ]
    at = [START + timedelta(minutes=10 * number, seconds=i) for i in range(100)]
    return pa.Table.from_pylist([dict(zip(ORDERS.names, (*row[:-1], ts))) for row, ts in zip(found, at)], ORDERS)


def rules(number: int) -> pa.Table:
    """Some are set, some are set twice, some go; in every third batch there are none."""
    chance = random.Random(1000 + number)
    count = 0 if number % 3 == 2 else 6
    found = [(chance.choice(NAMES), None if chance.random() < 0.3 else chance.randrange(100)) for _ in range(count)]
    return pa.Table.from_pylist([dict(zip(RULES.names, row)) for row in found], RULES)


def expected(batches: int) -> list[tuple[Any, ...]]:
    """By plain Python: order, user, rule, total, rules heard, batch."""
    hold: dict[str, int] = {}
    totals: dict[str, int] = defaultdict(int)
    heard, found = 0, []
    for number in range(batches):
        for row in rules(number).to_pylist():
            heard += 1
            hold.pop(row["name"], None)
            if row["least"] is not None:
                hold[row["name"]] = row["least"]
        for row in orders(number).to_pylist():
            totals[row["user"]] += row["amount"]
            found.append((row["order_id"], row["user"], hold.get(row["rule"]), totals[row["user"]], heard, number))
    return found


class Shop:
    """A stream of orders and one of rules into one query, each a folder of files."""

    def __init__(self, streams: Callable[[str], FileStream], folder: Path) -> None:
        self.orders, self.rules = streams("orders"), streams("rules")
        self.folder = folder

    def write(self, *numbers: int) -> None:
        self.orders.write(*map(orders, numbers))
        self.rules.write(*map(rules, numbers))

    def frame(self, judge: Any, files_a_batch: int = 1, **options: Any) -> DataFrame:
        inputs = {"orders": self.orders.events(), "rules": hf.broadcast(self.rules.events(files_a_batch))}
        return hf.connect(
            **{
                "inputs": inputs,
                "key": "user",
                "processor": judge,
                "output_schema": JUDGED,
                "name": "judge",
                **options,
            }
        )

    def run(self, frame: DataFrame) -> None:
        hf.write_exactly_once(
            frame,
            hf.FileSink(str(self.folder / "out")),
            checkpoint=str(self.folder / "checkpoint"),
            trigger={"availableNow": True},
        ).awaitTermination()

    def take_back_the_last_commit(self) -> None:
        """As if killed behind the commit record: the batch runs again."""
        commits = self.folder / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)

    def found(self) -> tuple[list[tuple[Any, ...]], dict[int, set[tuple[int, str, int]]]]:
        """The orders; and by batch what each slot had once the rules were in: slot, rules, how many it heard."""
        rows = hf.FileSink.read(str(self.folder / "out")).to_pylist()
        judged = [row for row in rows if row["order_id"] >= 0]
        said: dict[int, set[tuple[int, str, int]]] = defaultdict(set)
        for row in rows:
            if row["order_id"] < 0:
                assert (row["slot"], row["user"], row["heard"]) not in said[row["batch"]], "a slot was called twice"
                said[row["batch"]].add((row["slot"], row["user"], row["heard"]))
        columns = ("order_id", "user", "least", "total", "heard", "batch")
        return sorted(tuple(row[name] for name in columns) for row in judged), dict(said)


@pytest.fixture
def shop(streams: Callable[[str], FileStream], tmp_path: Path) -> Shop:
    return Shop(streams, tmp_path)


@pytest.mark.parametrize("processor", [Judge, JudgeByKey])
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_rules_that_change_while_orders_flow_over_a_restart_and_a_replay(
    shop: Shop, processor: Any, backend: str
) -> None:
    settings = {"state.backend": backend, "fold.deltas.max": 2}
    shop.write(*range(3))
    shop.run(shop.frame(processor(), settings=settings))
    shop.take_back_the_last_commit()
    shop.write(*range(3, BATCHES))
    shop.run(shop.frame(processor(), settings=settings))
    found, said = shop.found()
    assert found == expected(BATCHES)
    assert set(said) == {number for number in range(BATCHES) if number % 3 < 2}


def test_all_slots_agree_from_the_first_rule_on_also_those_without_keys(shop: Shop) -> None:
    """Six slots and one key; the rules of a batch come in several partitions and contradict each other."""
    slots = 6
    for number in range(4):
        shop.orders.write(orders(number, users=1))
    shop.rules.write(*(rules(number) for number in range(16) if number % 3 != 2), *(rules(0),) * 5)
    files = sorted(map(str, shop.rules.source.glob("*.parquet")))
    assert shop.rules.spark.read.parquet(*files[:4]).rdd.getNumPartitions() > 1, "Spark reads a batch in one partition"
    frame = shop.frame(Judge(), files_a_batch=4, settings={"slots": slots})
    shop.run(frame)
    _, said = shop.found()
    assert len(said) >= 4
    for batch, told in said.items():
        assert {slot for slot, _, _ in told} == set(range(slots)), f"batch {batch}"
        assert len({(content, heard) for _, content, heard in told}) == 1, f"slots differ in batch {batch}: {told}"
    shop.take_back_the_last_commit()
    shop.orders.write(*(orders(number) for number in range(4, 8)))  # of many users: every slot shows what it has
    shop.run(shop.frame(Judge(), files_a_batch=4, settings={"slots": slots}))
    found, again = shop.found()
    assert again == said
    [content, heard] = {(content, heard) for _, content, heard in said[max(said)]}.pop()
    held = dict(ast.literal_eval(content))
    later = [row for row in found if row[0] >= 400]
    rule_of = {row["order_id"]: row["rule"] for number in range(4, 8) for row in orders(number).to_pylist()}
    assert [(least, told) for _, _, least, _, told, _ in later] == [(held.get(rule_of[row[0]]), heard) for row in later]


def test_a_broadcast_input_holds_back_no_watermark(shop: Shop) -> None:
    class Marks(hf.BatchProcessor):
        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            pass

        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> dict[str, Any]:
            given = {"order_id": ctx.watermark_ms, "user": "", "least": None, "total": None, "heard": 0}
            return {**given, "slot": ctx.slot, "batch": ctx.batch_id}

    shop.orders.write(*(orders(number) for number in range(3)))
    shop.rules.write(rules(0))  # and never again
    shop.run(shop.frame(Marks(), watermark={"orders": ("ts", "1 second")}, late="drop"))
    latest = [orders(number)["ts"].to_pylist()[-1] for number in range(2)]
    marks = {(row[5], row[0]) for row in shop.found()[0]}
    assert marks == {(0, 0), *((n + 1, int(ts.timestamp() * 1000) - 1000) for n, ts in enumerate(latest))}


def test_an_input_that_is_marked_stays_marked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unmarked(hf.BatchProcessor):
        heard = hf.OperatorState(pa.int64(), redistribution="split")
        total = hf.ReducingState(pa.int64(), "sum")

        def process_rules(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            pass

        process_orders = process_rules

    shop.write(0)
    shop.run(shop.frame(Unmarked()))
    monkeypatch.setattr(declared_operators, "_declared", {})  # as in a new program
    inputs = {"orders": shop.orders.events(), "rules": shop.rules.events()}
    changed = shop.frame(Unmarked(), inputs=inputs, key={"orders": "user", "rules": "name"})
    recorded = r"recorded orders \(user\), rules \(broadcast\), declared orders \(user\), rules \(name\)"
    with pytest.raises(hf.Incompatible, match=recorded):
        shop.run(changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": {"orders": "user", "rules": "name"}}, "key= names 'rules', which is broadcast"),
        ({"watermark": {"rules": ("ts", "1 minute")}}, "watermark= names 'rules', which is broadcast"),
        ({"late": {"rules": "drop"}}, "late= names 'rules', which is broadcast"),
        ({"watermark": ("ts", "1 minute")}, 'watermark is .*; expected {"orders": '),
        ({"key": {}}, "input 'orders': key= names no key columns of it; all inputs need them, but those marked"),
        ({"judge": hf.BatchProcessor()}, "lacks the method process_"),
    ],
)
def test_what_contradicts_itself_is_refused_on_the_driver(shop: Shop, change: dict[str, Any], message: str) -> None:
    shop.write(0)
    with pytest.raises(hf.InvalidRequest, match=message):
        shop.frame(**{"judge": Judge(), **change})


def test_broadcast_inputs_that_are_none_are_refused(shop: Shop) -> None:
    shop.write(0)
    events = shop.orders.events()
    rules_of_time = events.withWatermark("ts", "1 minute")
    for inputs, message in (
        ({"orders": events, "rules": hf.broadcast("rules")}, "expected DataFrames by name"),
        ({"orders": events, "rules": shop.rules.events()}, "mark this input in hf.connect: .*hf.broadcast.rules"),
        (
            {"orders": hf.broadcast(events), "rules": hf.broadcast(events)},
            r"all inputs are broadcast \(orders, rules\)",
        ),
        (
            {"orders": events, "rules": hf.broadcast(rules_of_time)},
            "input 'rules': the DataFrame has a watermark, which",
        ),
        ({"orders": events}, "1 inputs; expected 2 to 16"),
    ):
        with pytest.raises(hf.InvalidRequest, match=message):
            shop.frame(Judge(), inputs=inputs)
    fixed = shop.orders.spark.read.parquet(str(shop.rules.source))
    with pytest.raises(hf.InvalidRequest, match="input 'rules': the DataFrame does not stream"):
        shop.frame(Judge(), inputs={"orders": events, "rules": hf.broadcast(fixed)})
    with pytest.raises(hf.InvalidRequest, match="declares the broadcast state 'rules'.*mark the input in hf.connect"):
        hf.keyed("user", Judge(), JUDGED, name="judge")
