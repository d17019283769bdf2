"""Arrays taken apart, down to what is not nested, and put together as another type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from holdfast.arrow.types import is_list, unencoded

_OFFSET_WIDTHS = {
    **dict.fromkeys((pa.string(), pa.binary()), np.int32),
    **dict.fromkeys((pa.large_string(), pa.large_binary()), np.int64),
}


def by_parts(array: pa.Array, expected: pa.DataType, leaves: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """``array`` as ``expected``, fields of structs by their names; ``leaves`` casts what is not nested.

    Arrow's own cast of nested values would fill a missing field with nulls, reads what lies below nulls, and before
    pyarrow 21 knows fields by their places.
    """
    if array.type.equals(expected):
        return array
    array = decoded(array.storage if isinstance(array, pa.ExtensionArray) else array)
    found = array.type
    if found.equals(expected):
        return array
    if is_type.is_null(found):
        return pa.nulls(len(array), expected)
    mask = array.is_null() if array.null_count else None
    if is_type.is_struct(found):
        columns = array.flatten()
        children = [by_parts(columns[found.get_field_index(field.name)], field.type, leaves) for field in expected]
        return pa.StructArray.from_arrays(children, fields=list(expected), mask=mask)
    if is_type.is_map(found):
        entries, offsets = _map_entries(array)
        keys = by_parts(entries.field(0), expected.key_type, leaves)
        items = by_parts(entries.field(1), expected.item_type, leaves)
        return pa.MapArray.from_arrays(offsets, keys, items, expected)
    if is_list(found):
        return _list_of(by_parts(array.flatten(), expected.value_type, leaves), array, expected, mask)
    return leaves(array, expected)


def decoded(array: pa.Array) -> pa.Array:
    """The array itself, without the storage variants that Arrow cannot look into."""
    if is_type.is_run_end_encoded(array.type):
        return decoded(pc.run_end_decode(array))
    if is_type.is_dictionary(array.type):
        return decoded(array.dictionary_decode())
    return array


def wholly_decoded(array: pa.Array) -> pa.Array:
    """The array itself, without those variants at any depth."""
    return by_parts(array, unencoded(array.type), pa.Array.cast)


def size_bytes(rows: pa.RecordBatch | pa.Array) -> int:
    """About the memory of a batch's rows, or of an array. Older pyarrow (seen with 18) does not know it of views: then
    all that its buffers hold, of which its rows may be a part.
    """
    try:
        return int(rows.nbytes)
    except pa.ArrowTypeError:
        return int(rows.get_total_buffer_size())


def decoded_bytes(array: pa.Array) -> int:
    """About the memory of an array once each row has a value of its own, where now there are dictionaries or runs."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    found = array.type
    if unencoded(found).equals(found):
        return size_bytes(array)
    if is_type.is_dictionary(found):
        codes = array.indices.drop_null() if array.indices.null_count else array.indices
        return _bytes_at(array.dictionary, codes.to_numpy())
    if is_type.is_run_end_encoded(found):
        first, runs = array.find_physical_offset(), array.find_physical_length()
        ends = array.run_ends[first : first + runs].to_numpy().astype(np.int64) - array.offset
        counts = np.diff(np.minimum(ends, len(array)), prepend=0)
        return _bytes_at(array.values, np.arange(first, first + runs), counts)
    if is_type.is_map(found):
        return sum(map(decoded_bytes, _map_entries(array)[0].flatten()))
    return sum(map(decoded_bytes, array.flatten())) if is_type.is_struct(found) else decoded_bytes(array.flatten())


def _bytes_at(values: pa.Array, rows: npt.NDArray[Any], counts: npt.NDArray[np.int64] | None = None) -> int:
    """Of the values at these rows, each once or so often: of texts and bytes by their lengths, of others by the mean of
    all. No other texts are looked at: many slices may share one large dictionary.
    """
    width = _OFFSET_WIDTHS.get(values.type)
    if width is None:
        there = len(rows) if counts is None else int(counts.sum())
        return decoded_bytes(values) * there // max(len(values), 1)
    if not len(rows):
        return 0
    offsets = np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values) + 1]
    lengths = (offsets[1:][rows] - offsets[:-1][rows]).astype(np.int64)
    return int(lengths.sum() if counts is None else np.dot(lengths, counts))


def combined(values: Any) -> pa.Array:
    """One array of a chunked one.

    Raises
    ------
    pyarrow.ArrowInvalid
        It would be longer than its offsets can say.
    """
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    if not values.num_chunks:
        return pa.array([], values.type)
    # Each chunk has a dictionary of its own, and Arrow makes one of them only where its indices are wide enough.
    return pa.concat_arrays([wholly_decoded(chunk) for chunk in values.chunks])


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, at least one, as one: ``pyarrow.concat_batches``, which pyarrow 18 does not have.

    Raises
    ------
    pyarrow.ArrowInvalid
        A column would be longer than its offsets can say.
    """
    if len(batches) == 1:
        return batches[0]
    schema: pa.Schema = batches[0].schema
    columns = [pa.concat_arrays([batch.column(number) for batch in batches]) for number in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in memory of their own: a slice, or one column of a batch, keeps alive all that it was cut from."""
    return pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in rows.columns], schema=rows.schema)


def list_lengths(lists: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many elements each list has; a null one has none, whatever its offsets say."""
    lengths: np.ndarray[Any, np.dtype[np.int64]] = (
        pc.list_value_length(lists).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return lengths


def elements(offsets: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Where the elements, or entries, lie that belong to lists, or maps, which are there; and the offsets of these end
    to end.
    """
    lengths = np.where(valid, np.diff(offsets), 0)
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1] if len(ends) else 0) + np.repeat(offsets[:-1] - (ends - lengths), lengths)
    return pa.array(rows, pa.int64()), np.concatenate([[0], ends]).astype(np.int64)


def entry_lists(maps: pa.MapArray) -> pa.ListArray:
    """Maps as lists of their entries, structs of key and value: Arrow looks into those, wherever a slice begins."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    offsets = pa.array(maps.offsets.to_numpy(), pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, mask=pa.array(maps.is_null().to_numpy(zero_copy_only=False)))


def _map_entries(maps: pa.MapArray) -> tuple[pa.StructArray, pa.Array]:
    """The entries of maps that are there, end to end, and where each map begins: null where there is none.

    As lists, since Arrow takes no rows of views or of runs, which may be anywhere in the entries.
    """
    lists = entry_lists(maps)
    nulls = lists.is_null().to_numpy(zero_copy_only=False)
    ends = np.cumsum(list_lengths(lists))
    return lists.flatten(), pa.array(np.concatenate([[0], ends]), pa.int32(), mask=np.append(nulls, False))


def _list_of(values: pa.Array, lists: pa.Array, expected: pa.DataType, mask: pa.Array | None) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(list_lengths(lists))])
    if is_type.is_large_list(expected):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=expected, mask=mask)
    flexible = pa.list_(expected.value_field)
    made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=flexible, mask=mask)
    # Arrow refuses a cast even to the same type where a field that is never null has nulls, be it below a null.
    return made if flexible.equals(expected) else made.cast(expected)
