"""What a slot takes over of a savepoint: the rows of its key groups, and its share of what belongs to no key. RFC 15.

Only files that have some of these key groups are brought to this machine; each is compared with the manifest before it
is used, and the manifest with the checksum that the operator's record has. Format: docs/formats/savepoint.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa

from holdfast.checkpoint.carried_expiry import Expiry
from holdfast.checkpoint.expiry import NOTHING_EXPIRED, StateExpiry
from holdfast.checkpoint.from_versions import share_of
from holdfast.checkpoint.origin import SavepointOrigin, slots_of
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.stored_entries import DealtOut
from holdfast.checkpoint.taken_over import TakenOver
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.savepoint import Manifest, SavedOperator, SavedState, entries_of, holds_none, read_manifest, read_state
from holdfast.savepoint.entries import state_codec
from holdfast.storage import FileStore

_WAY_OUT = (
    "Nothing was written. Put the savepoint's folder back as it was, from a copy; or start with a new Spark "
    "checkpoint, from another savepoint"
)


def from_savepoint(context: SlotContext, origin: SavepointOrigin, redistributed: bool = True) -> TakenOver:
    """Raises as :meth:`FirstVersion.handle`; what is damaged also while the entries are read."""
    store = context.store_at(origin.store)
    operator = _manifest(store, origin, context.host.name).operator(origin.operator)
    dropped = {state.id for state in context.record.dropped}
    states = [(operator.state(name), state_id) for name, state_id in origin.states if state_id not in dropped]
    return TakenOver(
        expiry=_expiry(states, origin),
        entries=_entries(context, origin, store, operator, states, redistributed),
        described=origin.where,
        way_out=_WAY_OUT,
    )


def _manifest(store: FileStore, origin: SavepointOrigin, host: str) -> Manifest:
    try:
        manifest = read_manifest(store)
    except InvalidRequest as error:
        if holds_none(store):  # the driver found one: it is no killed attempt, which would be deleted and made again
            raise Corrupt(
                f"{store.uri} holds no savepoint as this machine, {host!r}, sees it: driver and executors must reach "
                f"the folder under one name. Where they do under another, start again with that in hf.Restore(…). "
                f"{_WAY_OUT}"
            ) from error
        raise Corrupt(f"{error}\n{_WAY_OUT}") from error
    if manifest.checksum != origin.manifest:
        raise Corrupt(
            f"{store.uri} holds another savepoint than the one with which this query began: expected a manifest with "
            f"checksum {origin.manifest}, found {manifest.checksum}. {_WAY_OUT}"
        )
    return manifest


def _expiry(states: Iterable[tuple[SavedState, int]], origin: SavepointOrigin) -> Expiry:
    """Rows that do not say when they expire begin to age at the latest time that their state knew. What had expired is
    not in a savepoint.
    """
    found = []
    for state, state_id in states:
        if state.ttl is None:
            continue
        latest_ms = state.ttl.latest_ms
        row = [state_id, state.ttl.time, state.ttl.ttl_ms, latest_ms, NOTHING_EXPIRED, latest_ms]
        try:
            found.append(StateExpiry.from_row(row))
        except ValueError as error:
            raise Corrupt(f"{origin.where}: the time to live of state {state.name!r} is none: {error}") from error
    return tuple(sorted(found, key=lambda expiry: expiry.state_id))


def _entries(
    context: SlotContext,
    origin: SavepointOrigin,
    store: FileStore,
    operator: SavedOperator,
    states: Iterable[tuple[SavedState, int]],
    redistributed: bool,
) -> Generator[pa.RecordBatch, None, None]:
    with context.folder.new_work() as downloads:
        tables = _Tables(store, operator, downloads.path, origin)
        for state, state_id in states:
            if state.kind == "operator":
                union = redistributed and state.function == "union"
                yield from _shared_out(context, tables, state, state_id, "union" if union else "split")
            elif state.kind == "broadcast":
                yield from tables.entries(state, state_id)
            else:
                yield from tables.entries(state, state_id, key_groups=context.key_groups)


def _shared_out(
    context: SlotContext, tables: _Tables, state: SavedState, state_id: int, redistribution: str
) -> Iterator[pa.RecordBatch]:
    """Of an operator state, of earlier slots in their order."""
    slots, groups = tables.operator.slots, context.record.max_parallelism
    dealt = DealtOut({state_id: redistribution}, tables.origin.sequence)
    wanted = range(slots) if redistribution == "union" else slots_of(*context.key_groups, slots, groups)
    for slot in wanted:
        share = share_of(context, slot, slots, broadcast=False)
        yield from dealt.of_slot(tables.entries(state, state_id, slots=(slot,)), share, tables.origin.where)


class _Tables:
    """Reads the tables of one operator as entries."""

    def __init__(self, store: FileStore, operator: SavedOperator, folder: str, origin: SavepointOrigin) -> None:
        self._store = store
        self.operator = operator
        self._folder = folder
        self.origin = origin

    def entries(
        self,
        state: SavedState,
        state_id: int,
        *,
        key_groups: tuple[int, int] | None = None,
        slots: tuple[int, ...] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        operator = self.operator
        codec = state_codec(state.columns, operator.key_schema, state_id, operator.max_parallelism, operator.null_keys)
        ttl_ms = state.ttl.ttl_ms if state.ttl else None
        for rows in read_state(self._store, operator, state, self._folder, key_groups=key_groups, slots=slots):
            try:
                yield entries_of(rows, state.columns, codec, ttl_ms=ttl_ms, sequence=self.origin.sequence)
            except (Corrupt, InvalidRequest, pa.ArrowException) as error:
                raise Corrupt(f"{self.origin.where}, state {state.name!r}: {error}") from error
