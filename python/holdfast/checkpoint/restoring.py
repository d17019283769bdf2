"""Opening a slot at a handle: the ways, from the cheapest to the dearest, and what each falls back to.

1. The state that this process has, plus the deltas since. 2. The newest base on this machine that the handle descends
from, plus deltas. 3. The newest snapshot, plus deltas; if that is damaged, the one before and more deltas; without
snapshots, all deltas from the beginning. Nothing is used unchecked; what is damaged is named and the next way is taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from holdfast._core import Base, Store
from holdfast.checkpoint.base_folder import LocalBase
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.delta_file import EMPTY_DELTA
from holdfast.checkpoint.delta_reader import DeltaReader, one_by_one
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.settings import HARD_LIMIT_FACTOR
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.stored_entries import Bounds
from holdfast.errors import Corrupt


@dataclass(frozen=True)
class Recovery:
    """How a slot was opened.

    way
        ``new`` (no state yet), ``equal`` (this process had it), ``catch_up`` (it was behind),
        ``local_base``, ``restore``, or ``fallback`` (a restore for which something was damaged).
    bytes
        Read from storage's snapshot and from deltas.
    """

    way: str
    ms: float = 0.0
    bytes: int = 0
    deltas: int = 0

    def __str__(self) -> str:
        """For logs."""
        return f"opened ({self.way}) in {self.ms:.0f} ms, {self.deltas} deltas, {self.bytes:,} bytes read"


@dataclass
class Live:
    """The state that this process has: ``store`` is at the version of ``handle`` (None: empty), over ``base``."""

    store: Store
    handle: Handle | None
    base: LocalBase | None

    @property
    def sequence(self) -> int:
        return self.handle.sequence if self.handle else 0


Opened = tuple[Live, Recovery]
_Found = TypeVar("_Found")
#: What a way ends with, given the base that it begins at (None: nothing), handle, the way's name, bytes fetched so far.
_End = Callable[["LocalBase | None", Handle, str, int], _Found]


class Restoring:
    """Opens one slot. Owned by the slot's thread."""

    def __init__(
        self, context: SlotContext, bases: LocalBases, deltas: DeltaReader, snapshots: Snapshots, maker: BaseMaker
    ) -> None:
        self._context = context
        self._bases = bases
        self._deltas = deltas
        self._snapshots = snapshots
        self._maker = maker

    def open(self, handle: Handle | None, live: Live | None) -> tuple[Live, Recovery]:
        """The state at ``handle``'s version.

        Parameters
        ----------
        live
            What this process has. It is used up: whatever happens, the caller forgets it.

        Raises
        ------
        Corrupt
            No way leads to the version; names each file that was damaged, with slot and version.
        Unavailable
            Storage or the local disk did not answer.
        """
        if handle is None:
            return Live(self._context.new_store(), None, None), Recovery("new")
        caught_up = [partial(self._catch_up, live, handle)] if live is not None else []
        ways: Iterable[Callable[[], Opened | None]] = chain(caught_up, self._ways(handle, self._from_base))
        (state, recovery), damaged = self._first_whole(handle, ways)
        # A local copy that was damaged is the loss of a local copy; fallback is said of what storage lost.
        fell_back = damaged and recovery.way == "restore"
        return state, replace(recovery, way="fallback") if fell_back else recovery

    def entries(self, handle: Handle, ranges: Iterable[Bounds]) -> Iterator[pa.RecordBatch]:
        """Entries of ``handle``'s version in order of keys, range by range: record batches (key, value) of store keys.
        Raises as :meth:`open`.
        """
        with self.opened(handle) as base:
            for bounds in ranges:
                for batch in base.scan(*bounds):
                    yield pa.record_batch(batch)

    @contextmanager
    def opened(self, handle: Handle) -> Iterator[Base]:
        """A base on this machine at exactly ``handle``'s version, which is folded where there is none.

        Raises as :meth:`open`. One that turns out damaged while it is read is discarded.
        """
        (base, opened), _ = self._first_whole(handle, self._ways(handle, self._opened))
        try:
            yield opened
        except Corrupt:
            self._bases.discard(base)
            raise
        finally:
            opened.close()

    def _first_whole(self, handle: Handle, ways: Iterable[Callable[[], _Found | None]]) -> tuple[_Found, bool]:
        """What the first way that is not damaged leads to, and whether one before it was."""
        damaged: list[str] = []
        for way in ways:
            try:
                found = way()
            except Corrupt as error:
                damaged.append(str(error))
                self._context.logger.warning("%s: %s", handle.where, error)
                continue
            if found is not None:
                return found, bool(damaged)
        raise Corrupt(
            f"{handle.where} cannot be restored, every way is damaged:\n  " + "\n  ".join(dict.fromkeys(damaged))
        )

    def _ways(self, handle: Handle, end: _End[_Found]) -> Iterator[Callable[[], _Found | None]]:
        """From the bases on this machine, then from storage."""
        seen: set[str] = set()
        # Look again each time: a base that was damaged is gone, and another process may have made one.
        while base := next((base for base in self._bases.of(handle) if base.path not in seen), None):
            seen.add(base.path)
            yield partial(self._from_local, base, handle, end)
        for ref in handle.snapshots:
            yield partial(self._from_snapshot, ref, handle, end)
        if handle.start == 0:
            yield partial(end, None, handle, "restore", 0)

    def _catch_up(self, live: Live, handle: Handle) -> Opened | None:
        """None: what this process has is far behind,
        or no ancestor of the handle (it ran ahead, or on another lineage).
        """
        if live.handle is None:
            return None
        if live.handle.version_id == handle.version_id:
            return Live(live.store, handle, live.base), Recovery("equal")
        if not handle.names(live.handle.sequence, live.handle.version_id):
            return None
        refs = handle.deltas_after(live.sequence)
        if self._is_long(refs):
            return None
        read_bytes = self._apply(live.store, refs)
        return Live(live.store, handle, live.base), Recovery("catch_up", bytes=read_bytes, deltas=len(refs))

    def _from_local(self, base: LocalBase, handle: Handle, end: _End[_Found]) -> _Found | None:
        try:
            return end(base, handle, "local_base", 0)
        except Corrupt:
            if not os.path.isdir(base.path):
                return None  # another process has folded further and removed it
            raise

    def _from_snapshot(self, ref: SnapshotRef, handle: Handle, end: _End[_Found]) -> _Found:
        base, fetched_bytes = self._snapshots.restore(ref)
        return end(base, handle, "restore", fetched_bytes)

    def _opened(self, base: LocalBase | None, handle: Handle, _way: str, _fetched_bytes: int) -> tuple[LocalBase, Base]:
        """The base of ``handle``'s version itself."""
        whole = base if base is not None and base.sequence == handle.sequence else self._maker.fold(base, handle)
        try:
            return whole, whole.open(self._context.settings.base_options())
        except Corrupt:
            self._bases.discard(whole)
            raise

    def _from_base(self, base: LocalBase | None, handle: Handle, way: str, fetched_bytes: int) -> Opened:
        refs = handle.deltas_after(base.sequence if base else 0)
        if self._is_long(refs):
            fetched_bytes += sum(ref.size_bytes for ref in refs)
            base, refs = self._maker.fold(base, handle), ()
        store = self._context.new_store()
        if base is not None:
            self.move_to(store, base)
        read_bytes = self._apply(store, refs)
        return Live(store, handle, base), Recovery(way, bytes=fetched_bytes + read_bytes, deltas=len(refs))

    def newest_base(self, handle: Handle) -> LocalBase | None:
        """The newest base on this machine that ``handle`` descends from; where there is none and its deltas do not go
        back to the beginning, the newest snapshot that is whole is restored. None: its deltas do.
        """
        base = next(iter(self._bases.of(handle)), None)
        if base is None and handle.start > 0:
            base = self._snapshots.restore_newest(handle)
        return base

    def move_to(self, store: Store, base: LocalBase) -> None:
        """Sets ``store`` over ``base``. A base that turns out damaged is discarded, and Corrupt raised."""
        settings = self._context.settings
        try:
            opened = base.open(settings.base_options())
            if not settings.complete:
                store.set_base(opened, base.sequence)
                return
            store.set_base(None, base.sequence)
            store.load(opened)
            opened.close()
        except Corrupt:
            self._bases.discard(base)
            raise

    def _apply(self, store: Store, refs: tuple[DeltaRef, ...]) -> int:
        for ref, batches in self._deltas.read_all(refs):
            if not batches:
                store.apply_delta(EMPTY_DELTA, ref.sequence)
            for batch in one_by_one(batches):
                store.apply_delta(batch, ref.sequence)
                del batch  # none is held while the next delta is read
        return sum(ref.size_bytes for ref in refs)

    def _is_long(self, refs: tuple[DeltaRef, ...]) -> bool:
        """Whether deltas are too much for the overlay, so that they go into a base first."""
        settings = self._context.settings
        limit = HARD_LIMIT_FACTOR * settings.fold_bytes_max
        return not settings.complete and sum(ref.size_bytes for ref in refs) > limit
