"""What a delta's file says of the deltas before it, packed. Format: docs/formats/delta.md.

A handle names its newest delta by size and checksum, so they vouch for the file, and the file for the rest. Nothing of
it is trusted all the same: a checksum tells damage, not lies. Column by column, since a batch packs some hundred.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.checkpoint.handle import DeltaRef
from holdfast.errors import InternalError
from holdfast.sealed import CHECKSUM_DIGITS

#: Number of deltas, number of stretches of one run, bytes of an attempt, bytes of a size.
_HEADER = struct.Struct("<IIBB")
_STRETCH = np.dtype([("run", "<u8"), ("deltas", "<u4")])
_WIDTHS = {4: "<u4", 8: "<u8"}
_CHECKSUM_BYTES = 8
_ID_DIGITS = 32


def pack(deltas: Sequence[DeltaRef]) -> str:
    """``deltas``, oldest first and without a gap, as text."""
    halves = _numbers([delta.version_id for delta in deltas], _ID_DIGITS).reshape(-1, 2)
    runs, attempts = halves[:, 0], halves[:, 1]
    begins = np.flatnonzero(np.concatenate(([True], runs[1:] != runs[:-1]))) if deltas else np.empty(0, np.int64)
    stretches = np.empty(len(begins), _STRETCH)
    stretches["run"] = runs[begins]
    stretches["deltas"] = np.diff(begins, append=len(deltas))
    sizes = np.array([delta.size_bytes for delta in deltas], np.uint64)
    attempt_bytes, size_bytes = _width(attempts), _width(sizes)
    packed = (
        _HEADER.pack(len(deltas), len(stretches), attempt_bytes, size_bytes),
        stretches.tobytes(),
        attempts.astype(_WIDTHS[attempt_bytes]).tobytes(),
        sizes.astype(_WIDTHS[size_bytes]).tobytes(),
        _numbers([delta.checksum for delta in deltas], CHECKSUM_DIGITS).astype("<u8").tobytes(),
    )
    return base64.b64encode(b"".join(packed)).decode()


def unpack(text: str, sequence: int) -> tuple[DeltaRef, ...]:
    """The deltas before that of version ``sequence``; ValueError for what was not packed so."""
    data = base64.b64decode(text, validate=True)
    if len(data) < _HEADER.size:
        raise ValueError(f"expected {_HEADER.size} bytes or more, found {len(data)}")
    count, stretch_count, attempt_bytes, size_bytes = _HEADER.unpack_from(data)
    if attempt_bytes not in _WIDTHS or size_bytes not in _WIDTHS:
        raise ValueError(f"expected numbers of 4 or 8 bytes, found {attempt_bytes} and {size_bytes}")
    widths = (attempt_bytes, size_bytes, _CHECKSUM_BYTES)
    expected = _HEADER.size + stretch_count * _STRETCH.itemsize + count * sum(widths)
    if len(data) != expected:
        raise ValueError(f"expected {expected} bytes of {count} deltas in {stretch_count} runs, found {len(data)}")
    if count >= sequence:
        raise ValueError(f"{count} deltas cannot have been before that of version {sequence}")
    stretches = np.frombuffer(data, _STRETCH, stretch_count, _HEADER.size)
    lengths = stretches["deltas"].astype(np.uint64)
    if int(lengths.sum()) != count or not lengths.all():
        raise ValueError(f"expected runs of {count} deltas together, each of some, found {int(lengths.sum())}")
    columns, at = [], _HEADER.size + stretches.nbytes
    for width in widths:
        columns.append(np.frombuffer(data, _WIDTHS[width], count, at))
        at += width * count
    halves = np.empty((count, 2), ">u8")
    halves[:, 0], halves[:, 1] = np.repeat(stretches["run"], stretches["deltas"]), columns[0]
    ids, checksums = _texts(halves, _ID_DIGITS), _texts(columns[2].astype(">u8"), CHECKSUM_DIGITS)
    return tuple(map(DeltaRef, range(sequence - count, sequence), ids, columns[1].tolist(), checksums))


def _width(numbers: np.ndarray[Any, Any]) -> int:
    return 4 if not len(numbers) or int(numbers.max()) < 1 << 32 else 8


def _numbers(texts: Sequence[str], digits: int) -> np.ndarray[Any, Any]:
    """Of texts of so many hexadecimal digits, each eight bytes of them as a number."""
    joined = "".join(texts)
    try:
        found = bytes.fromhex(joined)
    except ValueError:
        found = b""
    if found.hex() != joined or any(len(text) != digits for text in texts):
        raise InternalError(f"expected {digits} hexadecimal digits each, found {texts}")
    return np.frombuffer(found, ">u8")


def _texts(numbers: np.ndarray[Any, Any], digits: int) -> list[str]:
    joined = numbers.tobytes().hex()
    return [joined[at : at + digits] for at in range(0, len(joined), digits)]
