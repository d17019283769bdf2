"""What a slot takes over of an earlier generation: of versions of the slots that its key groups overlap. RFC 15."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.as_of import expiry_of
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.carried_expiry import Expiry, carried, merged_expiry
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.origin import VersionsOrigin, key_groups_of, slots_of
from holdfast.checkpoint.restoring import Restoring
from holdfast.checkpoint.settings import READ_ONCE_RUNS_MAX
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.state_ids import of_no_key
from holdfast.checkpoint.stored_entries import NO_KEY, Bounds, DealtOut, Share, as_delta, of_key_groups
from holdfast.checkpoint.taken_over import TakenOver
from holdfast.checkpoint.whole_handles import WholeHandles
from holdfast.storage import FileStore

#: Entries as a delta's, the expiry of the version that they are of, and which that is, for errors.
Carried = tuple[pa.RecordBatch, Expiry, str]


@dataclass(frozen=True)
class Earlier:
    """One slot of the earlier generation: its version, and how it is read."""

    slot: int
    handle: StoredHandle
    whole_handles: WholeHandles
    restoring: Restoring


def from_versions(context: SlotContext, origin: VersionsOrigin) -> TakenOver:
    """Raises as :meth:`FirstVersion.handle`; what is damaged also while the entries are read."""
    overlapping = origin.overlapping(*context.key_groups, context.record.max_parallelism)
    readers = _readers(context, origin)
    earlier = [one for slot in overlapping if (one := readers(slot)) is not None]
    found = [_expiry(context, origin, one) for one in earlier]
    expiry = merged_expiry(found, f"slot {context.slot} from {origin.where}")
    batches = _entries(context, origin, earlier, readers)
    return TakenOver(
        expiry=expiry,
        entries=(carried(batch, own, expiry, where) for batch, own, where in batches),
        described=f"{len(earlier)} slots of {origin.where}",
        way_out=(
            "If the earlier query went on and deleted what it no longer needed, nothing is lost: start with a new "
            "Spark checkpoint, which begins at the earlier query's newest batch. Of a native savepoint, put its folder "
            "back as it was, from a copy: the first batch then goes on"
        ),
    )


def _entries(
    context: SlotContext,
    origin: VersionsOrigin,
    earlier: Sequence[Earlier],
    readers: Callable[[int], Earlier | None],
) -> Iterator[Carried]:
    bounds = of_key_groups(*context.key_groups)
    for one in earlier:
        for batch in _scan(context, one, bounds):
            yield batch, _expiry(context, origin, one), one.handle.where
    yield from _of_no_key(context, origin, earlier, readers)


def _of_no_key(
    context: SlotContext,
    origin: VersionsOrigin,
    earlier: Sequence[Earlier],
    readers: Callable[[int], Earlier | None],
) -> Iterator[Carried]:
    sorts = {state.id: state.function or state.kind for state in context.record.states if of_no_key(state)}
    if not sorts:
        return
    if "union" in sorts.values():
        earlier = [one for slot in range(origin.slots) if (one := readers(slot)) is not None]
    dealt, broadcast = DealtOut(sorts, origin.sequence), True
    for one in earlier:
        share = share_of(context, one.slot, origin.slots, broadcast=broadcast)
        for batch in dealt.of_slot(_scan(context, one, NO_KEY), share, one.handle.where):
            yield batch, (), one.handle.where
        broadcast = False  # all slots have the same


def share_of(context: SlotContext, earlier: int, slots: int, *, broadcast: bool) -> Share:
    """What this slot takes of an earlier one, of ``slots``, of states that belong to no key."""
    groups = context.record.max_parallelism
    places = slots_of(*key_groups_of(earlier, slots, groups), context.record.slots, groups)
    return Share(broadcast, places.index(context.slot) if context.slot in places else None, len(places))


def _scan(context: SlotContext, one: Earlier, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Without what the operator does not have any more; so an entry of such a state is in no version of its own."""
    dropped = pa.array(sorted(_dropped(context)), pa.uint16())
    for entries in one.restoring.entries(one.whole_handles.of(one.handle), [bounds]):
        batch = as_delta(entries, one.handle.where)
        yield batch.filter(pc.invert(pc.is_in(batch["state"], dropped))) if len(dropped) else batch


def _expiry(context: SlotContext, origin: VersionsOrigin, one: Earlier) -> Expiry:
    """Of the states that the operator still has."""
    dropped = _dropped(context)
    expiry = expiry_of(one.handle, origin.as_of(dropped))
    return tuple(state for state in expiry if state.state_id not in dropped)


def _dropped(context: SlotContext) -> frozenset[int]:
    return frozenset(state.id for state in context.record.dropped)


def _readers(context: SlotContext, origin: VersionsOrigin) -> Callable[[int], Earlier | None]:
    """What reads a slot of the earlier generation; None for one that was empty."""
    store = context.store_at(origin.store)
    known: dict[int, Earlier | None] = {}

    def reader(slot: int) -> Earlier | None:
        if slot not in known:
            handle = origin.handles[slot]
            known[slot] = None if handle is None else _earlier(context, origin, store, handle)
        return known[slot]

    return reader


def _earlier(context: SlotContext, origin: VersionsOrigin, store: FileStore, handle: StoredHandle) -> Earlier:
    local_dir, setting = context.folder.local_dir, context.folder.setting
    folder = SlotFolder(local_dir, store.uri, origin.prefix, handle.slot, context.ids, setting)
    folder.touch(context.clock.now_ms())
    # Bases that are made of it here are the earlier query's too: they have what this generation has dropped.
    own = replace(
        context,
        record=replace(context.record, name=origin.operator, slots=origin.slots, origin=None, dropped=()),
        slot=handle.slot,
        file_store=store,
        prefix=origin.prefix,
        folder=folder,
        settings=replace(context.settings, base_runs_max=READ_ONCE_RUNS_MAX),
    )
    deltas = DeltaReader(own)
    restoring = Restoring(own, LocalBases(own), deltas, Snapshots(own), BaseMaker(own, deltas))
    return Earlier(handle.slot, handle, WholeHandles(deltas), restoring)
