"""Time to live across a change of slots: one version out of several that have expired to different cutoffs. Pure.

Nothing that was alive in its own slot dies by it, and nothing that had expired there comes back: entries go by their
own slot's cutoff on the way, and the new version has the least cutoff of all. docs/rfcs/0015, docs/formats/value.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.checkpoint.delta_file import DELTA_SCHEMA
from holdfast.checkpoint.expiry import NOT_BEGUN, NOTHING_EXPIRED, StateExpiry
from holdfast.errors import Corrupt, Incompatible

_STAMPED = 0x80
_STAMP = struct.Struct(">q")
_STAMPED_BYTES = 1 + _STAMP.size

Expiry = tuple[StateExpiry, ...]


def merged_expiry(versions: Sequence[Expiry], where: str) -> Expiry:
    """The expiry of a version that holds the entries of all ``versions``, each carried by :func:`carried`.

    Raises
    ------
    Incompatible
        A state's TTL counts by different times in different slots.
    """
    by_state: dict[int, list[StateExpiry]] = {}
    for version in versions:
        for state in version:
            by_state.setdefault(state.state_id, []).append(state)
    merged = []
    for state_id, found in sorted(by_state.items()):
        if len({state.time for state in found}) > 1:
            raise Incompatible(
                f"{where}: state {state_id} counts its time to live in processing time in some slots, in event time in "
                "others; its entries cannot be put together. Let the earlier query run until all of its slots had rows"
            )
        ttls = [state.ttl_ms for state in found if state.ttl_ms is not None]
        not_begun = any(state.floor_ms == NOT_BEGUN for state in found)
        merged.append(
            replace(
                found[0],
                ttl_ms=max(ttls, default=None),
                since_ms=max(state.since_ms for state in found),
                cutoff_ms=min(state.cutoff_ms for state in found),
                latest_ms=max(state.latest_ms for state in found),
                floor_ms=NOT_BEGUN if not_begun else None,  # others are in the stamps from here on
            )
        )
    return tuple(merged)


def carried(batch: pa.RecordBatch, own: Expiry, merged: Expiry, where: str) -> pa.RecordBatch:
    """What is alive of a slot's entries, as they stand under ``merged``.

    Parameters
    ----------
    batch
        As a delta's: key_group, state, key, value.
    own
        Of the version that the entries are of.
    """
    by_state = {state.state_id: state for state in own}
    states = batch["state"].to_numpy()
    kept = np.ones(len(batch), dtype=bool)
    restamped: dict[int, bytes] = {}
    for state in merged:
        rows = np.flatnonzero(states == state.state_id)
        if not len(rows):
            continue
        before = by_state.get(state.state_id)
        # In a slot that no batch has seen since its state got a TTL, entries begin to age where the newest slot is.
        newest_ms = state.latest_ms if state.counts else state.since_ms
        unstamped_ms = before.since_ms if before else newest_ms
        values = batch["value"]
        stamps, stamped = _stamps(values, rows, unstamped_ms, where)
        if before:
            kept[rows] = stamps > before.cutoff_ms
        floor_ms = _floor(before, state)
        anew = stamps < floor_ms
        if unstamped_ms != state.since_ms:
            anew |= ~stamped
        for at in np.flatnonzero(anew & kept[rows]).tolist():
            row = int(rows[at])
            value = values[row].as_py()
            rest = value[_STAMPED_BYTES:] if stamped[at] else value[1:]
            restamped[row] = bytes([value[0] | _STAMPED]) + _STAMP.pack(max(int(stamps[at]), floor_ms)) + rest
    if restamped:
        values = [restamped.get(row, value) for row, value in enumerate(batch["value"].to_pylist())]
        batch = pa.RecordBatch.from_arrays([*batch.columns[:3], pa.array(values, pa.binary())], schema=DELTA_SCHEMA)
    return batch if kept.all() else batch.filter(pa.array(kept))


def _floor(own: StateExpiry | None, merged: StateExpiry) -> int:
    """The least stamp that entries of a slot count by; below all where the TTL did not come back since."""
    if own is None:
        return NOTHING_EXPIRED
    if own.ttl_ms is None and merged.ttl_ms is not None:
        return merged.latest_ms  # it came back in slots that had rows since
    return NOTHING_EXPIRED if own.floor_ms in (None, NOT_BEGUN) else own.floor_ms


def _stamps(
    values: pa.Array, rows: NDArray[np.int64], unstamped_ms: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The stamps of some values, and which of them have their own."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    begins, sizes = offsets[rows].astype(np.int64), (offsets[rows + 1] - offsets[rows])
    if (sizes < 1).any():
        raise Corrupt(f"{where}: expected values of a state with a time to live, found one that is empty")
    stamped = (data[begins] & _STAMPED) != 0
    if (sizes[stamped] < _STAMPED_BYTES).any():
        raise Corrupt(f"{where}: expected values with a stamp of 8 bytes, found one that ends within it")
    stamps = np.full(len(rows), unstamped_ms, np.int64)
    at = begins[stamped][:, None] + np.arange(1, _STAMPED_BYTES)
    stamps[stamped] = np.ascontiguousarray(data[at]).view(">i8").ravel()
    return stamps, stamped
