"""The columns of a state as a table: which there are, what they are called, of which types; in memory and in Parquet.

One table for every reader: a checkpoint that is read and a savepoint that is written have the same columns. Format:
docs/formats/savepoint.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from holdfast.arrow.types import is_list, unwrapped
from holdfast.errors import Incompatible, InvalidRequest

TIME = pa.timestamp("us", "UTC")
EXPIRY = pa.timestamp("ms", "UTC")
KEYED_KINDS = ("value", "list", "map", "reducing", "aggregating", "timers")
KINDS = (*KEYED_KINDS, "broadcast", "operator")

#: That a decimal has at most in Parquet where every reader knows it.
_DECIMAL_DIGITS = 38
_MEAN = pa.struct([pa.field("sum", pa.float64(), False), pa.field("count", pa.int64(), False)])
_VARIANCE = pa.struct(
    [pa.field("count", pa.int64(), False), pa.field("mean", pa.float64(), False), pa.field("m2", pa.float64(), False)]
)
#: What the functions of the core gather (docs/formats/value.md), and what they give.
ACCUMULATORS: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "count": (pa.int64(), pa.int64()),
    "avg": (_MEAN, pa.float64()),
    "variance": (_VARIANCE, pa.float64()),
    "stddev": (_VARIANCE, pa.float64()),
}
SKETCH = "approx_count_distinct"


@dataclass(frozen=True)
class StateColumns:
    """The columns of one state.

    Attributes
    ----------
    kind
        Of the state.
    key
        The key columns; none of states that belong to no key.
    fields
        By role, in their order, all but the key: types as in memory.
    names
        By role.
    kept
        By role, the types of what the store keeps: map key, and value, element or accumulator.
    """

    kind: str
    key: pa.Schema
    fields: dict[str, pa.Field]
    names: dict[str, str]
    kept: dict[str, pa.DataType]

    @classmethod
    def of(cls, key_schema: pa.Schema, kind: str, schema: pa.Schema, function: str | None) -> StateColumns:
        """Of a state as it is recorded with its operator (docs/formats/operator.md); KeyError where the record lacks
        what its kind has.
        """
        keyed = kind in KEYED_KINDS
        key = pa.schema([field.with_type(table_type(field.type)) for field in key_schema] if keyed else [])
        roles: dict[str, pa.Field] = {}
        kept: dict[str, pa.DataType] = {}

        def add(role: str, type: pa.DataType, nullable: bool = True) -> None:
            roles[role] = pa.field(role, table_type(type), nullable)
            kept[role] = type

        if kind == "operator":
            add("slot", pa.uint16(), False)
        if kind == "timers":
            add("time", TIME, False)
            add("namespace", pa.string(), False)
        if kind in ("list", "operator"):
            add("position", pa.int64(), False)
        if kind in ("map", "broadcast"):
            add("map_key", schema.field("key").type, False)
        if kind == "aggregating":
            accumulator, result = _aggregate(schema, function)
            add("accumulator", accumulator, False)
            if result is not None:
                add("value", result)
        elif kind != "timers":
            add("value", schema.field("element" if kind in ("list", "operator") else "value").type)
        if keyed and kind != "timers":
            add("expiry", EXPIRY)
        if keyed:
            add("key_group", pa.uint16(), False)
        return cls(kind, key, roles, _free_names(key.names, roles), kept)

    @property
    def schema(self) -> pa.Schema:
        """Of the table, as it is in memory."""
        own = [field.with_name(self.names[role]) for role, field in self.fields.items()]
        return pa.schema([*self.key, *own])

    @property
    def parquet_schema(self) -> pa.Schema:
        """Of the table, as it is in Parquet; Incompatible for types that Parquet does not have."""
        return parquet_schema(self.schema)

    @property
    def stored(self) -> pa.DataType | None:
        """The type of what the store keeps: value, element or accumulator; None of timers."""
        return self.kept.get("accumulator", self.kept.get("value"))

    def by_role(self) -> dict[str, Any]:
        """As the manifest says it."""
        return {**({"key": self.key.names} if len(self.key) else {}), **self.names}


def _aggregate(schema: pa.Schema, function: str | None) -> tuple[pa.DataType, pa.DataType | None]:
    """What an aggregating state gathers and gives; None: only the user's code knows the result."""
    if function in ACCUMULATORS:
        return ACCUMULATORS[function]
    return (pa.binary(), pa.int64()) if function == SKETCH else (schema.field("accumulator").type, None)


