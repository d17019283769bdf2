"""Reads deltas back, from this machine where it has them, from storage otherwise; always checked against the handle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

from holdfast.checkpoint.delta_file import DeltaFile, give_back, open_delta
from holdfast.checkpoint.handle import DeltaRef
from holdfast.checkpoint.names import delta_name, parse_version
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Corrupt
from holdfast.storage import run_parallel

#: A delta up to this size whose lineage was asked for is kept until it is read too.
_HELD_MAX_BYTES = 8 << 20
_Found = TypeVar("_Found")


def one_by_one(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes batches out of a list; each is gone once the next is asked for, where the caller has let go of it too."""
    while batches:
        size_bytes = batches[0].nbytes
        yield batches.pop(0)
        give_back(size_bytes)


class DeltaReader:
    """The deltas of one slot. Safe for several threads."""

    def __init__(self, context: SlotContext) -> None:
        self._context = context
        #: Whether deltas are copied to this machine, because the store is not on it.
        self.keeps_copies = context.file_store.local_path(context.stored("delta/x")) is None
        self._held: tuple[DeltaRef, DeltaFile] | None = None

    def read(self, ref: DeltaRef) -> list[pa.RecordBatch]:
        """The batches of one delta; Corrupt, with file, slot and version, when it is missing or damaged."""
        held = self._held
        if held is not None and held[0] == ref:
            self._held = None
            return held[1].batches()
        return self._read(ref, DeltaFile.batches)

    def lineage(self, ref: DeltaRef) -> tuple[DeltaRef, ...] | None:
        """The deltas that came before one, as its file says; None: it says nothing. Raises as :meth:`read`, which needs
        no second request after it.
        """
        file, found = self._read(ref, lambda file: (file, file.lineage()))
        self._held = (ref, file) if ref.size_bytes <= _HELD_MAX_BYTES else None
        return found

    def let_go(self) -> None:
        """Keeps nothing any more for a :meth:`read`."""
        self._held = None

    def _read(self, ref: DeltaRef, what: Callable[[DeltaFile], _Found]) -> _Found:
        context = self._context
        if self.keeps_copies:
            local = self._read_copy(ref, what)
            if local is not None:
                return local
        name = context.stored(delta_name(ref.sequence, ref.version_id))
        data = context.file_store.get(name)
        if data is None:
            raise Corrupt(
                f"delta {name} of operator {context.operator!r}, slot {context.slot}, version {ref.sequence} "
                f"({ref.version_id}) is missing in {context.file_store.uri}{context.or_elsewhere}"
            )
        where = f"{name} in {context.file_store.uri}"
        found = what(open_delta(data, ref, context.operator, context.slot, where))
        self.keep_copy(ref, data)
        return found

    def read_all(self, refs: Sequence[DeltaRef]) -> Iterator[tuple[DeltaRef, list[pa.RecordBatch]]]:
        """Deltas in their order; from a remote store a few at a time are on their way, so that memory stays bounded."""
        threads = self._context.settings.transfer_threads if self.keeps_copies else 1
        for first in range(0, len(refs), threads):
            window = refs[first : first + threads]
            found = run_parallel([lambda ref=ref: self.read(ref) for ref in window], threads)  # type: ignore[misc]
            for ref in window:
                yield ref, found.pop(0)

    def pieces(self, refs: Sequence[DeltaRef]) -> Iterator[pa.RecordBatch]:
        """Their batches one by one, each forgotten once the next is asked for: one may hold a value of 1 GiB."""
        for _, batches in self.read_all(refs):
            yield from one_by_one(batches)

    def keep_copy(self, ref: DeltaRef, data: bytes | memoryview) -> None:
        """Keeps a delta on this machine if its store is elsewhere.
        A disk that is full costs a download later, no more.
        """
        if not self.keeps_copies:
            return
        path = self._context.folder.delta_path(ref.sequence, ref.version_id)
        temporary = f"{path}.{os.getpid()}-{self._context.ids()}"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            self._context.logger.warning("no local copy of a delta was kept: %s", error)
            with suppress(OSError):
                os.unlink(temporary)

    def keep_file(self, ref: DeltaRef, path: str) -> None:
        """Moves a delta file that was uploaded to the local copies."""
        if self.keeps_copies:
            with suppress(OSError):
                os.replace(path, self._context.folder.delta_path(ref.sequence, ref.version_id))

    def drop_copies(self, up_to: int) -> None:
        """Removes local copies up to a sequence, and what a killed writer left of others."""
        folder = self._context.folder.deltas
        with suppress(OSError):
            for name in os.listdir(folder):
                version = parse_version(name)
                if version is None or version[0] <= up_to:
                    with suppress(OSError):
                        os.unlink(os.path.join(folder, name))

    def _read_copy(self, ref: DeltaRef, what: Callable[[DeltaFile], _Found]) -> _Found | None:
        context = self._context
        path = context.folder.delta_path(ref.sequence, ref.version_id)
        try:
            with open(path, "rb") as file:
                data = file.read()
            return what(open_delta(data, ref, context.operator, context.slot, path))
        except FileNotFoundError:
            return None
        except (Corrupt, OSError) as error:
            context.logger.warning("a local copy is not used: %s", error)
            with suppress(OSError):
                os.unlink(path)
            return None
