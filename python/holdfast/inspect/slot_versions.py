"""Versions of one slot, brought to this machine to be read: a base at exactly the version that a handle names.

By a query's own recovery, in a folder that is nobody else's. Nothing is written but a first version, into the folder of
a savepoint. Owner: one thread.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from holdfast import rocksdb_library
from holdfast._core import Base
from holdfast.checkpoint.background_work import BackgroundWork
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.first_version import FirstVersion
from holdfast.checkpoint.handle import Handle, StoredHandle
from holdfast.checkpoint.host import READERS_SETTING, Host
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import SavepointOrigin
from holdfast.checkpoint.restoring import Restoring
from holdfast.checkpoint.settings import READ_ONCE_RUNS_MAX, CheckpointSettings
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.stored_entries import Bounds
from holdfast.checkpoint.whole_handles import WholeHandles
from holdfast.clock import SystemClock, new_id
from holdfast.storage import FileStore, open_file_store

_LOGGER = logging.getLogger("holdfast.inspect")


class SlotVersions:
    """The versions of one slot.

    Parameters
    ----------
    local_dir
        This reader's own temporary folder.
    open_store
        Opens the store of the record's origin.
    """

    def __init__(
        self,
        record: OperatorRecord,
        slot: int,
        store: FileStore,
        prefix: str,
        local_dir: str,
        open_store: Callable[[str], FileStore] = open_file_store,
    ) -> None:
        rocksdb_library.load()
        self.context = SlotContext(
            record=record,
            slot=slot,
            file_store=store,
            prefix=prefix,
            folder=SlotFolder(local_dir, store.uri, prefix, slot, new_id, READERS_SETTING),
            host=Host.this(),
            settings=CheckpointSettings(base_runs_max=READ_ONCE_RUNS_MAX),
            clock=SystemClock(),
            ids=new_id,
            logger=_LOGGER,
            background_work=BackgroundWork(),
            open_store=open_store,
        )
        self.deltas = DeltaReader(self.context)
        self._whole_handles = WholeHandles(self.deltas)
        self.snapshots = Snapshots(self.context)
        self._maker = BaseMaker(self.context, self.deltas)
        self._restoring = Restoring(self.context, LocalBases(self.context), self.deltas, self.snapshots, self._maker)

    def whole(self, stored: StoredHandle) -> Handle:
        """A version with all deltas that lead to it; raises as :meth:`entries`."""
        return self._whole_handles.of(stored)

    def entries(self, stored: StoredHandle, ranges: Iterable[Bounds]) -> Iterator[pa.RecordBatch]:
        """Entries of a version in key order: record batches (key, value) of store keys, range by range.

        Raises
        ------
        Corrupt
            No way leads to the version: names each file that stands in the way.
        """
        yield from self._restoring.entries(self.whole(stored), ranges)

    def opened(self, stored: StoredHandle) -> AbstractContextManager[Base]:
        """The version's base, to be scanned in any order; raises as :meth:`entries`."""
        return self._restoring.opened(self.whole(stored))

    def first_version(self, origin: SavepointOrigin) -> Handle:
        """Makes a version of what this very slot had in a savepoint, and writes it into the store; raises as
        :meth:`entries`.
        """
        return FirstVersion(self.context, self._maker, self.snapshots).made(origin, redistributed=False)

    def remove(self) -> None:
        """Removes all of it from this machine. It must not be open."""
        shutil.rmtree(self.context.folder.path, ignore_errors=True)
