"""The checksum that a delta's file has of itself, for who finds it before a handle names it. Format:
docs/formats/delta.md.

It stands in the schema's metadata, which an Arrow file has at both ends: XXH64 of the whole file, in which its own
digits are zeros. So the file is written with zeros first, and no byte of it changes unnoticed.
"""

from __future__ import annotations

import io
import os
import struct
from typing import Any

import pyarrow as pa

from holdfast._core import xxh64_file
from holdfast.errors import Corrupt, InternalError
from holdfast.sealed import CHECKSUM_DIGITS, checksum_of

KEY = "holdfast.checksum"
_KIND = "xxh64:"
_ZEROS = "0" * CHECKSUM_DIGITS
#: The metadata of a file that is being written.
TO_COME = {KEY: f"{_KIND}{_ZEROS}"}
#: What a flatbuffer has before the digits: the length of the value, then its beginning.
_BEFORE = struct.pack("<I", len(TO_COME[KEY])) + _KIND.encode()
#: At the end of a file: the length of the footer, and the magic.
_END = struct.Struct("<I6s")
#: At its beginning: the magic, what marks a message, and the length of the schema's.
_BEGINNING = struct.Struct("<8sII")


def put_into(data: pa.Buffer) -> None:
    """Puts the checksum of a file in memory, just written, into it."""
    view = memoryview(data).cast("B")
    digits = checksum_of(view).encode()
    for at in _both_places(pa.BufferReader(data)):
        view[at : at + CHECKSUM_DIGITS] = digits


def put_into_file(path: str) -> None:
    """As :func:`put_into`, of a file on this machine's disk."""
    digits = f"{xxh64_file(path)[0]:0{CHECKSUM_DIGITS}x}".encode()
    with open(path, "r+b") as file:
        for at in _both_places(file):
            file.seek(at)
            file.write(digits)


def check(data: bytes, where: str) -> None:
    """Corrupt for a file that is not what was written. That of an earlier Holdfast has no checksum, and passes."""
    places = _places(io.BytesIO(data))
    if not places:
        return
    said = {data[at : at + CHECKSUM_DIGITS].decode(errors="replace") for at in places}
    as_written = bytearray(data)
    for at in places:
        as_written[at : at + CHECKSUM_DIGITS] = _ZEROS.encode()
    found = checksum_of(as_written)
    if len(places) != 2 or said != {found}:
        raise Corrupt(
            f"{where} is damaged: its {len(data)} bytes have checksum {found}, and by what it says of itself "
            f"expected {' or '.join(sorted(said))} at both of its ends"
        )


def _both_places(file: Any) -> list[int]:
    places = _places(file)
    if len(places) != 2:
        raise InternalError(f"expected {KEY} at both ends of an Arrow file of pyarrow {pa.__version__}, found {places}")
    return places


def _places(file: Any) -> list[int]:
    """Where the digits stand: in the schema's message, and in the footer, which repeats it. Both, in a whole file."""
    size = file.seek(0, os.SEEK_END)
    if size < _BEGINNING.size + _END.size:
        return []
    file.seek(0)
    parts = [(_BEGINNING.size, _BEGINNING.unpack(file.read(_BEGINNING.size))[2])]
    file.seek(size - _END.size)
    footer_bytes = min(_END.unpack(file.read(_END.size))[0], size - _END.size)
    parts.append((size - _END.size - footer_bytes, footer_bytes))
    found = []
    for start, length in parts:
        file.seek(start)
        text = file.read(length)
        inside = text.find(_BEFORE)  # an operator may be called so: what is last in the metadata is found first
        if inside >= 0 and KEY.encode() in text:
            found.append(start + inside + len(_BEFORE))
    return found
