"""Which schema of a state's values may follow another: fields added, dropped, renamed, reordered, widened, nullable.
docs/rfcs/0017

Pure: from the schemas that were, and what is declared, to the next one, or to all that contradicts. Nothing is lost
because a line is missing, as with states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.arrow.types import children, is_list, logical, nested, widens, with_children
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.value_schemas import (
    SCHEMAS_MAX,
    default_of,
    follows,
    number_of,
    numbered,
    recorded_field,
    stored_role,
    stored_type,
    struct_fields,
)

Path = tuple[str, ...]


@dataclass(frozen=True)
class FieldChange:
    """What a program says of a field of a state's values.

    Attributes
    ----------
    state
        Its name in the program.
    path
        Role of the type, then names of fields down to this one; of lists ``[]``, of maps ``{}`` stands for what is in
        them.
    what
        "dropped", "renamed", "default".
    name
        Of a renamed field: the one before.
    row
        Of a default: the value, as a row.
    """

    state: str
    path: Path
    what: str
    name: str = ""
    row: bytes = b""


def next_schema(recorded: StateRecord, declared: StateRecord, changes: Iterable[FieldChange]) -> StateRecord:
    """The state with the schema that is declared, which contradicts nothing; the same where that says nothing new."""
    return _followed(recorded, declared, changes, "")[0]


def schema_contradictions(
    recorded: StateRecord, declared: StateRecord, changes: Iterable[FieldChange], way_out: str
) -> list[str]:
    """Why the recorded schemas cannot be followed by the one that is declared: each field, and what to do."""
    return _followed(recorded, declared, changes, way_out)[1]


def _followed(
    recorded: StateRecord, declared: StateRecord, changes: Iterable[FieldChange], way_out: str
) -> tuple[StateRecord, list[str]]:
    role = stored_role(recorded)
    fixed = [name for name in recorded.schema.names if name != role and not _is_free(recorded, name)]
    alike = recorded.schema.names == declared.schema.names and all(
        recorded.schema.field(name).equals(declared.schema.field(name)) for name in fixed
    )
    if not alike:
        return recorded, [
            f"state {recorded.name!r}: recorded {_text(recorded)}, declared {_text(declared)} ({way_out})"
        ]
    if role is None:  # what a function of the core gathers does not go by the type of what is added
        return replace(recorded, schema=declared.schema), []
    evolution = _Evolution(recorded, {(one.path, one.what): one for one in changes}, way_out)
    stored = evolution.type_of(numbered(recorded)[-1], logical(stored_type(declared, declared.schema)), (role,), (0,))
    if evolution.found:
        return recorded, evolution.found
    following = follows(recorded, stored, declared.schema)
    if len(following.earlier) < SCHEMAS_MAX:
        return following, []
    found = (
        f"state {recorded.name!r}: has had {SCHEMAS_MAX} schemas, which is as many as there can be "
        f"(go back to the recorded declaration, {_text(recorded)})"
    )
    return recorded, [found]


def _is_free(state: StateRecord, role: str) -> bool:
    """Whether a role's type says nothing of what is stored: what aggregates take, and what they give."""
    return state.kind == "aggregating" and role in ("value", "result") and state.function != "approx_count_distinct"


