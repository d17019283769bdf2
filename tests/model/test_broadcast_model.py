"""Broadcast states and operator states against plain Python: any rules in any partitions beside any rows, blobs of any
size in any order, attempts that are given up, processes and machines that are lost. More slots than keys.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
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

LABELS = (71, 72, 73, 74)
SCHEMAS = {
    "asked": pa.schema([("user", pa.string()), ("name", pa.string()), ("v", pa.int64())]),
    "rules": pa.schema([("does", pa.string()), ("name", pa.string()), ("v", pa.int64())]),
}
INPUTS = {
    "asked": (Input("asked", ("user",)), SCHEMAS["asked"]),
    "rules": (Input("rules", (), broadcast=True), SCHEMAS["rules"]),
}
TOLD = hf.SideOutput("told")
OUTPUTS = {
    MAIN: pa.schema(
        [
            ("user", pa.string()),
            ("slot", pa.int64()),
            ("v", pa.int64()),
            ("known", pa.bool_()),
            ("rule", pa.int64()),
        ]
    ),
    "told": pa.schema([("slot", pa.int64()), ("content", pa.string()), ("buffer", pa.list_(pa.int64()))]),
}


class Follow:
    """What both forms do: rules one after the other; then each row is answered, and kept in the slot's buffer."""

    def process_rules(self: Any, rows: pa.Table, ctx: hf.Context) -> None:
        for row in rows.to_pylist():
            self.follow(row["does"], row["name"], row["v"])
        buffer = sorted((pa.array(self.buffer.get(), pa.int64())).to_pylist(), key=repr)
        ctx.output(TOLD, {"slot": ctx.slot, "content": repr(self.rules.items()), "buffer": buffer})

    def follow(self: Any, does: str, name: str, v: int | None) -> None:
        if does == "put":
            self.rules.put(name, v)
        elif does == "put two":
            self.put_two(name, v)
        elif does == "remove":
            self.rules.remove(name)
        elif does == "double" and self.rules.get(name) is not None:
            self.rules.put(name, 2 * self.rules.get(name))
        elif does == "clear":
            self.rules.clear()
        elif does == "forget":
            self.buffer.clear()
        elif does == "keep one":
            self.buffer.update([v])
        self.buffer.add(v)

    def answer(self: Any, user: str, name: str, v: int | None, ctx: hf.Context) -> dict[str, Any]:
        self.buffer.add(v)
        found = {"known": self.rules.contains(name), "rule": self.rules.get(name)}
        return {"user": user, "slot": ctx.slot, "v": v, **found}


