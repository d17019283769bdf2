"""Arrow types taken apart and put together again, and what is one type to the core. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as is_type


def is_list(kind: pa.DataType) -> bool:
    """Whether its values are lists, of whatever layout."""
    kinds = (is_type.is_list, is_type.is_large_list, is_type.is_fixed_size_list)
    views = (is_type.is_list_view, is_type.is_large_list_view)
    return any(of_kind(kind) for of_kind in (*kinds, *views))


def nested(kind: pa.DataType) -> bool:
    """Whether it has fields, elements or entries; storage variants of others have not."""
    return is_type.is_struct(kind) or is_type.is_map(kind) or is_list(kind)


def children(kind: pa.DataType) -> list[pa.Field]:
    """Of a struct its fields, of a list its element, of a map key and value; of others none."""
    if is_type.is_struct(kind):
        return [kind.field(at) for at in range(kind.num_fields)]
    if is_type.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if is_list(kind) else []


def has_floats(kind: pa.DataType) -> bool:
    """Whether it has floating-point numbers, at any depth."""
    return bool(is_type.is_floating(kind)) or any(has_floats(field.type) for field in children(kind))


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of the one is one of the other, which holds more; of types without fields."""
    if old.equals(new):
        return True
    if is_type.is_integer(old) and is_type.is_integer(new):
        wider = new.bit_width > old.bit_width
        return bool(wider and (is_type.is_signed_integer(new) or is_type.is_unsigned_integer(old)))
    if is_type.is_float32(old) and is_type.is_float64(new):
        return True
    decimals = is_type.is_decimal(old) and is_type.is_decimal(new)
    return bool(decimals and old.scale == new.scale and old.precision <= new.precision)


def with_children(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The nested type with others in the place of its own; of lists the plain kind, but for those of a fixed size."""
    if is_type.is_struct(kind):
        return pa.struct(list(fields))
    if is_type.is_map(kind):
        return pa.map_(fields[0], fields[1], keys_sorted=kind.keys_sorted)
    if is_type.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return pa.list_(fields[0])


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type of which everything within may be null, at any depth, but for the keys of maps."""
    if not nested(kind):
        return kind
    inner = [field.with_type(nullable(field.type)).with_nullable(True) for field in children(kind)]
    if is_type.is_map(kind):
        inner[0] = inner[0].with_nullable(False)
    return with_children(kind, inner)


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, of which all may be null, at any depth."""
    return pa.schema([pa.field(field.name, nullable(field.type)) for field in schema])


def unwrapped(kind: pa.DataType) -> pa.DataType:
    """Of extensions and dictionaries what they hold, of texts and bytes the plain kind. What is nested stays."""
    if isinstance(kind, pa.BaseExtensionType):
        return unwrapped(kind.storage_type)
    if is_type.is_dictionary(kind):
        return unwrapped(kind.value_type)
    if is_type.is_large_string(kind) or is_type.is_string_view(kind):
        return pa.string()
    if is_type.is_large_binary(kind) or is_type.is_binary_view(kind):
        return pa.binary()
    return kind


def unencoded(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries and runs, at any depth: Arrow does not put those of several arrays together."""
    if isinstance(kind, pa.BaseExtensionType):
        stored = unencoded(kind.storage_type)
        return kind if stored.equals(kind.storage_type) else stored
    if is_type.is_dictionary(kind) or is_type.is_run_end_encoded(kind):
        return unencoded(kind.value_type)
    fields = children(kind)
    plain = [field.with_type(unencoded(field.type)) for field in fields]
    return kind if plain == fields else with_children(kind, plain)


def logical(kind: pa.DataType) -> pa.DataType:
    """The type without what is storage alone, at any depth: extensions, dictionaries, views, large variants."""
    kind = unwrapped(kind)
    fields = [field.with_type(logical(field.type)) for field in children(kind)]
    if is_list(kind) and not is_type.is_fixed_size_list(kind):
        return pa.list_(fields[0])
    return with_children(kind, fields) if nested(kind) else kind
