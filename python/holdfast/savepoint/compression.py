"""How the columns of a savepoint's tables are compressed: by zstd, but for those that do not get smaller by it.

What is random, encrypted or compressed already would take as long to compress as all else of a savepoint.
Pure functions.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_type

ZSTD_LEVEL = 1
#: Of a column this many places are tried, so many rows and bytes of each at most.
_PLACES, _PLACE_ROWS, _PLACE_BYTES = 16, 1024, 64 << 10
_SAMPLE_BYTES_MIN = 4 << 10
#: Compressed to more than this part of its size, a column is better left as it is.
_WORTH_MAX = 0.95


def codecs(rows: pa.Table) -> dict[str, str]:
    """The codec of each of Parquet's columns, by its path, for a file that begins with these rows."""
    buffer = io.BytesIO()
    pq.write_table(rows.schema.empty_table(), buffer)
    schema = pq.read_metadata(buffer).schema
    whole = {field.name for field in rows.schema if _is_bytes(field.type) and not _shrinks(rows.column(field.name))}
    paths = [schema.column(number).path for number in range(len(schema))]
    return {path: "none" if path in whole else "zstd" for path in paths}


def _is_bytes(type: pa.DataType) -> bool:
    return bool(is_type.is_binary(type) or is_type.is_string(type))


def _shrinks(column: pa.ChunkedArray) -> bool:
    step = max(1, len(column) // _PLACES)
    rows = min(step, _PLACE_ROWS)
    parts = (column.slice(place, rows) for place in range(0, len(column), step))
    sample = b"".join(_bytes(chunk) for part in parts for chunk in part.chunks[:1])
    if len(sample) < _SAMPLE_BYTES_MIN:
        return True
    return len(pa.Codec("zstd", ZSTD_LEVEL).compress(sample)) < _WORTH_MAX * len(sample)


def _bytes(values: pa.Array) -> bytes:
    """The first of a part of a column, without what is between them."""
    data = values.buffers()[2]
    if data is None:
        return b""
    offsets = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset)
    first, end = offsets[0].as_py(), offsets[len(values)].as_py()
    return bytes(data.slice(first, min(end - first, _PLACE_BYTES)))
