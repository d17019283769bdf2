"""docs/formats/key.md and docs/formats/row.md once more, in plain Python: what the core's codecs are compared with."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterable

import pyarrow as pa

_EXACT = decimal.Context(prec=100)
_CANONICAL_NAN = {4: 0x7FC00000, 8: 0x7FF8000000000000}


def _integer(value: pa.Scalar) -> int:
    """The integer that stands for a value of an integer, decimal or temporal type."""
    if pa.types.is_decimal(value.type):
        return int(_EXACT.scaleb(value.as_py(), value.type.scale))
    if pa.types.is_temporal(value.type):
        value = value.cast(pa.int32() if value.type.bit_width == 32 else pa.int64())
    return int(value.as_py())


def _float_key(value: pa.Scalar, width: int) -> bytes:
    number = value.as_py()
    bits: int = struct.unpack("<Q" if width == 8 else "<I", struct.pack("<d" if width == 8 else "<f", number))[0]
    if number != number:
        bits = _CANONICAL_NAN[width]
    if number == 0:
        bits = 0
    sign = 1 << (width * 8 - 1)
    bits = bits ^ (2 * sign - 1) if bits & sign else bits | sign
    return bits.to_bytes(width, "big")


def key_bytes(value: pa.Scalar, null_keys: bool) -> bytes:
    """One key column of one row."""
    if null_keys and not value.is_valid:
        return b"\x00"
    marker = b"\x01" if null_keys else b""
    kind = value.type
    if pa.types.is_struct(kind):
        return marker + b"".join(key_bytes(value[i], null_keys) for i in range(kind.num_fields))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        plain = value.as_buffer().to_pybytes()
        return marker + plain.replace(b"\x00", b"\x00\xff") + b"\x00\x01"
    if pa.types.is_fixed_size_binary(kind):
        return marker + bytes(value.as_py())
    if pa.types.is_boolean(kind):
        return marker + (b"\x01" if value.as_py() else b"\x00")
    width = kind.bit_width // 8
    if pa.types.is_floating(kind):
        return marker + _float_key(value, width)
    flip = 0 if pa.types.is_unsigned_integer(kind) else 1 << (width * 8 - 1)
    return marker + (_integer(value) + flip).to_bytes(width, "big")


def keys_bytes(keys: Iterable[pa.Scalar], null_keys: bool) -> list[bytes]:
    """The keys of an array of structs, whose fields are the key columns."""
    return [b"".join(key_bytes(key[i], null_keys) for i in range(key.type.num_fields)) for key in keys]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bitmap(nulls: list[bool]) -> bytes:
    bits = sum(1 << i for i, null in enumerate(nulls) if null)
    return bits.to_bytes((len(nulls) + 7) // 8, "little")


def _optional_rows(values: list[pa.Scalar]) -> bytes:
    rows = [row_bytes(value) for value in values]
    return _bitmap([row is None for row in rows]) + b"".join(row for row in rows if row is not None)


def _map_bytes(value: pa.Scalar) -> bytes:
    out = _varint(len(value.values))
    for entry in value.values:
        row = row_bytes(entry[1])
        out += (row_bytes(entry[0]) or b"") + (b"\x00" if row is None else b"\x01" + row)
    return out


def row_bytes(value: pa.Scalar) -> bytes | None:
    """One value; None for a null."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return _optional_rows([value[i] for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return _map_bytes(value)
    if pa.types.is_list(kind):
        return _varint(len(value.values)) + _optional_rows(list(value.values))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        plain = value.as_buffer().to_pybytes()
        return _varint(len(plain)) + plain
    if pa.types.is_fixed_size_binary(kind):
        return bytes(value.as_py())
    if pa.types.is_boolean(kind):
        return b"\x01" if value.as_py() else b"\x00"
    width = kind.bit_width // 8
    if pa.types.is_floating(kind):
        return struct.pack("<d" if width == 8 else "<f", value.as_py())
    return _integer(value).to_bytes(width, "little", signed=not pa.types.is_unsigned_integer(kind))
