"""Nulls below nulls, in fields that are never null: they go, and each value stays. The oracle is plain Python."""

from __future__ import annotations

import io
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_type
import pytest

from holdfast.arrow.nullability import without_nulls_below_nulls

LEAVES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int32(), [0, -1, 1 << 30]),
    (pa.float64(), [0.5, float("inf")]),
    (pa.string(), ["", "a", "Σ" * 9]),
    (pa.binary(), [b"", b"\0\xff"]),
    (pa.large_string(), ["", "large"]),
    (pa.decimal128(5, 2), [Decimal("1.25"), Decimal("-0.01")]),
    (pa.binary(2), [b"ab", b"\0\0"]),
]


def some_type(draw: random.Random, depth: int) -> pa.DataType:
    if not depth or draw.random() < 0.2:
        return draw.choice(LEAVES)[0]

    def field(name: str) -> pa.Field:
        return pa.field(name, some_type(draw, depth - 1), draw.random() < 0.4)

    kind = draw.choice(["struct", "struct", "list", "large list", "map"])
    if kind == "struct":
        return pa.struct([field(f"f{number}") for number in range(draw.randint(1, 3))])
    if kind == "map":
        return pa.map_(pa.field("key", draw.choice(LEAVES)[0], False), field("value"))
    return (pa.large_list if kind == "large list" else pa.list_)(field("element"))


def some_value(draw: random.Random, kind: pa.DataType, nullable: bool) -> Any:
    if nullable and draw.random() < 0.4:
        return None
    if is_type.is_struct(kind):
        return {field.name: some_value(draw, field.type, field.nullable) for field in kind}
    lengths = range(draw.randint(0, 3))
    if is_type.is_map(kind):
        item = kind.item_field
        return [(some_value(draw, kind.key_type, False), some_value(draw, item.type, item.nullable)) for _ in lengths]
    if is_type.is_nested(kind):
        return [some_value(draw, kind.value_type, kind.value_field.nullable) for _ in lengths]
    return draw.choice(next(values for leaf, values in LEAVES if leaf == kind))


def as_spark_has_it(values: list[Any], kind: pa.DataType) -> pa.Array:
    """All below a null is null, whether or not the type knows of nulls there; a null list has an element too."""
    if not is_type.is_nested(kind):
        return pa.array(values, kind)
    mask = pa.array([value is None for value in values], pa.bool_())
    if is_type.is_struct(kind):
        below = [[None if value is None else value[field.name] for value in values] for field in kind]
        made = [as_spark_has_it(column, field.type) for column, field in zip(below, kind)]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=mask)
    offsets, elements = [0], list[Any]()
    for value in values:
        elements += value if value is not None else [(b"none", None)] if is_type.is_map(kind) else [None]
        offsets.append(len(elements))
    if not is_type.is_map(kind):
        below = as_spark_has_it(elements, kind.value_type)
        if is_type.is_large_list(kind):
            return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), below, kind, mask=mask)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), below, kind, mask=mask)
    some_key = next(given[0] for leaf, given in LEAVES if leaf == kind.key_type)
    keys = pa.array([some_key if key == b"none" else key for key, _ in elements], kind.key_type)
    items = as_spark_has_it([item for _, item in elements], kind.item_type)
    starts = pa.array(offsets, pa.int32())
    validity = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(values), [validity, starts.buffers()[1]], children=[entries])


def through_parquet(array: pa.Array) -> pa.Array:
    schema = pa.schema([pa.field("column", array.type)])
    file = io.BytesIO()
    with pq.ParquetWriter(file, schema) as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    file.seek(0)
    found = pq.read_table(file)
    assert found.schema.field("column").type == array.type
    return found["column"].combine_chunks()


@pytest.mark.parametrize("seed", range(300))
def test_values_of_any_type_are_as_they_were_and_parquet_takes_them(seed: int) -> None:
    draw = random.Random(seed)
    kind = some_type(draw, 3)
    values = [some_value(draw, kind, nullable=True) for _ in range(draw.choice([0, 1, 7, 20]))]
    array = as_spark_has_it(values, kind)
    array.validate(full=True)
    at = draw.randint(0, len(values))
    for given, wanted in ((array, values), (array.slice(at), values[at:]), (array.slice(at, 3), values[at : at + 3])):
        found = without_nulls_below_nulls(given)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == wanted
        assert through_parquet(found).to_pylist() == wanted


REQUIRED = pa.struct([pa.field("id", pa.int64(), nullable=False)])


def test_an_array_that_is_all_null() -> None:
    for kind in (REQUIRED, pa.list_(REQUIRED), pa.struct([pa.field("inner", REQUIRED, nullable=False)])):
        array = as_spark_has_it([None] * 3, kind)
        assert through_parquet(without_nulls_below_nulls(array)).to_pylist() == [None] * 3


def test_a_null_of_its_own_stays_and_is_refused() -> None:
    """Nothing is made up for a value that ought to be there."""
    deep = pa.struct([pa.field("inner", REQUIRED, nullable=False)])
    for kind, values in (
        (REQUIRED, [{"id": 1}, {"id": None}, None]),
        (pa.list_(REQUIRED), [[{"id": None}], None]),
        (deep, [{"inner": None}, None]),
        (pa.list_(pa.field("element", pa.int64(), nullable=False)), [[1, None], None]),
    ):
        found = without_nulls_below_nulls(as_spark_has_it(values, kind))
        assert found.to_pylist() == values
        with pytest.raises(pa.ArrowInvalid, match="non-nullable but contains nulls"):
            through_parquet(found)


def test_an_array_that_has_no_such_null_is_left_alone() -> None:
    for values in ([{"id": 1}, {"id": 2}], []):
        array = as_spark_has_it(values, REQUIRED)
        assert without_nulls_below_nulls(array) is array
