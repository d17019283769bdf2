"""What a handle's text names, read as docs/formats says by JSON, Arrow and struct: nothing of Holdfast reads here."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa


def told(text: str, slot: Path) -> dict[str, Any]:
    """The document, in version 4 too with the whole names of manifests, and with all ``deltas`` as version 3 has them.
    ``slot``: the slot's folder in storage, where the newest delta says which were before it.
    """
    found: dict[str, Any] = json.loads(text)
    if found["version"] < 4:
        return found
    for row in found["snapshots"]:
        row[2] = f"snapshot/{row[0]:012d}-{row[1]}-{row[2]}.json"
    for row in found["superseded"]:
        row[2] = row[2] and f"snapshot/{row[0]:012d}-{row[2]}.json"
    newest = found.pop("delta")
    found["deltas"] = []
    if newest is not None:
        start = found["snapshots"][1][0] if len(found["snapshots"]) > 1 else found.get("origin", 0)
        sequence, version = found["sequence"], found["version_id"]
        if sequence > start + 1:
            path = slot / f"delta/{sequence:012d}-{version}.arrow"
            with pa.OSFile(str(path)) as file:
                packed = pa.ipc.open_file(file).schema.metadata[b"holdfast.lineage"]
            found["deltas"] = [row for row in _unpacked(base64.b64decode(packed), sequence) if row[0] > start]
        found["deltas"].append([sequence, version, *newest[:2]])
        assert [row[0] for row in found["deltas"]] == list(range(start + 1, sequence + 1))
    return found


def _unpacked(data: bytes, sequence: int) -> list[list[Any]]:
    count, run_count, attempt_bytes, size_bytes = struct.unpack("<IIBB", data[:10])
    at, runs = 10, []
    for _ in range(run_count):
        run, length = struct.unpack("<QI", data[at : at + 12])
        runs += [run] * length
        at += 12
    columns = []
    for width in (attempt_bytes, size_bytes, 8):
        columns.append([int.from_bytes(data[at + n * width :][:width], "little") for n in range(count)])
        at += count * width
    assert at == len(data) and len(runs) == count
    rows = zip(range(sequence - count, sequence), runs, *columns)
    return [[n, f"{run:016x}{attempt:016x}", size, f"{checksum:016x}"] for n, run, attempt, size, checksum in rows]
