"""An operator with several inputs, late rows and side outputs against plain Python: any rows in any partitions, blobs
of any size in any order, attempts that are given up, processes and machines that are lost.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.model.connected_slots import Batch, ConnectedSlots, Limits, Rows

import holdfast as hf
from holdfast.state import MAIN, Input

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
UTC = pa.timestamp("us", "UTC")
#: The inputs by name: what the key column of each is called. Their columns stand in another order each.
KEYS = {"clicks": "user", "orders": "account", "refunds": "user"}
SCHEMAS = {
    "clicks": pa.schema([("user", pa.string()), ("v", pa.int64()), ("ts", UTC)]),
    "orders": pa.schema([("ts", UTC), ("v", pa.int64()), ("user", pa.int32()), ("account", pa.string())]),
    "refunds": pa.schema([("v", pa.int64()), ("ts", UTC), ("user", pa.string())]),
}
ASIDE, UNREAD = hf.SideOutput("aside"), hf.SideOutput("unread")
LATE = {name: hf.SideOutput(f"late_{name}") for name in KEYS}
#: Refunds that are late are dropped.
LATE_ROWS: dict[str, Any] = {**LATE, "refunds": "drop"}
INPUTS = {name: (Input(name, (KEYS[name],), "ts", LATE_ROWS[name]), SCHEMAS[name]) for name in KEYS}
OUTPUTS = {
    MAIN: pa.schema(
        [
            ("user", pa.string()),
            pa.field("source", pa.string(), False),
            ("v", pa.int64()),
            ("n", pa.int64()),
            ("before", pa.list_(pa.int64())),
        ]
    ),
    "aside": pa.schema([("user", pa.string()), ("source", pa.string()), ("v", pa.int64())]),
    "unread": pa.schema([("user", pa.string()), ("seen", pa.list_(pa.string()))]),
    "late_clicks": SCHEMAS["clicks"],
    "late_orders": SCHEMAS["orders"],
}


def judged(v: int | None) -> str:
    """What becomes of a row: those without a value are refused, multiples of three go aside, and neither counts."""
    return "unread" if v is None else "aside" if v % 3 == 0 else MAIN


class Trail(hf.BatchProcessor):
    """Each row with how many there were of its user, and the last values before it, whatever input they were in."""

    n = hf.ReducingState(pa.int64(), "sum")
    last = hf.ValueState(pa.list_(pa.int64()))

    def process_clicks(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("clicks", batch, ctx)

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("orders", batch, ctx)

    def process_refunds(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("refunds", batch, ctx)

    def _rows(self, source: str, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        for at, v in enumerate(batch["v"].to_pylist()):
            row = batch.slice(at, 1)
            user = row[KEYS[source]][0].as_py()
            if judged(v) == "unread":
                ctx.output(UNREAD, {"user": user, "seen": [source]})
            elif judged(v) == "aside":
                ctx.output(ASIDE, pa.record_batch([[user], [source], [v]], schema=OUTPUTS["aside"]))
            else:
                [before] = self.last.get(row).to_pylist()
                self.last.put(row, [[*(before or []), v][-3:]])
                [n] = self.n.add(row, [1]).to_pylist()
                yield user, source, v, n, before


class TrailByKey(hf.KeyedProcessor):
    """The same, a key at a time; one dict is all of its rows."""

    n = hf.ReducingState(pa.int64(), "sum")
    last = hf.ValueState(pa.list_(pa.int64()))

    def process_clicks(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("clicks", key, rows, ctx)

    def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("orders", key, rows, ctx)

    def process_refunds(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        return self._rows("refunds", key, rows, ctx)

    def _rows(self, source: str, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        row: dict[str, Any] = {"user": key[0], "source": source}
        refused: dict[str, Any] = {"user": key[0], "seen": []}
        for v in rows["v"].to_pylist():
            if judged(v) == "unread":
                refused["seen"].append(source)
                ctx.output(UNREAD, refused)
                refused["seen"].clear()
            elif judged(v) == "aside":
                ctx.output(ASIDE, [(key[0], source, v)])
            else:
                row["v"], row["before"] = v, self.last.value()
                self.last.update([*(row["before"] or []), v][-3:])
                self.n.add(1)
                row["n"] = self.n.get()
                yield row


class Oracle:
    """Plain Python: a user's rows one after the other."""

    def __init__(self) -> None:
        self._seen: dict[str | None, list[int]] = defaultdict(list)

    def expected(self, batch: Batch) -> Rows:
        found: Rows = {name: [] for name in OUTPUTS}
        for source in batch.order:
            for row in (row for part in batch.parts[source] for piece in part for row in piece.to_pylist()):
                user, v, ts = row[KEYS[source]], row["v"], row["ts"]
                if (
                    batch.watermark_ms
                    and ts is not None
                    and ts <= datetime.fromtimestamp(batch.watermark_ms // 1000, timezone.utc)
                ):
                    if source != "refunds":
                        found[f"late_{source}"].append(row)
                elif judged(v) == "unread":
                    found["unread"].append({"user": user, "seen": [source]})
                elif judged(v) == "aside":
                    found["aside"].append({"user": user, "source": source, "v": v})
                else:
                    seen = self._seen[user]
                    before = seen[-3:] or None
                    seen.append(v)
                    found[MAIN].append({"user": user, "source": source, "v": v, "n": len(seen), "before": before})
        return found


def by_user(rows: Rows) -> dict[tuple[str, str | None], list[dict[str, object]]]:
    """Between users there is no order."""
    found: dict[tuple[str, str | None], list[dict[str, object]]] = defaultdict(list)
    for output, all_of_it in rows.items():
        key = KEYS.get(output.removeprefix("late_"), "user")
        for row in all_of_it:
            found[output, row[key]].append(row)  # type: ignore[index]
    return dict(found)


users = st.sampled_from(["ada", "bob", "", "ß", None])
values = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63)]))
times = st.one_of(st.none(), st.integers(-5, 40).map(lambda second: START + timedelta(seconds=second)))


