"""A batch that outgrows its memory: what it has changed goes into a delta file and a private base,
and the overlay starts anew.

Nothing of it is visible to anybody until the batch is prepared. A crash leaves a work folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from holdfast._core import Base, Store
from holdfast.checkpoint.base_folder import LocalBase, files_of
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.delta_file import DeltaIdentity, DeltaWriter, give_back, ref_of_file
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import DeltaRef, Handle
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.prepared_delta import taken
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import InternalError
from holdfast.fault_points import reach


class Spill:
    """The spilled part of one batch. ``parent``: the newest base on disk that ``handle`` descends from, if any."""

    def __init__(
        self,
        context: SlotContext,
        deltas: DeltaReader,
        maker: BaseMaker,
        identity: DeltaIdentity,
        handle: Handle | None,
        parent: LocalBase | None,
    ) -> None:
        if parent is None and handle is not None and handle.start > 0:
            raise InternalError(f"{handle.where}: a spill needs a base below version {handle.start}, found none")
        self._context = context
        self._deltas = deltas
        self._maker = maker
        self._identity = identity
        self._handle = handle
        self._parent = parent
        self._work = context.folder.new_work()
        self._delta_path = self._work.child("delta.arrow")
        self._is_first = True
        with self._context.folder.errors(self._delta_path):
            self._writer = DeltaWriter(self._delta_path, identity, context.settings.delta_compression)

    def add(self, store: Store) -> None:
        """Moves what ``store`` changed since the last time into the private base, and ``store`` onto that."""
        self._take(store)
        store.reset()
        store.set_base(Base(files_of(self._work.path), self._context.settings.base_options()), self._identity.sequence)
        reach("during_spill")

    def finish(self, store: Store, identity: DeltaIdentity) -> DeltaRef:
        """Takes the rest and makes the delta durable. ``identity``: as it is now that all rows have come."""
        self._take(store)
        with self._context.folder.errors(self._delta_path):
            self._writer.close()
            if identity != self._identity:
                self._write_again(identity)
            ref = ref_of_file(identity, self._delta_path)
        name = self._context.stored(delta_name(ref.sequence, ref.version_id))
        self._context.file_store.put_file(name, self._delta_path)
        return ref

    def _write_again(self, identity: DeltaIdentity) -> None:
        """What a delta says of itself stands in front: it was written before the event times of later rows came."""
        path = self._work.child("delta-of-all-rows.arrow")
        writer = DeltaWriter(path, identity, self._context.settings.delta_compression)
        with pa.OSFile(self._delta_path) as file, pa.ipc.open_file(file) as written:
            for number in range(written.num_record_batches):
                piece = written.get_batch(number)
                writer.write(piece)
                size_bytes = piece.nbytes
                del piece  # before the next is read
                give_back(size_bytes)
        writer.close()
        os.replace(path, self._delta_path)

    def publish(self, ref: DeltaRef) -> LocalBase:
        """Makes the private base that of the new version."""
        self._deltas.keep_file(ref, self._delta_path)
        with self._context.folder.errors(self._work.path):
            if os.path.exists(self._delta_path):
                os.unlink(self._delta_path)
        return self._maker.publish(self._work, self._parent, ref.sequence, ref.version_id)

    def close(self) -> None:
        """Forgets all that was not published."""
        self._work.close()

    def _take(self, store: Store) -> None:
        parent = self._parent.files_path if self._parent else None
        pieces = chain(self._earlier(), self._written(taken(store)))
        self._maker.write(parent, self._work, pieces, self._identity.expiry)
        self._is_first = False

    def _written(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pieces, each in the delta file before it is given out."""
        for piece in pieces:
            with self._context.folder.errors(self._delta_path):
                self._writer.write(piece)
            yield piece
            del piece  # before the next is made

    def _earlier(self) -> Iterator[pa.RecordBatch]:
        """What earlier batches changed since the parent: the private base takes it in with the first part."""
        if self._is_first and self._handle is not None:
            refs = self._handle.deltas_after(self._parent.sequence if self._parent else 0)
            yield from self._deltas.pieces(refs)
