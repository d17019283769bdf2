"""The first version of a slot whose generation has an origin: made of versions of an earlier generation. RFC 15.

A snapshot in the slot's own folder, named by the handle in ``origin.json``, which is created last and only if it is
absent: of all attempts one wins, and every later one goes on from there. A crash leaves strays, which retention
removes, or ``origin.json``. After that nothing of the origin is needed any more. Owner: the slot's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.carried_expiry import Expiry, carried, merged_expiry
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import Handle, broken_rule
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.names import FIRST_VERSION
from holdfast.checkpoint.origin import Origin, key_groups_of, slots_of
from holdfast.checkpoint.restoring import Restoring
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.state_ids import of_no_key
from holdfast.checkpoint.stored_entries import NO_KEY, Bounds, DealtOut, Share, as_delta, of_key_groups
from holdfast.errors import Corrupt, InternalError
from holdfast.fault_points import reach
from holdfast.storage import FileStore

#: Entries as a delta's, the expiry of the version that they are of, and which that is, for errors.
Carried = tuple[pa.RecordBatch, Expiry, str]
#: The batch that a first version is the end of: the one before the first.
_BEFORE_ALL = -1


@dataclass(frozen=True)
class Earlier:
    """One slot of the earlier generation: its version, and how it is read."""

    slot: int
    handle: Handle
    restoring: Restoring
    bases: LocalBases


class FirstVersion:
    """Of one slot."""

    def __init__(self, context: SlotContext, maker: BaseMaker, snapshots: Snapshots) -> None:
        self._context = context
        self._maker = maker
        self._snapshots = snapshots

    def handle(self) -> Handle | None:
        """Names the slot's first version, which is made if nobody has; None: the empty state.

        Raises
        ------
        Corrupt
            The origin, or what was made of it, is damaged, or was deleted before the slot had its first version.
        Unavailable
            Storage or the local disk did not answer: try again.
        """
        origin = self._context.record.origin
        if origin is None:
            return None
        made = self._stored()
        if made is not None:
            return made
        handle = self._make(origin)
        name = self._context.stored(FIRST_VERSION)
        if self._context.file_store.create_if_absent(name, handle.to_text().encode()):
            return handle
        winner = self._stored()
        if winner is None:
            raise InternalError(f"{name} in {self._context.file_store.uri} exists and cannot be read")
        return winner

    def _stored(self) -> Handle | None:
        context = self._context
        name = context.stored(FIRST_VERSION)
        data = context.file_store.get(name)
        if data is None:
            return None
        where = f"{name} in {context.file_store.uri}"
        handle = Handle.from_text(_text(data, where))
        found = (handle.operator, handle.slot, handle.sequence, handle.batch_id)
        if found != (context.operator, context.slot, handle.origin, _BEFORE_ALL):
            raise Corrupt(f"{where} belongs elsewhere: expected the first version of this slot, found {handle.where}")
        return handle

    def _make(self, origin: Origin) -> Handle:
        context = self._context
        first, end = context.key_groups
        overlapping = origin.overlapping(first, end, context.record.max_parallelism)
        readers = _readers(context, origin)
        earlier = [one for slot in overlapping if (one := readers(slot)) is not None]
        expiry = merged_expiry([one.handle.expiry for one in earlier], f"slot {context.slot} from {origin.where}")
        try:
            with context.folder.new_work() as work:
                batches = self._entries(origin, earlier, readers)
                alive = (carried(batch, own, expiry, where) for batch, own, where in batches)
                self._maker.write(None, work, alive, expiry)
                reach("during_origin")
                base = self._maker.publish(work, None, origin.sequence, context.ids())
        except Corrupt as error:
            raise Corrupt(
                f"operator {context.operator!r}, slot {context.slot}: its first version cannot be made of "
                f"{origin.where}: {error}\nIf the earlier query went on and deleted what it no longer needed, nothing "
                "is lost: start with a new Spark checkpoint, which begins at the earlier query's newest batch"
            ) from error
        snapshot = self._snapshots.upload(base, None)
        reach("before_origin")
        handle = Handle(
            operator=context.operator,
            slot=context.slot,
            version_id=base.record.version_id,
            parent_id=None,
            sequence=origin.sequence,
            batch_id=_BEFORE_ALL,
            snapshots=(snapshot,),
            expiry=expiry,
            origin=origin.sequence,
        )
        broken = broken_rule(handle)
        if broken:
            raise InternalError(f"the handle made for {handle.where} contradicts itself: {broken}")
        context.logger.info(
            "%s: %d bytes, from %d slots of %s", handle.where, snapshot.state_bytes, len(earlier), origin.where
        )
        return handle

    def _entries(
        self, origin: Origin, earlier: Sequence[Earlier], readers: Callable[[int], Earlier | None]
    ) -> Iterator[Carried]:
        context = self._context
        bounds = of_key_groups(*context.key_groups)
        for one in earlier:
            for batch in self._scan(one, bounds):
                yield batch, one.handle.expiry, one.handle.where
        yield from self._of_no_key(origin, earlier, readers)

    def _of_no_key(
        self, origin: Origin, earlier: Sequence[Earlier], readers: Callable[[int], Earlier | None]
    ) -> Iterator[Carried]:
        context = self._context
        sorts = {state.id: state.function or state.kind for state in context.record.states if of_no_key(state)}
        if not sorts:
            return
        if "union" in sorts.values():
            earlier = [one for slot in range(origin.slots) if (one := readers(slot)) is not None]
        groups = context.record.max_parallelism
        dealt, broadcast = DealtOut(sorts, origin.sequence), True
        for one in earlier:
            places = slots_of(*key_groups_of(one.slot, origin.slots, groups), context.record.slots, groups)
            place = places.index(context.slot) if context.slot in places else None
            share = Share(broadcast, place, len(places))
            for batch in dealt.of_slot(self._scan(one, NO_KEY), share, one.handle.where):
                yield batch, (), one.handle.where
            broadcast = False  # all slots have the same

    def _scan(self, one: Earlier, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        base = one.restoring.base_at(one.handle)
        try:
            opened = base.open(self._context.settings.base_options())
            try:
                for entries in opened.scan(*bounds):
                    yield as_delta(pa.record_batch(entries), one.handle.where)
            finally:
                opened.close()
        except Corrupt:
            one.bases.discard(base)
            raise


def _readers(context: SlotContext, origin: Origin) -> Callable[[int], Earlier | None]:
    """What reads a slot of the earlier generation; None for one that was empty."""
    store = context.file_store if origin.store == context.file_store.uri else context.open_store(origin.store)
    known: dict[int, Earlier | None] = {}

    def reader(slot: int) -> Earlier | None:
        if slot not in known:
            handle = origin.handles[slot]
            known[slot] = None if handle is None else _earlier(context, origin, store, handle)
        return known[slot]

    return reader


def _earlier(context: SlotContext, origin: Origin, store: FileStore, handle: Handle) -> Earlier:
    folder = SlotFolder(context.folder.local_dir, store.uri, origin.prefix, handle.slot, context.ids)
    folder.touch(context.clock.now_ms())
    # Bases that are made of it here are the earlier query's too: they have what this generation has dropped.
    own = replace(
        context,
        record=replace(context.record, name=origin.operator, slots=origin.slots, origin=None, dropped=()),
        slot=handle.slot,
        file_store=store,
        prefix=origin.prefix,
        folder=folder,
    )
    bases, deltas = LocalBases(own), DeltaReader(own)
    restoring = Restoring(own, bases, deltas, Snapshots(own), BaseMaker(own, deltas))
    return Earlier(handle.slot, handle, restoring, bases)


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"{where} is damaged: expected a handle, found {len(data)} bytes that are no text") from error