def pieces(name: str) -> st.SearchStrategy[pa.RecordBatch]:
    row = st.fixed_dictionaries(
        {
            column.name: users if column.name == KEYS[name] else {"v": values, "ts": times}.get(column.name, st.just(7))
            for column in SCHEMAS[name]
        }
    )
    return st.lists(row, max_size=6).map(lambda rows: pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[name]))


parts = st.fixed_dictionaries({name: st.lists(st.lists(pieces(name), max_size=2), max_size=2) for name in KEYS})
one_batch = st.tuples(
    parts,
    st.permutations(list(KEYS)),
    st.integers(0, 15),  # how far the watermark moves on, seconds
    st.integers(0, 99),
    st.sampled_from(["commit", "run twice", "kill", "lose"]),
)
limits = st.builds(
    Limits,
    pack=st.sampled_from([1, 1 << 20]),
    blob=st.sampled_from([600, 1 << 20]),
    spool=st.sampled_from([1, 1 << 20]),
)


@pytest.fixture(scope="module", autouse=True)
def small_calls() -> Iterator[None]:
    """A processor is called with few rows at once; and this process is no worker of Spark's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("holdfast.spark.slots._CALL_ROWS", 4)
        patched.setattr("holdfast.spark.output.prepare_worker_process", lambda: None)
        yield


@pytest.mark.parametrize("processor", [Trail, TrailByKey])
@settings(max_examples=examples(25))
@given(st.lists(one_batch, min_size=1, max_size=5), limits, st.sampled_from(["rocksdb", "hashmap"]))
def test_rows_of_several_inputs_are_what_plain_python_makes_of_them(
    processor: Any, batches: list[Any], sizes: Limits, backend: str
) -> None:
    oracle, watermark_ms = Oracle(), 0
    with tempfile.TemporaryDirectory(prefix="holdfast-connect-", ignore_cleanup_errors=True) as folder:
        slots = ConnectedSlots(Path(folder), processor(), INPUTS, OUTPUTS, sizes, backend)
        try:
            for given_parts, order, moves_s, shuffle, happens in batches:
                start_ms = int(START.timestamp() * 1000)
                watermark_ms += moves_s * 1000
                batch = Batch(given_parts, order, start_ms + watermark_ms if watermark_ms else 0, shuffle)
                expected = by_user(oracle.expected(batch))
                found, handles = slots.run(batch)
                assert by_user(found) == expected
                if happens == "commit":
                    slots.commit(handles)
                    continue
                # Spark had not committed the batch: all of it runs again, from the versions before it.
                if happens in ("kill", "lose"):
                    slots.kill(lose_local_copies=happens == "lose")
                found, handles = slots.run(batch)
                assert by_user(found) == expected
                slots.commit(handles)
        finally:
            slots.close()
