"""A query without Spark, with something in every state and files of every sort: for tests of native savepoints."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from tests.kept_states import DOES, OUTPUT, ROWS, RULES, KeepsAll
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.storage import FileStore
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under test ü"
#: Snapshots and folds often; how soon is the background's affair.
OFTEN = {"snapshot.deltas.max": 2, "fold.deltas.max": 1, "snapshot.bytes.min": 1}
_BATCHES_MAX = 60


def kept_query(folder: Path) -> None:
    """Makes ``checkpoint`` and ``state`` in a folder: of at least five batches, the last of which has two snapshots and
    a delta after each.
    """
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    inputs = {"rows": ROWS, "rules": hf.broadcast(RULES)}
    key = {"rows": ["user", "place"]}
    with Harness(
        KeepsAll(),
        key,
        inputs,
        OUTPUT,
        name=OPERATOR,
        null_keys=True,
        event_time={"rows": "at"},
        folder=folder,
        settings=OFTEN,
    ) as harness:
        does = [name for name in DOES if name not in ("clear", "remove")]
        for batch_id in range(_BATCHES_MAX):
            harness.advance(1000)
            rows = [
                {"user": f"u{n % 9}", "place": n % 3 or None, "does": name, "n": n + batch_id}
                for n in range(20)
                for name in does
            ]
            rules = [{"name": f"rule {n}", "n": n + batch_id} for n in range(3)]
            harness.process(rows=pa.Table.from_pylist(rows, ROWS), rules=pa.Table.from_pylist(rules, RULES))
            # What was due is done before the next batch: how many files there are at last goes by no clock.
            assert harness._background.drain(240)
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()], watermark_ms=77)
            starts = [ref.sequence for ref in handle.snapshots]
            if batch_id >= 4 and len(starts) == 2 and handle.sequence > starts[0] > starts[1] + 1:
                return
    raise AssertionError(f"no second snapshot was named in {_BATCHES_MAX} batches")


def tables_of(source: hf.Savepoint | hf.Checkpoint, operator: str = OPERATOR) -> dict[str, pa.Table]:
    """Every state of an operator, as it is read."""
    if isinstance(source, hf.Savepoint):
        states: tuple[str, ...] = source.operators[operator]
    else:
        states = tuple(state.name for one in source.operators() if one.name == operator for state in one.states)
    return {state: source.read(operator, state).read_all() for state in sorted(states)}


def rows_of(tables: dict[str, pa.Table], *, places: bool = True) -> dict[str, list[str]]:
    """As texts, since a NaN is not itself. Without ``places``: in any order, and without slots and positions of
    operator states, which are others once they were dealt out.
    """
    if places:
        return {state: list(map(repr, table.to_pylist())) for state, table in tables.items()}
    return {
        state: sorted(
            repr({name: value for name, value in row.items() if "slot" not in row or name == "value"})
            for row in table.to_pylist()
        )
        for state, table in tables.items()
    }


def uploaded(folder: Path, store: FileStore) -> None:
    """Puts all files of a folder into a store."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())
