"""savepoint.json: what a savepoint holds, with the size and checksum of every file. Format: docs/formats/savepoint.md.

Written last and created only if it is absent: the savepoint exists if this does. Nothing in it is trusted: names of
files follow from those of operators and states, and all that it counts is compared with what is there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from holdfast._core import first_key_group, xxh64
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.savepoint.columns import KEYED_KINDS, KINDS, StateColumns
from holdfast.sealed import CHECKSUM_DIGITS, seal, unseal

MANIFEST = "savepoint.json"
#: The manifest's bytes under another name, while the savepoint is disposed of.
DISPOSED = "disposed.json"
#: The same, once queries that claimed the savepoint have taken it over: nothing else is left of it.
CLAIMED = "claimed.json"
FORMAT = "holdfast.savepoint"
#: Of canonical savepoints, and of native ones.
VERSION, NATIVE_VERSION = 1, 2
CHECKSUM = re.compile(rf"[0-9a-f]{{{CHECKSUM_DIGITS}}}")
GROUPS_MAX, SLOTS_MAX = 32768, 32768


@dataclass(frozen=True)
class TableFile:
    """A state's entries in one slot. Key groups: from ``first_key_group`` up to, but not including, ``end``."""

    slot: int
    first_key_group: int
    end_key_group: int
    rows: int
    size_bytes: int
    checksum: str


@dataclass(frozen=True)
class StateTtl:
    """A state's time to live as the savepoint was taken; ``time``: "processing" or "event"."""

    time: str
    ttl_ms: int
    latest_ms: int


