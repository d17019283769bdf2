"""Small documents that check themselves:
JSON in one canonical spelling, with format, version and a checksum over the rest.

The text must be exactly what :func:`seal` wrote: any change of any byte is found. See docs/formats/handle.md.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast._core import xxh64
from holdfast.errors import Corrupt, Incompatible

#: Bytes whose XXH64 is kept are read and written with this seed.
CHECKSUM_DIGITS = 16


def checksum_of(data: bytes | bytearray | memoryview) -> str:
    """XXH64 with seed 0, as 16 hexadecimal digits."""
    return f"{xxh64(data):0{CHECKSUM_DIGITS}x}"


def seal(format_name: str, version: int, fields: dict[str, Any]) -> str:
    """The text of a document."""
    document = {**fields, "format": format_name, "version": version}
    return _canonical({**document, "checksum": checksum_of(_canonical(document).encode())})


def unseal(text: str | bytes, format_name: str, version: int, where: str) -> dict[str, Any]:
    """The fields of a document.

    Parameters
    ----------
    version
        The newest version that the caller reads.
    where
        What the document is and where it was found, for errors.

    Raises
    ------
    Corrupt
        Not the text that was written.
    Incompatible
        Written by a newer version of Holdfast.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        document = json.loads(decoded)
        checksum = document.pop("checksum")
        body = _canonical(document)
        whole = _canonical({**document, "checksum": checksum})
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(
            f"{where} is damaged: expected a sealed JSON document, found {_excerpt(text)} ({error!r})"
        ) from error
    if checksum != checksum_of(body.encode()) or whole != decoded:
        raise Corrupt(f"{where} is damaged: its checksum says {checksum!r}, its text {checksum_of(body.encode())!r}")
    if document.pop("format", None) != format_name:
        raise Corrupt(f"{where} is not what was expected there: expected a document of format {format_name!r}")
    found = document.pop("version", None)
    if not isinstance(found, int) or not 1 <= found <= version:
        raise Incompatible(
            f"{where} has version {found!r} of {format_name}; this Holdfast reads versions 1 to {version}. "
            "Upgrade Holdfast"
        )
    return dict(document)


def _canonical(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _excerpt(text: str | bytes) -> str:
    return repr(text if len(text) <= 80 else text[:80]) + f" ({len(text)} long)"
