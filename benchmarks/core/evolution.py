"""evolution: what values of earlier types cost. Three slots with the same values, by turns, without Spark.

One always had the types that it has. One was written under earlier ones, all of it: a sum and a field were narrower, a
field was not there. The third has evolved too, with nothing left that the earlier types wrote. Batches that meet keys
in the base for the first time under the newest types, then batches over keys that were read before: processor time of
this process, from open to the durable handle.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.figures import arguments, at_most, in_turns, ratio, spread
from benchmarks.records import recorded
from benchmarks.slot import Slot

import holdfast as hf
from holdfast.checkpoint import CheckpointSettings, StateRecord
from holdfast.checkpoint.evolution import OperatorStates, evolved
from holdfast.spark.keyed import state_changes, state_records
from holdfast.state import Context

PART = 65_536
#: Batches before the first that counts.
WARM_UP = 3
COST = at_most(1.03)
PLACES = ("??", "Basel", "Zürich", "La Chaux-de-Fonds")
NEW = pa.struct(
    [
        ("visits", pa.int64()),
        ("place", pa.string()),
        hf.with_default(pa.field("country", pa.string(), nullable=False), "CH"),
    ]
)
OLD = pa.struct([("visits", pa.int32()), ("place", pa.string())])
OUTPUT = pa.schema([("visits", pa.int64())])


class Before(hf.BatchProcessor):
    """What the earlier program kept of each key."""

    spent = hf.ReducingState(pa.int32(), "sum")
    profile = hf.ValueState(OLD)

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        self.spent.add_only(batch, batch["key"].cast(pa.int32()))
        self.profile.put(batch, first_profile(batch["key"], OLD))


class After(hf.BatchProcessor):
    """Adds to a sum, reads a profile and puts it back with one visit more."""

    spent = hf.ReducingState(pa.int64(), "sum")
    profile = hf.ValueState(NEW)

    def process(self, batch: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        self.spent.add_only(batch, batch["key"])
        profile = self.profile.get(batch)
        visits = pc.add(profile.field("visits"), 1)
        following = [visits, profile.field("place"), profile.field("country")]
        self.profile.put(batch, pa.StructArray.from_arrays(following, fields=list(NEW)))
        return pa.RecordBatch.from_arrays([visits], schema=OUTPUT)


class AfterFirst(After):
    """The first values of a key as the newest types have them."""

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        self.spent.add_only(batch, batch["key"])
        self.profile.put(batch, first_profile(batch["key"], NEW))


def first_profile(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same for the same key in each slot."""
    places = pa.array(PLACES).take(pa.array(keys.to_numpy() % len(PLACES)))
    countries = pa.array(["CH"] * len(keys))
    columns = {"visits": pa.array(keys.to_numpy() % 100), "place": places, "country": countries}
    return pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in kind], fields=list(kind))


def filled(folder: Path, states: Sequence[StateRecord], program: hf.BatchProcessor, keys: int) -> Slot:
    """A slot with all keys in its base, and nothing in the memory of its next worker, which has evolved."""
    slot = Slot(folder, *states, fold_deltas_max=1)
    for start in range(0, keys, 250_000):
        run(slot, program, np.arange(start, min(start + 250_000, keys)))
    slot.settings = CheckpointSettings()
    slot.evolve(*evolved(OperatorStates(slot.record.states), state_records(After), state_changes(After)).states)
    if slot.worker().open(slot.handle).counters["entries"]:
        raise RuntimeError(f"{folder.name}: expected all keys in the base, found some in deltas, which a worker reads")
    return slot


def run(slot: Slot, program: hf.BatchProcessor, keys: np.ndarray) -> tuple[float, int]:
    """Processor seconds of a batch, and rows of output; folds come after."""
    batch = pa.record_batch({"key": keys})
    parts = (batch.slice(start, PART) for start in range(0, len(keys), PART))
    began = time.process_time()
    _, given = slot.process(program, OUTPUT, 0, parts)
    seconds = time.process_time() - began
    slot.settle()
    return seconds, given


def in_all(slots: dict[str, Slot], batches: Sequence[np.ndarray]) -> dict[str, list[float]]:
    """Processor seconds of each batch in each slot, each order of the slots as often as another."""
    found: dict[str, list[float]] = {name: [] for name in slots}
    for keys, order in zip(batches, itertools.cycle(itertools.permutations(slots))):
        for name in order:
            seconds, given = run(slots[name], After(), keys)
            if given != len(keys):
                raise RuntimeError(f"{name}: expected {len(keys)} rows, found {given}")
            found[name].append(seconds)
    return found


def measure(folder: Path, stored: int, keys: int, cold: int, hot: int) -> None:
    """All figures."""
    before, after = state_records(Before), state_records(After)
    declared = evolved(OperatorStates(before), after, state_changes(After)).states
    slots = {
        "new": filled(folder / "new", after, AfterFirst(), stored),
        "declared": filled(folder / "declared", declared, AfterFirst(), stored),
        "evolved": filled(folder / "evolved", before, Before(), stored),
    }
    generator = np.random.default_rng(7)
    drawn = generator.permutation(stored)
    batches = [drawn[at * keys : (at + 1) * keys] for at in range(WARM_UP + cold)]
    first = {name: series[WARM_UP:] for name, series in in_all(slots, batches).items()}
    said = f"{keys:,} of {stored:,} keys a batch, out of the base"
    ratio("evolution.first_read_cost", in_turns(first["evolved"], first["new"]), None, said)
    ratio("evolution.declared_read_cost", in_turns(first["declared"], first["new"]), COST, said)
    again = [generator.permutation(batches[-1]) for _ in range(WARM_UP + hot)]
    hot_series = {name: series[WARM_UP:] for name, series in in_all(slots, again).items()}
    said = f"the same {keys:,} keys in each batch"
    ratio("evolution.hot_cost", in_turns(hot_series["evolved"], hot_series["new"]), COST, said)
    ratio("evolution.declared_hot_cost", in_turns(hot_series["declared"], hot_series["new"]), COST, said)
    for name in slots:
        print(f"{name}: first {spread(first[name], ' s')}, again {spread(hot_series[name], ' s')}")
    check(slots, drawn)


def check(slots: dict[str, Slot], keys: np.ndarray) -> None:
    """All slots hold the same, wherever it came from."""
    asked = pa.array(keys)
    held = []
    for slot in slots.values():
        store = slot.worker().open(slot.handle)
        held.append(
            [
                pa.array(store.value_state(2, NEW).get(asked)),
                pa.array(store.reducing_state(1, pa.int64(), "sum").get(asked)),
            ]
        )
    if any(found != held[0] for found in held[1:]):
        raise RuntimeError("the slots hold different values")


def main() -> None:
    """A million keys; 24 batches that read 25,000 of them first, then 60 over the same 25,000."""
    given = arguments(__doc__, stored=1_000_000, keys=25_000, cold=24, hot=60).parse_args()
    if given.short:
        given.stored, given.keys, given.cold, given.hot = 60_000, 5_000, 6, 6
    with recorded(given) as folder:
        measure(folder, given.stored, given.keys, given.cold, given.hot)


if __name__ == "__main__":
    main()
