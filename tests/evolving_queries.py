"""Queries without Spark, one after the other: each may begin with an earlier one, or with a savepoint of it, and have
another program than that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.by_key import by_key
from tests.spark_files import SparkFiles
from tests.unit.state_bench import Backend

import holdfast as hf
from holdfast.checkpoint import OperatorRecord, StateChanges, operator_prefix, register_operator
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.inspect.earlier import Earlier, EarlierQuery, earlier_savepoint
from holdfast.inspect.savepoint import Format
from holdfast.spark.keyed import state_changes, state_records
from holdfast.state import declared_states
from holdfast.storage import StorageOptions, open_file_store
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under-test"
ROWS = "user string, n long"


def made(kind: pa.DataType, n: int) -> Any:
    """A value of a type, which says ``n``."""
    if pa.types.is_struct(kind):
        return {field.name: made(field.type, n) for field in kind}
    if pa.types.is_list(kind):
        return [made(kind.value_type, n)]
    return str(n) if pa.types.is_string(kind) else n


def process(self: Any, key: Any, rows: Any, ctx: Any) -> None:
    for name, declared in declared_states(self):
        state = getattr(self, name)
        for n in rows["n"].to_pylist():
            if declared.kind == "value":
                state.update(made(declared.types["value"], n))
            else:
                state.add(made(declared.types["element"], n) if "element" in declared.types else n)


def program(**lines: Any) -> Any:
    """Keeps each row's number in each of its states."""
    return type("Program", (hf.KeyedProcessor,), {**lines, "process": process})()


def said(dropped: Any = (), renamed: Any = None, added: Any = ()) -> StateChanges:
    """As `hf.Restore.operator` is told it."""
    names = tuple((now, before) for before, now in (renamed or {}).items())
    return StateChanges(tuple(dropped), names, added=tuple(added))


#: Of savepoints.
FORMATS: tuple[Format, ...] = ("canonical", "native")


class Query:
    """One query: a harness, and the checkpoint that Spark would have.

    Parameters
    ----------
    origin
        Another query, or the folder of a savepoint.
    takes_over
        At once; otherwise with `take_over`.
    beside
        A query on the same machine: they share local copies.
    """

    def __init__(
        self,
        folder: Path,
        processor: Any,
        origin: Query | Path | None = None,
        changes: StateChanges = NOTHING_SAID,
        backend: Backend = "rocksdb",
        takes_over: bool = True,
        settings: Any = None,
        beside: Query | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir()
        if beside is not None:
            (folder / "local").symlink_to(beside.folder / "local")
        self.spark = SparkFiles(folder / "checkpoint", QUERY_ID)
        if origin is not None:
            self.register(self.beginning(origin, processor, changes))
        self.harness = Harness(
            processor,
            "user",
            ROWS,
            ROWS,
            name=OPERATOR,
            folder=folder,
            backend=backend,
            settings=settings or {"fold.deltas.max": 2},
        )
        if origin is not None and takes_over:
            self.take_over()

    def take_over(self) -> None:
        first = self.harness._state.first_version()
        assert first is not None
        self.harness.restore(replace(self.harness.snapshot(), handle=first))

    def beginning(self, origin: Query | Path, processor: Any, changes: StateChanges) -> OperatorRecord:
        """What is declared with ``restore``."""
        recorded, where = earlier(origin).operator(OPERATOR, "here", None)
        declared = replace(recorded, states=state_records(processor), changes=state_changes(processor), dropped=())
        return continued(recorded, declared, where, changes)

    def register(self, declared: OperatorRecord) -> OperatorRecord:
        store = open_file_store(str(self.folder / "state"))
        return register_operator(store, declared, prefix=operator_prefix(QUERY_ID, OPERATOR))

    def batch(self, *users: str, n: int) -> None:
        self.harness.process([{"user": user, "n": n} for user in users])
        self.commit()

    def commit(self) -> None:
        """What Spark has, is the newest version."""
        newest = self.harness.snapshot()
        assert newest.handle is not None
        self.spark.commit(newest.next_batch - 1, [newest.handle.to_text()], snapshot=True)

    def read(self, state: str) -> dict[str, Any]:
        """By the operator's own store; the same as readers of checkpoints find."""
        users = sorted({user for (user,) in self.harness.snapshot().keys} | set("abc"))
        own = {user: self.harness.state(state, user) for user in users}
        with hf.Checkpoint(self.folder / "checkpoint", state=self.folder / "state") as checkpoint:
            assert checkpoint.verify().whole
            table = checkpoint.read(OPERATOR, state).read_all()
        if "position" not in table.column_names:
            found = by_key(table)
            assert {user: value for user, value in own.items() if value is not None} == found
        return own

    def saved(self, format: Format = "canonical") -> Path:
        place, state = self.folder / "saved", self.folder / "state"
        hf.Savepoint.create(checkpoint=self.folder / "checkpoint", state=state, to=place, format=format)
        return place

    def ids(self) -> dict[str, int]:
        return {state.name: state.id for state in self.harness._record.states}

    def ids_of_entries(self) -> set[int]:
        """Of all that the newest version has."""
        with hf.Checkpoint(self.folder / "checkpoint", state=self.folder / "state") as checkpoint:
            record = checkpoint.record(OPERATOR)
            found = set()
            for slot, handle in checkpoint.at().handles[OPERATOR].items():
                for entries in checkpoint.tables.slot(record, slot).entries(handle, [(b"", b"")]):
                    found |= {int.from_bytes(key[2:4], "big") for key in entries["key"].to_pylist()}
        return found


def earlier(origin: Query | Path) -> Earlier:
    if isinstance(origin, Query):
        return EarlierQuery(str(origin.spark.folder), str(origin.folder / "state"), None, StorageOptions(), None)
    return earlier_savepoint(str(origin), StorageOptions())
