"""Rows of a state's table to entries of a store, and back: where columns of people meet what the core keeps.

Expiry and stamp: an entry expires when its stamp is a TTL ago, so the one follows from the other as long as the TTL is
known. Format: docs/formats/savepoint.md, docs/formats/value.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.savepoint.columns import EXPIRY, StateColumns
from holdfast.savepoint.fixed_lengths import check_lengths

_INT64_MAX = (1 << 63) - 1
_ENTRY_KINDS = {"reducing": "value", "aggregating": "value", "broadcast": "map", "operator": "list"}


def state_codec(
    columns: StateColumns,
    key_schema: pa.Schema,
    state_id: int,
    max_parallelism: int,
    null_keys: bool,
    schemas: _core.ValueSchemas | None = None,
) -> _core.StateCodec:
    """What reads and writes a state's entries. ``state_id``: the one that the entries have, or shall have.
    ``schemas``: those that the state had, where there were several.
    """
    return _core.StateCodec(
        key_schema,
        state_id=state_id,
        kind=_ENTRY_KINDS.get(columns.kind, columns.kind),
        max_parallelism=max_parallelism,
        null_keys=null_keys,
        map_key=columns.kept.get("map_key"),
        value=columns.stored,
        schemas=schemas,
    )


def entries_of(
    batch: pa.RecordBatch, columns: StateColumns, codec: _core.StateCodec, *, ttl_ms: int | None, sequence: int = 0
) -> pa.RecordBatch:
    """Rows of a table as entries: a delta batch (key_group, state, key, value), in the order of the rows.

    Parameters
    ----------
    batch
        With the columns of ``columns.schema``; a result (role ``value``) of an aggregating state may be missing.
    ttl_ms
        The TTL that the rows' expiry counts with; None: entries get no stamp.
    sequence
        What list indexes begin with: no later batch of the slot has it, so that later elements come after these.

    Raises
    ------
    Corrupt
        A row's key group is not that of its key.
    InvalidRequest
        A null where there must be none, a position that is no place in a list, or a list of another length than its
        type has.
    """
    entries = encoded(batch, columns, codec, ttl_ms=ttl_ms, sequence=sequence)
    if "key_group" in columns.names:
        told, found = batch.column(columns.names["key_group"]), entries.column("key_group")
        if not told.cast(pa.uint16()).equals(found):
            row = pc.index(pc.not_equal(told, found), True).as_py()
            raise Corrupt(
                f"row {row}: expected key group {found[row]}, which is that of its key, found {told[row]}; whoever "
                "changes keys of a savepoint writes it anew, with Savepoint.write"
            )
    return entries


def encoded(
    batch: pa.RecordBatch, columns: StateColumns, codec: _core.StateCodec, *, ttl_ms: int | None, sequence: int = 0
) -> pa.RecordBatch:
    """As :func:`entries_of`, of rows that do not say a key group, or whose key group is not to be believed."""
    names = columns.names
    stored = "accumulator" if columns.kind == "aggregating" else "value"
    given: dict[str, Any] = {}
    if len(columns.key):
        given["keys"] = pa.RecordBatch.from_arrays(
            [batch.column(name) for name in columns.key.names], schema=columns.key
        )
    if columns.kind == "timers":
        given.update(times=batch.column(names["time"]).cast(pa.int64()), suffixes=batch.column(names["namespace"]))
    else:
        given["values"] = batch.column(names[stored])
        check_lengths(given["values"], columns.kept[stored], names[stored])
    if "position" in names:
        given["suffixes"] = _indexes(batch.column(names["position"]), sequence)
    if "map_key" in names:
        given["suffixes"] = batch.column(names["map_key"])
    if "expiry" in names and ttl_ms is not None:
        given["stamps"] = _stamps(batch.column(names["expiry"]), ttl_ms)
    return pa.record_batch(codec.encode(**given))


def rows_of(
    decoded: pa.RecordBatch, columns: StateColumns, *, ttl_ms: int | None, since_ms: int | None, slot: int
) -> pa.RecordBatch:
    """What the codec decodes as rows of the table, but for positions, which are list indexes still (uint64)."""
    key = decoded.column("key").flatten() if len(columns.key) else []
    by_role: dict[str, pa.Array] = {}
    for role, field in columns.fields.items():
        if role == "slot":
            by_role[role] = pa.repeat(pa.scalar(slot, field.type), len(decoded))
        elif role == "time":
            by_role[role] = decoded.column("time").cast(field.type)
        elif role in ("namespace", "map_key", "position"):
            by_role[role] = decoded.column("suffix")
        elif role == "accumulator" or role == "value":
            by_role[role] = decoded.column("value")
        elif role == "expiry":
            by_role[role] = _expiry(decoded.column("stamp"), ttl_ms, since_ms)
        else:
            by_role[role] = decoded.column("key_group")
    names = [*columns.key.names, *(columns.names[role] for role in columns.fields)]
    return pa.RecordBatch.from_arrays([*key, *by_role.values()], names=names)


def _indexes(positions: pa.Array, sequence: int) -> pa.Array:
    found = positions.cast(pa.int64())
    if found.null_count or (len(found) and not 0 <= pc.min(found).as_py() <= pc.max(found).as_py() < 1 << 32):
        raise InvalidRequest("positions in lists: expected 0 to 4294967295, without nulls")
    return pa.array(found.to_numpy(zero_copy_only=False).astype(np.uint64) | np.uint64(sequence << 32))


def _expiry(stamps: pa.Array, ttl_ms: int | None, since_ms: int | None) -> pa.Array:
    """When entries with these stamps expire; null for never, and for what would be after the end of time: the stamp
    does not follow from that.
    """
    if ttl_ms is None:
        return pa.nulls(len(stamps), EXPIRY)
    known = stamps if since_ms is None else stamps.fill_null(since_ms)
    ends = pc.less_equal(known, pa.scalar(_INT64_MAX - ttl_ms))
    return pc.add(pc.if_else(ends, known, None), pa.scalar(ttl_ms, pa.int64())).cast(EXPIRY)


def _stamps(expiry: pa.Array, ttl_ms: int) -> pa.Array:
    expires = expiry.cast(EXPIRY).cast(pa.int64())
    if ttl_ms > _INT64_MAX // 2:  # earlier releases wrote the end of time for what would be after it
        expires = pc.if_else(pc.equal(expires, pa.scalar(_INT64_MAX)), None, expires)
    return pc.subtract_checked(expires, pa.scalar(ttl_ms, pa.int64()))
