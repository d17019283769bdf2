"""What a user's folders hold after a command was killed: by plain listing, JSON, DuckDB, Arrow and RocksDB's own C API,
as docs/formats says. Knows nothing of Holdfast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
from tests.faults import handle_reading
from tests.faults.stored_state import States, Stored

MANIFEST = "savepoint.json"
#: Of names that are being written; nobody reads such a file.
UNFINISHED = ".tmp-"


def content(folder: Path) -> dict[str, str]:
    """What is in each file, by name; without those that have no name yet."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(UNFINISHED)
    }


def ways(slot: Path, handle: str) -> list[set[str]]:
    """Of the files in a slot's folder, each set that leads to the version of a handle, the shortest way first."""
    told = handle_reading.told(handle, slot)
    deltas = {sequence: f"delta/{sequence:012d}-{version}.arrow" for sequence, version, *_ in told["deltas"]}
    found = []
    for sequence, _, name, *_ in told["snapshots"]:
        files = {stored for *_, stored in json.loads((slot / name).read_bytes())["files"]}
        found.append({name, *files, *(delta for at, delta in deltas.items() if at > sequence)})
    if not told["snapshots"]:
        found.append(set(deltas.values()))
    return found


def needed(slot: Path, handles: Iterable[str]) -> set[str]:
    """All files that any of these handles leads to, by whatever way."""
    return {name for handle in handles for way in ways(slot, handle) for name in way}


def is_whole(saved: Path) -> bool:
    """Whether a savepoint is there, by its manifest, which is written last."""
    return (saved / MANIFEST).exists()


def tables(saved: Path) -> States:
    """A canonical savepoint: all rows, by DuckDB. Each file is as large as its manifest says, and has as many rows."""
    found: States = {}
    with duckdb.connect() as db:
        for operator in json.loads((saved / MANIFEST).read_bytes())["operators"]:
            states = found.setdefault(operator["name"], {})
            for state in operator["states"]:
                states[state["name"]] = {}
                for path, rows, size in _files(saved, operator, state):
                    assert path.stat().st_size == size, f"{path}: expected {size} bytes"
                    read = db.execute(_query(operator, state), [str(path)]).fetchall()
                    assert len(read) == rows, f"{path}: expected {rows} rows, found {len(read)}"
                    _gather(states[state["name"]], read, state["kind"])
    return found


def _files(saved: Path, operator: dict[str, Any], state: dict[str, Any]) -> Iterator[tuple[Path, int, int]]:
    for slot, _, _, rows, size, _ in state["files"]:
        yield saved / "operators" / operator["name"] / state["name"] / f"slot-{slot:05d}.parquet", rows, size


def _query(operator: dict[str, Any], state: dict[str, Any]) -> str:
    keys = ", ".join(operator["key_columns"])
    order = f" ORDER BY {keys}, position" if state["kind"] == "list" else ""
    return f"SELECT {keys}, value FROM read_parquet(?){order}"


def _gather(found: dict[tuple[Any, ...], Any], rows: Iterable[tuple[Any, ...]], kind: str) -> None:
    for *key, value in rows:
        if kind == "list":
            found.setdefault(tuple(key), []).append(value)
        else:
            assert tuple(key) not in found, f"{key} is there twice"
            found[tuple(key)] = value


def versions(saved: Path) -> tuple[Stored, set[str]]:
    """A native savepoint: what its handles name, to be read; and the names of all its files, which are there, as large
    as its manifest says.
    """
    told = json.loads((saved / MANIFEST).read_bytes())
    (operator,) = told["operators"]
    names = set()
    for slot, name, size, _ in operator["files"]:
        path = saved / told["folder"] / operator_folder(operator) / f"slot-{slot:05d}" / name
        assert path.stat().st_size == size, f"{path}: expected {size} bytes"
        names.add(str(path.relative_to(saved)))
    for slot, handle in enumerate(operator["handles"]):
        place = f"{told['folder']}/{operator_folder(operator)}/slot-{slot:05d}"
        missing = {f"{place}/{name}" for name in needed(saved / place, [handle])} - names
        assert not missing, f"handles name {missing}, which are not among the savepoint's files"
    return Stored(saved, tuple(operator["handles"]), operator["record"]), names


def operator_folder(operator: dict[str, Any]) -> str:
    """Names of the tests need no encoding."""
    name: str = json.loads(operator["record"])["name"]
    return name


def begun(store: Path, query: str, operator: str, slots: int) -> Stored:
    """A new query's state after its first batch: all its slots have a first version."""
    folder = store / query / operator
    return Stored(store, tuple((folder / f"slot-{slot:05d}" / "origin.json").read_text() for slot in range(slots)))


def changed(before: dict[str, str], after: dict[str, str], *, may_go: Collection[str] = ()) -> list[str]:
    """Files that are gone or are others, in words, but for those that may go."""
    return [
        f"{name} is {'another' if name in after else 'gone'}"
        for name, found in before.items()
        if after.get(name) != found and not (name in may_go and name not in after)
    ]
