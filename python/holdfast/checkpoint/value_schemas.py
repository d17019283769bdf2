"""The schemas that a state's values were written with, and what the next one may be. Pure. docs/rfcs/0017

A field of a struct has a number that is its own for as long as the state lives, whatever the field is called and
wherever it stands: by it, values of an earlier schema are read as values of the newest. Numbers, and what values from
before a field have there, are in the fields' metadata. Format: docs/formats/operator.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from holdfast import _core
from holdfast.arrow.types import children, logical, nested, with_children
from holdfast.checkpoint.state_record import StateRecord
from holdfast.errors import HoldfastError

#: Of a stored value's schema version, six bits: docs/formats/value.md.
SCHEMAS_MAX = 63
NUMBER, DEFAULT = b"holdfast.field", b"holdfast.default"
_ELEMENT = {"list", "operator"}
_ANY_KEY = pa.schema([("key", pa.int8())])


def stored_role(state: StateRecord) -> str | None:
    """The role of the type that the store keeps; None where that does not go by what is declared."""
    if state.kind == "timers":
        return None
    if state.kind == "aggregating":
        return "accumulator" if "accumulator" in state.schema.names else None
    return "element" if state.kind in _ELEMENT else "value"


def stored_type(state: StateRecord, schema: pa.Schema) -> pa.DataType:
    """The type that the store keeps of a state that has such a role."""
    return schema.field(stored_role(state)).type


def numbered(state: StateRecord) -> tuple[pa.DataType, ...]:
    """The types that the store kept, the newest last, each plain and with numbers: as recorded, or those that a first
    schema has without saying so, in the order of its fields, each before what is in it.
    """
    if state.earlier:
        return tuple(stored_type(state, schema) for schema in (*state.earlier, state.schema))
    return (_with_numbers(logical(stored_type(state, state.schema)), iter(range(1, 1 << 31))),)


def follows(state: StateRecord, stored: pa.DataType, declared: pa.Schema) -> StateRecord:
    """The state with a new schema: ``declared``, but for what the store keeps, which is ``stored``, with numbers."""
    role, kept = stored_role(state), numbered(state)
    if kept[-1].equals(stored):  # what a program takes otherwise is not kept otherwise
        return replace(state, schema=_with_role(declared, role, stored_type(state, state.schema)))
    earlier = tuple(_with_role(was, role, each) for was, each in zip((*state.earlier, state.schema), kept))
    return replace(state, schema=_with_role(declared, role, stored), earlier=earlier)


def core_schemas(state: StateRecord) -> _core.ValueSchemas | None:
    """As the core reads values of all of them; None where there was one only."""
    if not state.earlier:
        return None
    *earlier, newest = (_by_number(kept) for kept in numbered(state))
    return _core.ValueSchemas(earlier, newest, defaults=list(_defaults(numbered(state)[-1], ())))


def plain_schema(state: StateRecord) -> pa.Schema:
    """The newest schema without numbers and defaults: as a table has it, or a savepoint, where it is the first."""
    role = stored_role(state)
    return _with_role(state.schema, role, _plain(stored_type(state, state.schema))) if state.earlier else state.schema


def check_schemas(state: StateRecord) -> None:
    """ValueError where the schemas of a state that is read contradict each other."""
    if not state.earlier:
        return
    if stored_role(state) is None or len(state.earlier) >= SCHEMAS_MAX:
        raise ValueError(f"state {state.name!r} has {len(state.earlier) + 1} schemas")
    for kept in numbered(state):
        numbers = [number_of(field) for field in struct_fields(kept)]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"state {state.name!r}: the numbers of its fields are {numbers}; expected each once")
    schemas = core_schemas(state)
    try:  # of the core, which makes of values of each of them values of the newest
        _core.StateCodec(_ANY_KEY, state_id=1, kind="value", max_parallelism=1, value=kept, schemas=schemas)
        for field in struct_fields(kept):
            default = default_of(field)
            if default is not None:
                pa.array(_core.RowCodec(field.type).decode(pa.array([default], pa.binary()))).validate(full=True)
    except HoldfastError as error:
        raise ValueError(f"state {state.name!r}: {error}") from error


def struct_fields(kept: pa.DataType) -> Iterator[pa.Field]:
    """All fields of structs in a type, each before what is in it."""
    for field in children(kept):
        if pa.types.is_struct(kept):
            yield field
        yield from struct_fields(field.type)


def number_of(field: pa.Field) -> int:
    """ValueError for a field without a number."""
    return int((field.metadata or {}).get(NUMBER, b"none"))


def default_of(field: pa.Field) -> bytes | None:
    """What values from before the field have there, as a row; None: null."""
    text = (field.metadata or {}).get(DEFAULT)
    return None if text is None else bytes.fromhex(text.decode())


def recorded_field(field: pa.Field, number: int, default: bytes | None) -> pa.Field:
    """The field as it is recorded: with nothing else of what a program says with it."""
    default_text = {} if default is None else {DEFAULT: default.hex()}
    return field.with_metadata({NUMBER: str(number), **default_text})


def _with_numbers(kept: pa.DataType, numbers: Iterator[int]) -> pa.DataType:
    if not nested(kept):
        return kept
    fields = []
    for field in children(kept):
        number = next(numbers) if pa.types.is_struct(kept) else None
        inner = field.with_type(_with_numbers(field.type, numbers))
        fields.append(inner if number is None else recorded_field(inner, number, None))
    return with_children(kept, fields)


def _plain(kind: pa.DataType) -> pa.DataType:
    if not nested(kind):
        return kind
    return with_children(kind, [field.remove_metadata().with_type(_plain(field.type)) for field in children(kind)])


def _with_role(schema: pa.Schema, role: str | None, kept: pa.DataType) -> pa.Schema:
    return pa.schema([field.with_type(kept) if field.name == role else field for field in schema])


def _by_number(kept: pa.DataType) -> pa.DataType:
    """The type with fields that are called by their numbers."""
    if not nested(kept):
        return kept
    fields = [field.with_type(_by_number(field.type)) for field in children(kept)]
    named = [field.with_name(str(number_of(field))) for field in fields] if pa.types.is_struct(kept) else fields
    return with_children(kept, named)


def _defaults(kept: pa.DataType, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    for at, field in enumerate(children(kept)):
        default = default_of(field)
        if default is not None:
            yield (*path, at), default
        yield from _defaults(field.type, (*path, at))