def _free_names(taken: list[str], roles: dict[str, pa.Field]) -> dict[str, str]:
    """Readers of tables take names that differ in case alone for one."""
    seen = {name.casefold() for name in taken}
    names = {}
    for role in roles:
        name = role
        while name.casefold() in seen:
            name += "_"
        seen.add(name.casefold())
        names[role] = name
    return names


def table_type(type: pa.DataType) -> pa.DataType:
    """The type as a table has it: dictionaries, views, extensions and large variants are what they hold, and any field
    may be null: Parquet refuses a null of a struct whose fields may not.
    """
    type = unwrapped(type)
    if is_type.is_struct(type):
        return pa.struct([pa.field(field.name, table_type(field.type)) for field in type])
    if is_type.is_map(type):
        return pa.map_(table_type(type.key_type), table_type(type.item_type))
    if is_list(type):
        return pa.list_(table_type(type.value_type))
    return type


def as_type(column: pa.Array, type: pa.DataType) -> pa.Array:
    """A column in another spelling of its type. Arrow refuses to cast nulls into a type that they have already, where
    that has fields that are not null; and of dates in milliseconds it takes whole days only.
    """
    if column.type.equals(type):
        return column
    return column.view(type) if is_type.is_date64(type) or is_type.is_date64(column.type) else column.cast(type)


def check_filter(schema: pa.Schema, filter: pc.Expression | None) -> None:
    """InvalidRequest for what is no condition on these columns."""
    if filter is None:
        return
    try:
        schema.empty_table().filter(filter)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequest(
            f"filter: expected a condition on columns of ({', '.join(schema.names)}), found {filter}: {error}"
        ) from None


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Of plain columns, as they are in Parquet; Incompatible for types that Parquet does not have."""
    return pa.schema([field.with_type(parquet_type(field.type, field.name)) for field in schema])


def as_parquet(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows by the :func:`parquet_schema` of their columns; Incompatible for a value that Parquet does not hold."""
    columns = []
    for field, column in zip(schema, batch.columns):
        try:
            columns.append(as_type(column, field.type))
        except pa.ArrowInvalid as error:
            raise Incompatible(f"column {field.name!r} has a value that Parquet does not hold: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def parquet_type(type: pa.DataType, where: str) -> pa.DataType:
    """A plain type as Parquet holds it without loss; Incompatible where it does not."""
    if is_type.is_timestamp(type) and type.unit == "s":
        return pa.timestamp("ms", type.tz)
    if is_type.is_date64(type):
        return pa.timestamp("ms")
    if is_type.is_time32(type) and type.unit == "s":
        return pa.time32("ms")
    if is_type.is_decimal(type):
        return _parquet_decimal(type, where)
    if is_type.is_struct(type):
        if not type.num_fields:
            raise Incompatible(
                f"column {where!r} has a struct without fields, which Parquet cannot hold: make no savepoint in "
                "Parquet, and no file, of this state; read it as Arrow from the checkpoint instead"
            )
        return pa.struct([field.with_type(parquet_type(field.type, where)) for field in type])
    if is_type.is_map(type):
        item = type.item_field
        return pa.map_(parquet_type(type.key_type, where), item.with_type(parquet_type(item.type, where)))
    if is_list(type):
        return pa.list_(type.value_field.with_type(parquet_type(type.value_type, where)))
    return type


def _parquet_decimal(type: pa.DataType, where: str) -> pa.DataType:
    """Parquet has no scale below zero, and none above the precision: as many digits more."""
    scale = max(type.scale, 0)
    digits = max(type.precision - min(type.scale, 0), scale)
    if digits > _DECIMAL_DIGITS:
        raise Incompatible(
            f"column {where!r}: expected decimals that Parquet can hold, of {_DECIMAL_DIGITS} digits, scale 0 or more, "
            f"found {type}, which needs {digits} digits then; a native savepoint has it (--format native), or read it "
            "as Arrow from the checkpoint"
        )
    return type if (digits, scale) == (type.precision, type.scale) else pa.decimal128(digits, scale)
