"""Makes bases: a parent's tables, shared by hard link, plus the deltas since.
A fold, a spill and a long restore all do this.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

import pyarrow as pa

from holdfast._core import BaseWriter
from holdfast.checkpoint.base_folder import BaseRecord, LocalBase, files_in, files_of, read_base, write_record
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.expiry import StateExpiry, to_writer
from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import WorkFolder
from holdfast.fault_points import reach


class BaseMaker:
    """Makes bases of one slot. Safe for several threads, since every attempt has a work folder of its own."""

    def __init__(self, context: SlotContext, deltas: DeltaReader) -> None:
        self._context = context
        self._deltas = deltas

    def fold(self, parent: LocalBase | None, handle: Handle) -> LocalBase:
        """The base of ``handle``'s version, from that of an ancestor (None: the empty state) and the deltas between.

        A crash here leaves a work folder that the next process clears away.
        """
        with self._context.folder.new_work() as work:
            refs = handle.deltas_after(parent.sequence if parent else 0)
            self.write(parent.files_path if parent else None, work, self._deltas.pieces(refs), handle.expiry)
            reach("during_fold")
            return self.publish(work, parent, handle.sequence, handle.version_id)

    def write(
        self,
        parent_files: str | None,
        work: WorkFolder,
        batches: Iterable[pa.RecordBatch],
        expiry: tuple[StateExpiry, ...],
    ) -> str:
        """Writes the files of a base into ``work``; their folder. ``expiry``: of the version that it will be of.

        A writer holds its changes in memory: past the limit of a batch they go into a base in between,
        and it goes on from there.
        """
        options = self._context.settings.base_options()
        with self._context.folder.errors(work.path):
            previous = None
            directory = files_of(work.path)
            if os.path.exists(directory):  # of an earlier call: it is the parent now
                previous = work.child(f"before-{self._context.ids()}")
                os.rename(directory, previous)
            record = self._context.record
            alive, dropped = [state.id for state in record.states], [state.id for state in record.dropped]
            expired = to_writer(expiry, alive, dropped)
            writer = BaseWriter(previous or parent_files, directory, options, expired)
            for batch in batches:
                held_bytes = writer.memory_bytes
                if held_bytes and held_bytes + batch.nbytes > self._context.settings.batch_memory_max_bytes:
                    self._finish(writer)
                    before = work.child(f"before-{self._context.ids()}")
                    os.rename(directory, before)
                    _remove(previous)
                    previous = before
                    writer = BaseWriter(previous, directory, options, expired)
                writer.add(batch)
                del batch  # which may be a value of 1 GiB: the writer has a copy
            self._finish(writer)
            _remove(previous)
            return directory

    def _finish(self, writer: BaseWriter) -> None:
        writer.finish()
        self._context.background_work.dropped(writer.expired)

    def publish(self, work: WorkFolder, parent: LocalBase | None, sequence: int, version_id: str) -> LocalBase:
        """Makes ``work`` the base of a version. Gives the base that is there then,
        which may be another process's of the same version.
        """
        context = self._context
        with context.folder.errors(work.path):
            record = BaseRecord(
                operator=context.operator,
                slot=context.slot,
                sequence=sequence,
                version_id=version_id,
                boot_id=context.host.boot_id,
                files=files_in(files_of(work.path), parent),
            )
            write_record(work.path, record)
        return read_base(context.folder.publish(work.path, sequence, version_id))


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
