"""The first version of a slot whose generation has an origin: made of an earlier one, or of a savepoint. RFC 15.

A snapshot in the slot's own folder, named by the handle in ``origin.json``, which is created last and only if it is
absent: of all attempts one wins, and every later one goes on from there. A crash leaves strays, which retention
removes, or ``origin.json``. After that nothing of the origin is needed any more. Owner: the slot's thread.
"""

from __future__ import annotations

from contextlib import closing

from holdfast.checkpoint import claim
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.from_versions import from_versions
from holdfast.checkpoint.handle import Handle, StoredHandle, broken_rule
from holdfast.checkpoint.names import FIRST_VERSION
from holdfast.checkpoint.origin import Origin, VersionsOrigin
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.taken_over import TakenOver
from holdfast.errors import Corrupt, InternalError
from holdfast.fault_points import reach

#: The batch that a first version is the end of: the one before the first.
_BEFORE_ALL = -1


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
        Incompatible
            The origin is a savepoint that another has claimed.
        Unavailable
            Storage or the local disk did not answer: try again.
        """
        origin = self._context.record.origin
        if origin is None:
            return None
        made = self._stored()
        if made is not None:
            return made
        claim.begin_with(self._context, origin)
        try:
            handle = self.made(origin)
        except Corrupt:
            claim.begin_with(self._context, origin)  # that may be why: claimed, and deleted meanwhile
            raise
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
        handle = StoredHandle.from_text(_text(data, where)).whole()
        found = (handle.operator, handle.slot, handle.sequence, handle.batch_id)
        if found != (context.operator, context.slot, handle.origin, _BEFORE_ALL):
            raise Corrupt(f"{where} belongs elsewhere: expected the first version of this slot, found {handle.where}")
        return handle

    def made(self, origin: Origin, redistributed: bool = True) -> Handle:
        """One that is in storage, and not the slot's yet: nothing names it. Raises as :meth:`handle`.

        Not ``redistributed``: it is that very slot of a savepoint, whose lists stay its own until a generation begins.
        """
        context = self._context
        taken = _taken_over(context, origin, redistributed)
        try:
            with closing(taken.entries), context.folder.new_work() as work:
                self._maker.write(None, work, taken.entries, taken.expiry)
                reach("during_origin")
                base = self._maker.publish(work, None, origin.sequence, context.ids())
        except Corrupt as error:
            raise Corrupt(
                f"operator {context.operator!r}, slot {context.slot}: its first version cannot be made of "
                f"{origin.where}: {error}\n{taken.way_out}"
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
            expiry=taken.expiry,
            origin=origin.sequence,
        )
        broken = broken_rule(handle)
        if broken:
            raise InternalError(f"the handle made for {handle.where} contradicts itself: {broken}")
        context.logger.info("%s: %d bytes, from %s", handle.where, snapshot.state_bytes, taken.described)
        return handle


def _taken_over(context: SlotContext, origin: Origin, redistributed: bool) -> TakenOver:
    if isinstance(origin, VersionsOrigin):
        return from_versions(context, origin)
    from holdfast.checkpoint.from_savepoint import from_savepoint  # loads Parquet, which no other worker needs

    return from_savepoint(context, origin, redistributed)


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"{where} is damaged: expected a handle, found {len(data)} bytes that are no text") from error