class FollowBatches(Follow, hf.BatchProcessor):
    rules = hf.BroadcastState(pa.string(), pa.int64())
    buffer = hf.OperatorState(pa.int64(), redistribution="split")
    seen = hf.ReducingState(pa.int64(), "sum")

    def put_two(self, name: str, v: int | None) -> None:
        self.rules.put([name, name + name], pa.array([v, None], pa.int64()))

    def process_asked(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        self.seen.add_only(batch, pa.array([1] * len(batch)))
        at_once = self.rules.get(batch["name"]).to_pylist()
        for row, rule in zip(batch.to_pylist(), at_once):
            answer = self.answer(row["user"], row["name"], row["v"], ctx)
            assert answer["rule"] == rule
            yield answer


class FollowKeys(Follow, hf.KeyedProcessor):
    rules = hf.BroadcastState(pa.string(), pa.int64())
    buffer = hf.OperatorState(pa.int64(), redistribution="split")
    seen = hf.ReducingState(pa.int64(), "sum")

    def put_two(self, name: str, v: int | None) -> None:
        self.rules.put_all({name: v, name + name: None})

    def process_asked(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        self.seen.add(len(rows))
        for row in rows.to_pylist():
            yield self.answer(key[0], row["name"], row["v"], ctx)


class Oracle:
    """One dict, and a list for each slot; which slot a user has is taken from what came out first."""

    def __init__(self) -> None:
        self.rules: dict[str, int | None] = {}
        self.buffers: dict[int, list[int | None]] = defaultdict(list)
        self.slot_of: dict[str | None, int] = {}

    def take(self, batch: Batch, found: Rows) -> tuple[list[Any], list[Any]]:
        """What comes out of the batch: for rules by slot, for rows in no order."""
        told, answers = [], []
        rules = [row for part in batch.parts["rules"] for piece in part for row in piece.to_pylist()]
        for row in rules:
            self._follow(row["does"], row["name"], row["v"])
        if rules:
            content = repr(sorted(self.rules.items()))
            for slot in range(len(LABELS)):
                buffer = sorted(self.buffers[slot], key=repr)
                told.append({"slot": slot, "content": content, "buffer": buffer})
        for row in found[MAIN]:
            slot = self.slot_of.setdefault(row["user"], row["slot"])  # type: ignore[arg-type]
            assert slot == row["slot"], "a user has moved"
        for row in (row for part in batch.parts["asked"] for piece in part for row in piece.to_pylist()):
            slot = self.slot_of.get(row["user"], -1)
            self.buffers[slot].append(row["v"])
            found_rule = {"known": row["name"] in self.rules, "rule": self.rules.get(row["name"])}
            answers.append({"user": row["user"], "slot": slot, "v": row["v"], **found_rule})
        return told, sorted(answers, key=repr)

    def _follow(self, does: str, name: str, v: int | None) -> None:
        if does in ("put", "put two"):
            self.rules[name] = v
        if does == "put two":
            self.rules[name + name] = None
        if does == "remove":
            self.rules.pop(name, None)
        if does == "double" and self.rules.get(name) is not None:
            self.rules[name] = 2 * self.rules[name]  # type: ignore[operator]
        if does == "clear":
            self.rules.clear()
        for slot in range(len(LABELS)):
            if does in ("forget", "keep one"):
                self.buffers[slot] = [v] if does == "keep one" else []
            self.buffers[slot].append(v)


names = st.sampled_from(["a", "b", "bb", "c", "\0"])
values = st.one_of(st.none(), st.integers(-9, 9))
does = st.sampled_from(["put", "put", "put", "put two", "remove", "double", "clear", "forget", "keep one"])
asked = st.fixed_dictionaries({"user": st.sampled_from(["ada", "bob", None]), "name": names, "v": values})
rule = st.fixed_dictionaries({"does": does, "name": names, "v": values})


def parts_of(name: str, row: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    piece = st.lists(row, max_size=5).map(lambda rows: pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[name]))
    return st.lists(st.lists(piece, max_size=2), max_size=3)


one_batch = st.tuples(
    st.fixed_dictionaries({"asked": parts_of("asked", asked), "rules": parts_of("rules", rule)}),
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


@pytest.mark.parametrize("processor", [FollowBatches, FollowKeys])
@settings(max_examples=examples(25))
@given(st.lists(one_batch, min_size=1, max_size=5), limits, st.sampled_from(["rocksdb", "hashmap"]))
def test_every_slot_follows_the_rules_and_keeps_its_own_list(
    processor: Any, batches: list[Any], sizes: Limits, backend: str
) -> None:
    oracle = Oracle()
    with tempfile.TemporaryDirectory(prefix="holdfast-broadcast-", ignore_cleanup_errors=True) as folder:
        slots = ConnectedSlots(Path(folder), processor(), INPUTS, OUTPUTS, sizes, backend, LABELS)
        try:
            for parts, shuffle, happens in batches:
                batch = Batch(parts, ("rules", "asked"), watermark_ms=0, shuffle=shuffle)
                first, handles = slots.run(batch)
                expected = oracle.take(batch, first)
                assert apart(first) == expected
                if happens != "commit":  # Spark had not committed the batch: it runs again, from the versions before it
                    if happens != "run twice":
                        slots.kill(lose_local_copies=happens == "lose")
                    again, handles = slots.run(batch)
                    assert apart(again) == expected
                slots.commit(handles)
        finally:
            slots.close()


def apart(rows: Rows) -> tuple[list[Any], list[Any]]:
    """What rules gave, by slot; and what rows gave."""
    return sorted(rows["told"], key=lambda row: str(row["slot"])), sorted(rows[MAIN], key=repr)