@dataclass
class _Evolution:
    """One schema after the newest. ``found``: what contradicts."""

    state: StateRecord
    changes: Mapping[tuple[Path, str], FieldChange]
    way_out: str
    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = numbered(self.state)
        self._numbers = 1 + max((number_of(one) for was in kept for one in struct_fields(was)), default=0)
        self._names: dict[tuple[int, ...], dict[int, str]] = {}  # by struct: the last name of each field it ever had
        for was in kept:
            self._note_names(was, (0,))

    def _note_names(self, kept: pa.DataType, place: tuple[int, ...]) -> None:
        for at, one in enumerate(children(kept)):
            if is_type.is_struct(kept):
                self._names.setdefault(place, {})[number_of(one)] = one.name
            self._note_names(one.type, (*place, number_of(one) if is_type.is_struct(kept) else at))

    def type_of(self, old: pa.DataType, new: pa.DataType, path: Path, place: tuple[int, ...]) -> pa.DataType:
        """What follows ``old``, which has numbers. ``place``: of it among all schemas, by numbers."""
        if is_type.is_struct(old) and is_type.is_struct(new):
            return self._struct(old, new, path, place)
        if is_type.is_map(old) and is_type.is_map(new):
            if not logical(old.key_type).equals(logical(new.key_type)):
                self._refuse(path, f"keys of maps: recorded {old.key_type}, declared {new.key_type}", self.way_out)
            item = self._child(old.item_field, new.item_field, (*path, "{}"), (*place, 1))
            return with_children(new, [old.key_field, item])
        if is_list(old) and is_list(new):
            if is_type.is_fixed_size_list(new) and not (
                is_type.is_fixed_size_list(old) and old.list_size == new.list_size
            ):
                self._refuse(path, f"recorded {old}, declared {new}", self.way_out)
            return with_children(new, [self._child(old.value_field, new.value_field, (*path, "[]"), (*place, 0))])
        if nested(old) or nested(new) or not widens(logical(old), logical(new)):
            self._refuse(path, f"recorded {old!s}, declared {new!s}", self.way_out)
        return new

    def _child(self, old: pa.Field, new: pa.Field, path: Path, place: tuple[int, ...]) -> pa.Field:
        if old.nullable and not new.nullable:
            self._refuse(path, "recorded as one that may be null, declared as one that may not", self.way_out)
        return new.with_type(self.type_of(old.type, new.type, path, place))

    def _struct(self, old: pa.DataType, new: pa.DataType, path: Path, place: tuple[int, ...]) -> pa.DataType:
        recorded = {one.name: one for one in children(old)}
        taken: dict[str, str] = {}  # names before, of fields that are renamed
        fields = []
        for one in children(new):
            its_path = (*path, one.name)
            change = self.changes.get((its_path, "renamed"))
            before = recorded.get(one.name)
            if change is not None:
                before = self._renamed_from(change, one, recorded, its_path)
                if before is not None:
                    taken[before.name] = one.name
            if one.name not in recorded:
                self._check_name(one.name, its_path, place, recorded)
            fields.append(
                self._added(one, its_path)
                if before is None
                else self._goes_on(before, one, its_path, (*place, number_of(before)))
            )
        self._check_left_out(new, recorded, taken, path)
        return pa.struct(fields)

    def _goes_on(self, before: pa.Field, one: pa.Field, path: Path, place: tuple[int, ...]) -> pa.Field:
        found = len(self.found)
        after = self._child(before, one, path, place)
        default = default_of(before)
        if default is not None and len(self.found) == found:
            default = _as_type(default, before.type, after.type)
            change = self.changes.get((path, "default"))
            if change is not None and change.row != default:
                self._refuse(
                    path,
                    "its default is recorded, and another is declared",
                    "take the default away, or write the recorded one: values from before the field are read with it",
                )
        return recorded_field(after, number_of(before), default)

    def _check_name(self, name: str, path: Path, place: tuple[int, ...], recorded: Mapping[str, pa.Field]) -> None:
        """A name that a dropped field had as it went is not to be had again."""
        current = {number_of(before) for before in recorded.values()}
        if name in {was for number, was in self._names.get(place, {}).items() if number not in current}:
            self._refuse(path, "was dropped in this checkpoint, for good, and is declared", "give it another name")

    def _added(self, one: pa.Field, path: Path) -> pa.Field:
        change = self.changes.get((path, "default"))
        default = None if change is None else change.row
        if default is None and not one.nullable:
            self._refuse(
                path,
                f"recorded none, declared {one.type!s} not null",
                "values that are stored have none: let it be null, or give them one, "
                f"hf.with_default(pa.field({one.name!r}, …), …)",
            )
        number = self._numbers
        self._numbers += 1
        return recorded_field(one.with_type(self._new(one.type)), number, default)

    def _new(self, kind: pa.DataType) -> pa.DataType:
        """A type that was not there, with numbers."""
        if not nested(kind):
            return kind
        fields = []
        for one in children(kind):
            number, self._numbers = self._numbers, self._numbers + 1
            inner = one.with_type(self._new(one.type))
            fields.append(recorded_field(inner, number, None) if is_type.is_struct(kind) else inner)
        return with_children(kind, fields)

    def _renamed_from(
        self, change: FieldChange, one: pa.Field, recorded: Mapping[str, pa.Field], path: Path
    ) -> pa.Field | None:
        """The field that it was; with one of its own name, the line has stayed since an earlier restart."""
        old = recorded.get(change.name)
        if one.name not in recorded:
            if old is None:
                self._refuse(
                    path,
                    f"expected a recorded field {change.name!r}, from which it is renamed, found "
                    f"{', '.join(recorded) or 'none'}",
                    "name the field as it is recorded; without hf.renamed_from it is a new one, which is null",
                )
            return old
        if old is not None:
            self._refuse(
                path,
                f"is recorded, and so is {change.name!r}, from which it is renamed",
                "take hf.renamed_from away, or give it a name that is not recorded",
            )
        return recorded[one.name]

    def _check_left_out(
        self, new: pa.DataType, recorded: Mapping[str, pa.Field], taken: Mapping[str, str], path: Path
    ) -> None:
        declared = {one.name for one in children(new)}
        for name, before in recorded.items():
            if name in declared or name in taken or ((*path, name), "dropped") in self.changes:
                continue
            self._refuse(
                (*path, name),
                f"recorded {before.type!s}, declared none",
                f"declare it; if it has another name now, hf.renamed_from({name!r}, pa.field(…)); if it shall go, with "
                f"all that it holds, hf.dropped_field({name!r})",
            )

    def _refuse(self, path: Path, what: str, way_out: str) -> None:
        where = "".join(step if step in ("[]", "{}") else f".{step}" for step in path[1:]).lstrip(".")
        place = f"state {self.state.name!r}, field {where!r}" if where else f"state {self.state.name!r}"
        self.found.append(f"{place}: {what} ({way_out})")


def _as_type(row: bytes, old: pa.DataType, new: pa.DataType) -> bytes:
    """A row of a type without fields as one of a wider."""
    if old.equals(new):
        return row
    value = pa.array(_core.RowCodec(old).decode(pa.array([row], pa.binary()))).cast(logical(new))
    wide: bytes = pa.array(_core.RowCodec(new).encode(value))[0].as_py()
    return wide


def _text(state: StateRecord) -> str:
    types = ", ".join(f"{one.name}: {one.type}" for one in state.schema)
    return f"{state.kind}({types}){f', {state.function}' if state.function else ''}"
