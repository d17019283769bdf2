"""Versions of one slot, brought to this machine to be read: a base at exactly the version that a handle names.

Made as a query's own recovery makes it (a snapshot, and the deltas since folded into the next base), in a folder that
is nobody else's, from a store that is only read. Every file is checked before it is used; a damaged snapshot costs the
next way. Owner: one thread.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa

from holdfast import rocksdb_library
from holdfast._core import Base
from holdfast.checkpoint.background_work import BackgroundWork
from holdfast.checkpoint.base_folder import LocalBase
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.host import Host
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.settings import CheckpointSettings
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.clock import SystemClock, new_id
from holdfast.errors import Corrupt
from holdfast.storage import FileStore

#: Without a key group: of operator states and broadcast states.
NO_KEY_GROUP = 0xFFFF
_LOGGER = logging.getLogger("holdfast.inspect")


class SlotVersions:
    """The versions of one slot.

    Parameters
    ----------
    local_dir
        This reader's own temporary folder.
    """

    def __init__(self, record: OperatorRecord, slot: int, store: FileStore, prefix: str, local_dir: str) -> None:
        rocksdb_library.load()
        self.context = SlotContext(
            record=record,
            slot=slot,
            file_store=store,
            prefix=prefix,
            folder=SlotFolder(local_dir, store.uri, prefix, slot, new_id),
            host=Host.this(),
            settings=CheckpointSettings(),
            clock=SystemClock(),
            ids=new_id,
            logger=_LOGGER,
            background_work=BackgroundWork(),
        )
        self.deltas = DeltaReader(self.context)
        self.snapshots = Snapshots(self.context)
        self._bases = LocalBases(self.context)
        self._maker = BaseMaker(self.context, self.deltas)

    def entries(self, handle: Handle, ranges: Iterable[tuple[bytes, bytes]]) -> Iterator[pa.RecordBatch]:
        """Entries of a version in key order: record batches (key, value) of store keys, range by range.

        Raises
        ------
        Corrupt
            No way leads to the version: names each file that stands in the way.
        """
        with closing(self.open(handle)) as base:
            for lower, upper in ranges:
                for batch in base.scan(lower, upper):
                    yield pa.record_batch(batch)

    def open(self, handle: Handle) -> Base:
        """The version's base; raises as :meth:`entries`."""
        damaged: list[str] = []
        for base in self._bases.of(handle)[:1]:
            try:
                return self._exactly(base, handle).open(self.context.settings.base_options())
            except Corrupt as error:  # what this reader made before; storage is asked again
                _LOGGER.warning("a base of this reader is not used: %s", error)
        for ref in handle.snapshots:
            try:
                restored, _ = self.snapshots.restore(ref)
                return self._exactly(restored, handle).open(self.context.settings.base_options())
            except Corrupt as error:
                damaged.append(str(error))
        if handle.start == 0:
            try:
                return self._exactly(None, handle).open(self.context.settings.base_options())
            except Corrupt as error:
                damaged.append(str(error))
        raise Corrupt(f"{handle.where} cannot be read, every way is damaged:\n  " + "\n  ".join(dict.fromkeys(damaged)))

    def remove(self) -> None:
        """Removes all of it from this machine. It must not be open."""
        shutil.rmtree(self.context.folder.path, ignore_errors=True)

    def _exactly(self, base: LocalBase | None, handle: Handle) -> LocalBase:
        if base is not None and base.sequence == handle.sequence:
            return base
        return self._maker.fold(base, handle)


def keyed_range(first: int, end: int) -> tuple[bytes, bytes]:
    """Entries of all states of keys in the key groups from ``first`` up to, but not including, ``end``."""
    return first.to_bytes(2, "big"), end.to_bytes(2, "big")


def state_range(key_group: int, state_id: int) -> tuple[bytes, bytes]:
    """Entries of one state in one key group; of NO_KEY_GROUP those of an operator or broadcast state."""
    prefix = key_group << 16 | state_id
    return prefix.to_bytes(4, "big"), (prefix + 1).to_bytes(4, "big")