@dataclass(frozen=True)
class SavedState:
    """A state of an operator. ``schema``: its types by role as recorded, ``columns`` those of its table."""

    name: str
    kind: str
    schema: pa.Schema
    function: str | None
    columns: StateColumns
    ttl: StateTtl | None
    files: tuple[TableFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_fields(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "types": {field.name: str(field.type) for field in self.schema},
            "schema": _encoded(self.schema),
            "function": self.function,
            "columns": self.columns.by_role(),
            "ttl": [self.ttl.time, self.ttl.ttl_ms, self.ttl.latest_ms] if self.ttl else None,
            "rows": self.rows,
            "files": [
                [f.slot, f.first_key_group, f.end_key_group, f.rows, f.size_bytes, f.checksum] for f in self.files
            ],
        }


@dataclass(frozen=True)
class SavedOperator:
    """An operator: what a query that begins from the savepoint is compared with, and its states.

    ``versions``: (slot, sequence, version id, batch) of each slot that had one; for people.
    """

    name: str
    max_parallelism: int
    slots: int
    null_keys: bool
    key_schema: pa.Schema
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    versions: tuple[tuple[int, int, str, int], ...]
    states: tuple[SavedState, ...]

    def state(self, name: str) -> SavedState:
        """InvalidRequest where there is no such state."""
        found = next((state for state in self.states if state.name == name), None)
        if found is None:
            known = ", ".join(state.name for state in self.states) or "none"
            raise InvalidRequest(f"operator {self.name!r} has no state {name!r}; it has {known}")
        return found

    def key_groups_of(self, slot: int) -> tuple[int, int]:
        """The key groups of a slot: first, and one past the last."""
        return (
            first_key_group(slot, self.max_parallelism, self.slots),
            first_key_group(slot + 1, self.max_parallelism, self.slots),
        )

    def to_fields(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "max_parallelism": self.max_parallelism,
            "slots": self.slots,
            "null_keys": self.null_keys,
            "key_columns": {field.name: str(field.type) for field in self.key_schema},
            "key_schema": _encoded(self.key_schema),
            **({"inputs": dict(self.inputs)} if self.inputs else {}),
            "versions": [list(version) for version in self.versions],
            "states": [state.to_fields() for state in self.states],
        }


@dataclass(frozen=True)
class Manifest:
    """A whole savepoint. Attributes as in docs/formats/savepoint.md. ``checksum``: of the file it was read from."""

    query_id: str | None
    batch_id: int | None
    watermark_ms: int | None
    sources: tuple[str | None, ...]
    created_ms: int
    created_by: str
    operators: tuple[SavedOperator, ...]
    checksum: str = field(default="", compare=False)

    def operator(self, name: str) -> SavedOperator:
        """InvalidRequest where there is no such operator."""
        found = next((operator for operator in self.operators if operator.name == name), None)
        if found is None:
            known = ", ".join(repr(operator.name) for operator in self.operators) or "none"
            raise InvalidRequest(f"the savepoint has no operator {name!r}; it has {known}")
        return found

    def to_text(self) -> str:
        return seal(
            FORMAT,
            VERSION,
            {**self.about_fields(), "operators": [operator.to_fields() for operator in self.operators]},
        )

    @classmethod
    def from_text(cls, text: str | bytes, where: str) -> Manifest:
        """Reads a manifest back; Corrupt when it is not one, Incompatible when a newer Holdfast wrote it."""
        fields = unseal(text, FORMAT, NATIVE_VERSION, where)
        if "layout" in fields:
            raise Incompatible(f"{where} is that of a native savepoint; expected a canonical one, of tables")
        with contradictions(where):
            operators = tuple(_operator(operator) for operator in fields["operators"])
            ascending([operator.name for operator in operators], "operators")
            return replace(cls.about(fields), operators=operators)

    def about_fields(self) -> dict[str, Any]:
        """What a manifest of either format says of the whole savepoint."""
        return {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "watermark_ms": self.watermark_ms,
            "sources": list(self.sources),
            "created_ms": self.created_ms,
            "created_by": self.created_by,
        }

    @classmethod
    def about(cls, fields: Mapping[str, Any]) -> Manifest:
        """The same, read back; without operators. KeyError, TypeError or ValueError where it is not there."""
        return cls(
            query_id=_text_or_none(fields["query_id"]),
            batch_id=_count_or_none(fields["batch_id"]),
            watermark_ms=_integer_or_none(fields["watermark_ms"]),
            sources=tuple(_text_or_none(source) for source in fields["sources"]),
            created_ms=_integer(fields["created_ms"]),
            created_by=_text(fields["created_by"]),
            operators=(),
        )


#: Of the names of folders: file systems have 255 bytes for one, and letters outside of ASCII take six or nine each.
_FOLDER_NAME_MAX = 255
_FOLDER_NAME_KEPT = 200


@contextmanager
def contradictions(where: str) -> Iterator[None]:
    """Corrupt for whatever a manifest lacks, or has in another type or place."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest, pa.ArrowException) as error:
        raise Corrupt(f"{where} contradicts what a savepoint's manifest has: {error!r}") from error


def table_name(operator: str, state: str, slot: int) -> str:
    """The file of a state's entries in one slot, relative to the savepoint."""
    return f"{table_folder(operator, state)}/slot-{slot:05d}.parquet"


def table_folder(operator: str, state: str) -> str:
    """The folder of a state's files, and of nothing else."""
    return f"operators/{_encode(operator)}/{_encode(state)}"


def _encode(name: str) -> str:
    """One part of a path. Readers of tables hide files that begin with a dot or a line."""
    encoded = quote(name, safe="")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _FOLDER_NAME_MAX:
        return encoded
    return f"{encoded[:_FOLDER_NAME_KEPT]}~{xxh64(name.encode()):016x}"


def _operator(fields: Mapping[str, Any]) -> SavedOperator:
    operator = SavedOperator(
        name=_text(fields["name"]),
        max_parallelism=count(fields["max_parallelism"], 1, GROUPS_MAX),
        slots=count(fields["slots"], 1, SLOTS_MAX),
        null_keys=_boolean(fields["null_keys"]),
        key_schema=_decoded(fields["key_schema"]),
        inputs=tuple((name, tuple(map(_text, key))) for name, key in sorted(dict(fields.get("inputs", {})).items())),
        versions=tuple(
            (count(slot), count(sequence), _text(version), _integer(batch))
            for slot, sequence, version, batch in fields["versions"]
        ),
        states=(),
    )
    states = tuple(_state(state, operator) for state in fields["states"])
    ascending([state.name for state in states], "states")
    if operator.slots > operator.max_parallelism:
        raise ValueError(f"{operator.slots} slots and {operator.max_parallelism} key groups")
    return SavedOperator(**{**vars(operator), "states": states})


def _state(fields: Mapping[str, Any], operator: SavedOperator) -> SavedState:
    name, kind, schema, function = fields["name"], fields["kind"], _decoded(fields["schema"]), fields["function"]
    if kind not in KINDS or not (function is None or isinstance(function, str)):
        raise ValueError(f"state {name!r} is of kind {kind!r}, function {function!r}")
    columns = StateColumns.of(operator.key_schema, kind, schema, function)
    if fields["columns"] != columns.by_role():
        raise ValueError(f"state {name!r} has the columns {fields['columns']}, expected {columns.by_role()}")
    ttl = fields["ttl"]
    files = tuple(_file(row) for row in fields["files"])
    _check_files(files, operator, keyed=kind in KEYED_KINDS, one=kind == "broadcast")
    state = SavedState(_text(name), kind, schema, function, columns, None if ttl is None else _ttl(*ttl), files)
    if count(fields["rows"]) != state.rows:
        raise ValueError(f"state {name!r} has {fields['rows']} rows, its files have {state.rows}")
    return state


def _file(row: Iterable[Any]) -> TableFile:
    slot, first, end, rows, size_bytes, checksum = row
    if not isinstance(checksum, str) or not CHECKSUM.fullmatch(checksum):
        raise ValueError(f"{checksum!r} is no checksum")
    return TableFile(count(slot), count(first), count(end), count(rows), count(size_bytes), checksum)


def _check_files(files: tuple[TableFile, ...], operator: SavedOperator, *, keyed: bool, one: bool) -> None:
    before = -1
    for file in files:
        if file.slot <= before or file.slot >= operator.slots or (one and file.slot != 0):
            raise ValueError(f"slot {file.slot} comes after {before}, of {operator.slots} slots")
        before = file.slot
        groups = (file.first_key_group, file.end_key_group)
        expected = operator.key_groups_of(file.slot) if keyed else (0, 0)
        if groups != expected:
            raise ValueError(f"slot {file.slot} has key groups {groups}, expected {expected}")


def _ttl(time: Any, ttl_ms: Any, latest_ms: Any) -> StateTtl:
    if time not in ("processing", "event"):
        raise ValueError(f"{time!r} is no time that a TTL goes by")
    return StateTtl(time, count(ttl_ms), _integer(latest_ms))


def ascending(names: list[str], what: str) -> None:
    """ValueError where names are not each there once, in order."""
    if names != sorted(set(names)):
        raise ValueError(f"{what} are not each there once, in order: {names}")


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, found {value!r}")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"expected an integer of 64 bits, found {value!r}")
    return value


def _integer_or_none(value: Any) -> int | None:
    return None if value is None else _integer(value)


def count(value: Any, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """An integer within these limits; ValueError or TypeError for what is none."""
    if not least <= _integer(value) <= most:
        raise ValueError(f"expected {least} to {most}, found {value}")
    return _integer(value)


def _count_or_none(value: Any) -> int | None:
    return None if value is None else count(value)
