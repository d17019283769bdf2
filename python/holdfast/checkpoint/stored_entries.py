"""Entries of a base as those of a delta, and which of them a slot takes over that has other key groups. Pure functions.

Formats: docs/formats/value.md, delta.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.checkpoint.delta_file import DELTA_SCHEMA
from holdfast.errors import Corrupt

_PREFIX_BYTES = 4  # key group and state id, both u16, big-endian
#: In place of a key group: of broadcast and operator states.
NO_KEY_GROUP = 0xFFFF
_INDEX = struct.Struct(">Q")
_SEQUENCE_BITS = 32

#: Bounds of a scan: first key, and the first key after it; the empty one: the end.
Bounds = tuple[bytes, bytes]


def of_key_groups(first: int, end: int) -> Bounds:
    """Entries of all states of keys in the key groups from ``first`` up to, but not including, ``end``."""
    return first.to_bytes(2, "big"), end.to_bytes(2, "big")


#: Entries of broadcast and operator states.
NO_KEY: Bounds = (NO_KEY_GROUP.to_bytes(2, "big"), b"")


def of_state(key_group: int, state_id: int) -> Bounds:
    """Entries of one state in one key group; of NO_KEY_GROUP those of an operator or broadcast state."""
    prefix = key_group << 16 | state_id
    return prefix.to_bytes(4, "big"), (prefix + 1).to_bytes(4, "big")


def of_key(key_group: int, state_id: int, key: bytes) -> Bounds:
    """Entries of one state of one encoded key, which no other key begins with. Not of timers: times stand before it."""
    prefix = of_state(key_group, state_id)[0] + key
    return prefix, (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def as_delta(entries: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Entries (key, value) with whole store keys as (key_group, state, key, value)."""
    keys = entries["key"]
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    if (np.diff(offsets) < _PREFIX_BYTES).any():
        raise Corrupt(f"{where}: expected store keys of at least {_PREFIX_BYTES} bytes, found a shorter one")
    prefix = offsets[:-1, None] + np.arange(_PREFIX_BYTES)
    numbers = np.ascontiguousarray(data[prefix]).view(">u2").astype(np.uint16)
    rest = np.ones(len(data), dtype=bool)
    rest[prefix.ravel()] = False
    begins = (offsets - _PREFIX_BYTES * np.arange(len(offsets))).astype(np.int32)
    suffixes = pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(begins), pa.py_buffer(data[rest])])
    columns = [pa.array(numbers[:, 0]), pa.array(numbers[:, 1]), suffixes, entries["value"]]
    return pa.RecordBatch.from_arrays(columns, schema=DELTA_SCHEMA)


class DealtOut:
    """What a slot takes over of states that belong to no key, of earlier slots in their order. docs/rfcs/0015

    Parameters
    ----------
    states
        All states of no key, by id: "broadcast", or an operator state's redistribution.
    sequence
        That of the version which the entries become part of: elements get indexes below those of all later batches.
    """

    def __init__(self, states: Mapping[int, str], sequence: int) -> None:
        self._states = states
        self._sequence = sequence
        self._numbers = dict.fromkeys(states, 0)

    def of_slot(self, batches: Iterable[pa.RecordBatch], share: Share, where: str) -> Iterator[pa.RecordBatch]:
        """Of all entries of no key that one earlier slot has."""
        seen = dict.fromkeys(self._states, 0)
        for batch in batches:
            states, keys = batch["state"].to_pylist(), batch["key"].to_pylist()
            kept: list[int] = []
            for row, state_id in enumerate(states):
                sort = self._states.get(state_id)
                if sort is None:
                    raise Corrupt(f"{where}: expected states of no key that are recorded, found one of id {state_id}")
                if share.takes(sort, seen[state_id]):
                    kept.append(row)
                    keys[row] = keys[row] if sort == "broadcast" else self._next_index(state_id)
                seen[state_id] += 1
            made = pa.RecordBatch.from_arrays(
                [batch["key_group"], batch["state"], pa.array(keys, pa.binary()), batch["value"]], schema=DELTA_SCHEMA
            )
            yield made.take(pa.array(kept, pa.int64()))

    def _next_index(self, state_id: int) -> bytes:
        number = self._numbers[state_id]
        self._numbers[state_id] += 1
        return _INDEX.pack(self._sequence << _SEQUENCE_BITS | number)


@dataclass(frozen=True)
class Share:
    """What a slot takes of one earlier slot.

    ``broadcast``: whether broadcast states come from there. ``place`` of ``places``: which of the slots that divide the
    earlier one it is; None: it is none of them.
    """

    broadcast: bool
    place: int | None
    places: int

    def takes(self, sort: str, number: int) -> bool:
        """Whether entry ``number`` of a state is taken."""
        if sort == "broadcast":
            return self.broadcast
        return sort == "union" or (self.place is not None and number % self.places == self.place)
