"""What Spark's last handles name in storage, read as docs/formats says, by JSON, Arrow and RocksDB themselves: nothing
of Holdfast reads here. Every entry is decoded, so what is stored and should not be there is seen as well.

Knows the types that its streams declare: keys of strings and int64, values of int64, and what an average is made of.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.faults import base_reading
from tests.faults.handle_reading import told

#: By operator and state: what each key has.
States = dict[str, dict[str, dict[tuple[Any, ...], Any]]]
_Entries = dict[tuple[int, bytes], bytes]


@dataclass(frozen=True)
class Stored:
    """A state folder, or a savepoint that is laid out as one; handles; the operator's record, where it has no file."""

    store: Path
    handles: tuple[str, ...]
    record: str | None = None


def read_states(store: Path, handles: Iterable[str]) -> States:
    """All states of all slots. A list in the order of its elements, a map by its keys."""
    return read_each([Stored(store, tuple(handles))])[0]


def read_each(stored: Sequence[Stored]) -> list[States]:
    """The same of each; RocksDB is loaded once for all."""
    with tempfile.TemporaryDirectory() as work:
        slots = [
            [_Slot(one, text, Path(work, f"{at}-{number}")) for number, text in enumerate(one.handles)]
            for at, one in enumerate(stored)
        ]
        bases = [f"{slot.base}={slot.dump}" for found in slots for slot in found if slot.base is not None]
        if bases:
            subprocess.run([sys.executable, base_reading.__file__, *bases], check=True, timeout=300)
        return [_together(found) for found in slots]


def _together(slots: Iterable[_Slot]) -> States:
    found: States = {}
    for slot in slots:
        of_operator = found.setdefault(slot.operator, {state["name"]: {} for state in slot.states.values()})
        for name, held in slot.decoded().items():
            assert not held.keys() & of_operator[name].keys(), f"{name}: a key in two slots"
            of_operator[name].update(held)
    return found


class _Slot:
    """One handle, and where its newest snapshot lies for RocksDB."""

    def __init__(self, stored: Stored, handle_text: str, work: Path) -> None:
        handle = json.loads(handle_text)
        self.operator: str = handle["operator"]
        inside = f"{self.operator}/slot-{handle['slot']:05d}"
        (self._query,) = [path for path in stored.store.iterdir() if (path / inside).is_dir()]
        text = stored.record or (self._query / self.operator / "operator.json").read_bytes()
        record = json.loads(text)
        self.states: dict[int, dict[str, Any]] = {state["id"]: state for state in record["states"]}
        self._columns = list(record["key_columns"].values())
        self._folder = self._query / inside
        self._handle = handle = told(handle_text, self._folder)
        self._from = 0
        self.base: Path | None = None
        self.dump = work.with_suffix(".arrow")
        if handle["snapshots"]:
            self._from, _, name, *_ = handle["snapshots"][0]
            self.base = work
            work.mkdir()
            for in_base, _, _, in_storage in json.loads((self._folder / name).read_bytes())["files"]:
                os.symlink(self._folder / in_storage, work / in_base)

    def decoded(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """By state: what each key has."""
        found: dict[str, dict[tuple[Any, ...], Any]] = {state["name"]: {} for state in self.states.values()}
        lists: defaultdict[tuple[str, tuple[Any, ...]], list[tuple[bytes, int]]] = defaultdict(list)
        for (state_id, stored), value in self._entries().items():
            state = self.states[state_id]
            key, suffix = _key(stored, self._columns)
            if state["kind"] == "list":
                assert len(suffix) == 8, stored
                lists[state["name"], key].append((suffix, _number(value)))
            elif state["kind"] == "map":
                (map_key,), rest = _key(suffix, ["string"])
                assert not rest, stored
                found[state["name"]].setdefault(key, {})[map_key] = _number(value)
            else:
                assert not suffix, stored
                found[state["name"]][key] = _average(value) if state["kind"] == "aggregating" else _number(value)
        for (name, key), elements in lists.items():
            found[name][key] = [number for _, number in sorted(elements)]
        return found

    def _entries(self) -> _Entries:
        """Of the snapshot, and what the deltas since have changed."""
        found: _Entries = {}
        if self.base is not None:
            with pa.OSFile(str(self.dump)) as file:
                base = pa.ipc.open_file(file).read_all()
            for key, value in zip(base["key"].to_pylist(), base["value"].to_pylist()):
                found[int.from_bytes(key[2:4], "big"), key[4:]] = value
        for sequence, version, *_ in self._handle["deltas"]:
            if sequence <= self._from:
                continue
            with pa.OSFile(str(self._folder / f"delta/{sequence:012d}-{version}.arrow")) as file:
                delta = pa.ipc.open_file(file).read_all()
            for state_id, key, value in zip(*(delta[name].to_pylist() for name in ("state", "key", "value"))):
                if value is None:
                    found.pop((state_id, key), None)
                else:
                    found[state_id, key] = value
        return found


def _key(stored: bytes, columns: list[str]) -> tuple[tuple[Any, ...], bytes]:
    """The columns of a key, and what follows it. No string of a test has a zero in it."""
    found: list[Any] = []
    for column in columns:
        if column == "int64":
            found.append(int.from_bytes(stored[:8], "big") - (1 << 63))
            stored = stored[8:]
            continue
        assert column == "string", column
        text, end, stored = stored.partition(b"\x00\x01")
        assert end, f"no end of a string in {stored!r}"
        found.append(text.decode())
    return tuple(found), stored


def _number(value: bytes) -> int:
    header, number = struct.unpack("<Bq", value)
    assert header == 1, value
    return int(number)


def _average(value: bytes) -> float:
    header, nulls, total, count = struct.unpack("<BBdq", value)
    assert (header, nulls) == (1, 0), value
    return float(total / count)
