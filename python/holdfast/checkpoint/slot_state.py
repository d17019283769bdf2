"""SlotState: the state of one slot in one process. Open it at a handle, run a batch, prepare the next handle.

Owner: one thread at a time. Between batches the state stays in memory and is checked against the next handle.
There is no undo: what a failed batch did to the memory is dropped with it.
Nothing here commits: a version counts once Spark has committed the handle that names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from holdfast import rocksdb_library
from holdfast._core import Store
from holdfast.checkpoint.background import Background, process_background
from holdfast.checkpoint.background_work import BackgroundFigures, BackgroundWork
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.delta_file import DeltaIdentity
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.expiry import NO_TIME, BatchStamps, BatchTime, Lifetime, StateExpiry, next_expiry, show
from holdfast.checkpoint.first_version import FirstVersion
from holdfast.checkpoint.handle import DeltaRef, Handle, NamedVersion, SnapshotRef, StoredHandle
from holdfast.checkpoint.host import Host, claim_local_dir
from holdfast.checkpoint.lineage import listing, next_handle
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.maintenance import Maintenance, Task
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.prepared_delta import store_delta
from holdfast.checkpoint.prepared_versions import PreparedVersions
from holdfast.checkpoint.restoring import Live, Recovery, Restoring
from holdfast.checkpoint.runs import Runs
from holdfast.checkpoint.settings import CheckpointSettings
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.slot_work import SlotWork
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.spill import Spill
from holdfast.checkpoint.timeline import Timeline
from holdfast.checkpoint.whole_handles import WholeHandles
from holdfast.clock import Clock, Ids, SystemClock, new_id
from holdfast.errors import Corrupt, HoldfastError, InvalidRequest
from holdfast.fault_points import reach
from holdfast.storage import FileStore, open_file_store


class SlotState:
    """The state of one slot: :meth:`open`, :meth:`begin`, the states' operations, :meth:`prepare`; or :meth:`abort`.

    Parameters
    ----------
    record
        What is recorded of the operator.
    prefix
        The operator's folder in ``file_store``: ``<query id>/<operator name, percent-encoded>``.
    local_dir
        This machine's folder for local copies; no other machine may use it.
    local_dir_private
        Whether no other user may write there: see :func:`claim_local_dir`.
    runs
        The operator's runs, of which this is one. None: no other run can have this state, and nobody looks for one.
    background_work
        Where the background counts what it does; by default for this slot alone.
    open_store
        Opens the store that has the versions with which the operator's generation began.
    clock, ids, host, background
        Given by tests.
    """

    def __init__(
        self,
        *,
        record: OperatorRecord,
        slot: int,
        file_store: FileStore,
        prefix: str,
        local_dir: str,
        local_dir_private: bool = False,
        settings: CheckpointSettings,
        clock: Clock | None = None,
        ids: Ids = new_id,
        logger: logging.Logger | None = None,
        host: Host | None = None,
        background: Background | None = None,
        runs: Runs | None = None,
        background_work: BackgroundWork | None = None,
        open_store: Callable[[str], FileStore] = open_file_store,
    ) -> None:
        rocksdb_library.load()  # bases are its; no work but once a process
        host = host or Host.this()
        self._claim_local_dir = partial(claim_local_dir, local_dir, host, private=local_dir_private)
        self._claim_local_dir()
        context = SlotContext(
            record=record,
            slot=slot,
            file_store=file_store,
            prefix=prefix,
            folder=SlotFolder(local_dir, file_store.uri, prefix, slot, ids),
            host=host,
            settings=settings,
            clock=clock or SystemClock(),
            ids=ids,
            logger=logger or logging.getLogger("holdfast.checkpoint"),
            background_work=background_work or BackgroundWork(),
            open_store=open_store,
        )
        self._context = context
        self._bases = LocalBases(context)
        self._deltas = DeltaReader(context)
        self._whole_handles = WholeHandles(self._deltas)
        snapshots = Snapshots(context)
        self._prepared = PreparedVersions(context, self._deltas)
        self._maker = BaseMaker(context, self._deltas)
        self._restoring = Restoring(context, self._bases, self._deltas, snapshots, self._maker)
        self._first_version = FirstVersion(context, self._maker, snapshots)
        self._timeline = Timeline(context, runs) if runs is not None else None
        self._maintenance = Maintenance(context, self._bases, self._deltas, snapshots, self._maker, self._timeline)
        self._background = background or process_background()
        self._live: Live | None = None
        self._identity: DeltaIdentity | None = None  # of the batch at hand
        self._stamps: BatchStamps | None = None  # of the batch at hand
        self._spill: Spill | None = None
        self._opened_ms = 0
        self._used_ms = context.clock.elapsed_ms()
        self.recovery: Recovery | None = None  #: how the slot was last opened
        self._work = SlotWork()
        self._counted: Mapping[str, int] = {}  # the store's counters as the batch at hand began
        context.folder.clear_abandoned()

    def first_version(self) -> Handle | None:
        """The version that a slot begins with, of which Spark has no handle; None is the empty state. Where the
        operator's generation has an origin it is made of that, once: the parent of the first batch, however often that
        runs again.

        Raises
        ------
        Corrupt
            Storage lost or changed what it is made of.
        Unavailable
            Storage or the local disk did not answer: try again.
        """
        self._ready_folder()
        return self._first_version.handle()

    def whole(self, stored: StoredHandle) -> Handle:
        """The handle of which Spark's state has the text, to be opened at. What this process prepared itself it knows;
        otherwise the newest delta is read, which :meth:`open` then does not read again.

        Raises
        ------
        InvalidRequest
            It is another slot's.
        Corrupt
            That delta is missing or damaged.
        Incompatible, Fenced
            As :meth:`admit`, where that is why it is missing.
        Unavailable
            Storage did not answer: try again.
        """
        self._check_own(stored)
        known = self._whole_handles.known(stored)
        if known is not None:
            return known
        self._ready_folder()
        try:
            return self._whole_handles.of(stored)
        except Corrupt:
            if self._timeline is not None:
                self._timeline.check_newest(stored)
            raise

    def admit(self, handle: Handle | None, batch_id: int, *, look_again: bool = False) -> None:
        """Whether this run may go on from ``handle``; before :meth:`open`, in every batch that runs for the first time.
        ``look_again``: in an attempt after one that failed.

        Raises
        ------
        Incompatible
            Another copy of the checkpoint took the state on, past ``handle``.
        Fenced
            Another run, of a copy of the checkpoint, is at work on the state.
        """
        if self._timeline is not None:
            self._timeline.admit(handle, batch_id, look_again=look_again)

    def open(self, handle: Handle | None) -> Store:
        """The state at ``handle``'s version; None is the empty state. Until :meth:`begin` it can only be read.

        Raises
        ------
        Corrupt
            Storage lost or changed what every way to the version needs.
        Unavailable
            Storage or the local disk did not answer: try again.
        """
        context = self._context
        if self._identity is not None:
            self.abort()  # the batch at hand was left without a word
        if handle is not None:
            self._check_own(handle)
        self._ready_folder()
        started_ms = self._used_ms = context.clock.elapsed_ms()
        self._opened_ms = context.clock.now_ms()
        context.folder.touch(self._opened_ms)
        live, self._live = self._live, None
        try:
            live, recovery = self._restoring.open(handle, live)
        finally:
            self._deltas.let_go()
        self._live = live
        self._take_newer_base(live)
        if handle is not None:
            show(live.store, handle.expiry)
        self.recovery = replace(recovery, ms=context.clock.elapsed_ms() - started_ms)
        self._work.note_opened(self.recovery)
        context.logger.log(
            logging.DEBUG if recovery.way in ("equal", "catch_up") else logging.INFO,
            "%s: %s",
            handle.where if handle else f"operator {context.operator!r}, slot {context.slot}",
            self.recovery,
        )
        reach("after_open")
        return live.store

    def begin(
        self,
        batch_id: int,
        version_id: str | None = None,
        lifetimes: Sequence[Lifetime] = (),
        time: BatchTime = NO_TIME,
    ) -> BatchStamps:
        """Begins batch ``batch_id`` on the version that was opened.

        Parameters
        ----------
        version_id
            Of the version that it leads to, unique to this attempt; by default a new one.
        lifetimes, time
            Of the states that have a TTL, and when the batch is.

        Raises
        ------
        Incompatible
            A state's TTL counts by another time than before.
        """
        live = self._opened()
        if self._identity is not None:
            raise InvalidRequest(
                f"batch {self._identity.batch_id} is at hand; prepare or abort it before batch {batch_id}"
            )
        where = f"operator {self._context.operator!r}, slot {self._context.slot}, batch {batch_id}"
        parent = live.handle.expiry if live.handle else ()
        dropped = [state.id for state in self._context.record.dropped]
        expiry = next_expiry(parent, lifetimes, time, where, dropped)
        self._counted = live.store.counters
        live.store.begin(live.sequence + 1)
        stamps = self._stamps = BatchStamps(live.store, expiry, lifetimes, time)
        self._identity = DeltaIdentity(
            operator=self._context.operator,
            slot=self._context.slot,
            version_id=version_id or self._context.ids(),
            parent_id=live.handle.version_id if live.handle else "",
            sequence=live.sequence + 1,
            batch_id=batch_id,
            expiry=expiry,
            lineage=live.handle.deltas if live.handle else (),
        )
        return stamps

    def spill_if_needed(self) -> None:
        """Between input batches: keeps the overlay within its limit, by forgetting what was only read, or by spilling.

        Raises
        ------
        HoldfastError
            A call of a state failed, of the same class: whoever caught that, the batch cannot be prepared.
        """
        live, identity = self._opened(), self._at_hand()
        live.store.check()
        settings = self._context.settings
        limit = settings.batch_memory_max_bytes
        if settings.complete or live.store.memory_bytes <= limit:
            return
        if live.store.dirty_bytes <= limit // 2:
            live.store.evict_clean()
            if live.store.memory_bytes <= limit:
                return
        if self._spill is None:
            # Not live.base: its folder may be gone, cleared away under this process, which reads it all the same.
            parent = self._restoring.newest_base(live.handle) if live.handle else None
            self._spill = Spill(self._context, self._deltas, self._maker, identity, live.handle, parent)
        self._spill.add(live.store)
        self._work.spills += 1

    def prepare(self) -> Handle:
        """Ends the batch: makes its delta durable and gives the handle of the new version.

        Raises
        ------
        Unavailable
            Storage did not take the delta: abort, and run the batch again.
        """
        live, identity = self._opened(), self._at_hand()
        assert self._stamps is not None, "a batch at hand has stamps"
        identity = replace(identity, expiry=self._stamps.expiry)  # which knows all rows by now
        started_ms = self._context.clock.elapsed_ms()
        reach("before_delta")
        if self._spill is not None:
            ref = self._spill.finish(live.store, identity)
        else:
            ref = store_delta(self._context, self._deltas, live.store, identity)
        reach("after_delta")
        live.store.commit()
        self._work.note_batch(self._counted, live.store)
        self._work.delta_bytes += ref.size_bytes
        parent = live.handle
        handle, snapshot = self._next_handle(parent, identity.batch_id, ref, identity.expiry)
        live.handle = handle
        self._whole_handles.keep(handle)
        self._identity = self._stamps = None
        self._publish_spill(live, ref)
        self._settle(handle, parent, snapshot)
        self._used_ms = self._context.clock.elapsed_ms()
        self._work.prepare_ms += self._used_ms - started_ms
        return handle

    def take_work(self) -> tuple[SlotWork, BackgroundFigures]:
        """What the slot's state took since the last time, and what the background did meanwhile."""
        work, self._work = self._work, SlotWork()
        if self._live is not None:
            work.note_size(self._live)
        return work, self._context.background_work.take()

    def adopt(self, parent: Handle | None, batch_id: int, version_id: str) -> Handle | None:
        """Takes over the version after ``parent`` that an earlier attempt at the batch prepared; None: there is none.

        Nothing is computed. The state is then open at the handle that is given back.

        Raises
        ------
        Corrupt
            What is stored under its name is damaged.
        Incompatible
            It was prepared for another batch, or on another version than ``parent``.
        """
        prepared = self._prepared.find(parent, batch_id, version_id)
        if prepared is None:
            return None
        ref, identity = prepared
        handle, snapshot = self._next_handle(parent, batch_id, ref, identity.expiry)
        handle = listing(handle, identity.lineage)
        self._whole_handles.keep(handle)
        self.open(handle)
        self._work.delta_bytes += ref.size_bytes
        self._settle(handle, parent, snapshot)
        return handle

    def adopt_of_run(self, parent: Handle | None, batch_id: int, run_id: str) -> Handle | None:
        """As :meth:`adopt`, of whichever attempt of a run; Undecided when several attempts made different versions."""
        version_id = self._prepared.of_run(parent, batch_id, run_id)
        return None if version_id is None else self.adopt(parent, batch_id, version_id)

    def beside(self, stored: StoredHandle, version_id: str) -> Handle | None:
        """The version of ``stored`` as another attempt at its batch prepared it; None: it did not. Raises as
        :meth:`adopt` and :meth:`whole`.
        """
        self._check_own(stored)
        self._ready_folder()
        found = self._prepared.beside(stored, version_id)
        return None if found is None else self.whole(found)

    def made_on(self, stored: StoredHandle, batch_id: int, version_id: str | None, run_id: str) -> Handle | None:
        """What the attempts at a batch went on from whose output is visible: the version of ``stored``, or the one that
        another attempt at its batch prepared. None: they prepared none of this slot, or the file of it is gone.

        Parameters
        ----------
        version_id, run_id
            What the recorded attempt at this task prepared, if it is there; else it is what the run did.

        Raises
        ------
        Undecided
            Attempts of the run went on from versions that differ.
        Corrupt, Incompatible
            As :meth:`adopt` and :meth:`whole`.
        """
        self._check_own(stored)
        self._ready_folder()
        found = self._prepared.made_on(stored, batch_id, version_id, run_id)
        if found is None:
            return None
        return self.whole(stored) if found == stored.version_id else self.beside(stored, found)

    def has_prepared(self, parent: Handle | None, version_id: str) -> bool:
        """Whether an attempt prepared a version after ``parent``."""
        return self._prepared.exists(parent, version_id)

    def abort(self, error: BaseException | None = None) -> None:
        """Forgets the batch at hand, and the memory with it.

        Parameters
        ----------
        error
            Why. After Corrupt the local bases are read through, and those that are damaged discarded, so that the next
            attempt does not meet them.
        """
        self._identity = self._stamps = None
        self._work = SlotWork()
        self.release_memory()
        if isinstance(error, Corrupt):
            self._discard_damaged(error)

    @property
    def memory_bytes(self) -> int:
        """What the overlay takes."""
        return self._live.store.memory_bytes if self._live else 0

    @property
    def unused_ms(self) -> float:
        """How long ago the last batch was; 0 while one is at hand."""
        return 0 if self._identity is not None else self._context.clock.elapsed_ms() - self._used_ms

    @property
    def wanted_whole(self) -> int | None:
        """Of a state that is kept as a whole (backend hashmap): the batch that it was last in. None of others."""
        live = self._live
        if live is None or live.handle is None or not self._context.settings.complete:
            return None
        return live.handle.batch_id

    def forget_clean(self) -> None:
        """Keeps in memory only what is in no base yet. Not while a batch is at hand."""
        if self._live is not None and not self._context.settings.complete:
            self._live.store.evict_clean()

    def release_memory(self) -> None:
        """Drops the overlay; the next :meth:`open` starts from what is on disk. Not while a batch is at hand."""
        if self._identity is not None:
            raise InvalidRequest(
                f"batch {self._identity.batch_id} is at hand: abort() drops it, release_memory() does not"
            )
        self._live = None
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _check_own(self, handle: NamedVersion) -> None:
        context = self._context
        if (handle.operator, handle.slot) != (context.operator, context.slot):
            raise InvalidRequest(
                f"the handle of {handle.where} was given to operator {context.operator!r}, slot {context.slot}"
            )

    def _ready_folder(self) -> None:
        if not self._context.folder.exists():  # cleaned away by somebody who thought it temporary
            self._claim_local_dir()
            self._context.folder.make()

    def _next_handle(
        self, parent: Handle | None, batch_id: int, ref: DeltaRef, expiry: tuple[StateExpiry, ...]
    ) -> tuple[Handle, SnapshotRef | None]:
        snapshot = self._maintenance.ready_snapshot(parent) if parent else None
        first = Handle(
            operator=self._context.operator,
            slot=self._context.slot,
            version_id=ref.version_id,
            parent_id=parent.version_id if parent else None,
            sequence=ref.sequence,
            batch_id=batch_id,
            expiry=expiry,
        )
        return next_handle(parent, first, ref, snapshot, self._context.settings.retained_batches), snapshot

    def _settle(self, handle: Handle, parent: Handle | None, snapshot: SnapshotRef | None) -> None:
        """What is due after a version is there: now, and in the background."""
        live = self._opened()
        task = Task(
            handle, parent, self._opened_ms, retention=snapshot is not None, pending_bytes=live.store.pending_bytes
        )
        self._maintenance.catch_up_now(task)
        self._take_newer_base(live)
        task = replace(task, pending_bytes=live.store.pending_bytes)  # less, over a newer base
        if self._maintenance.wanted(task, live.base):
            self._background.submit(self, lambda: self._maintenance.run(task))

    def _discard_damaged(self, error: Corrupt) -> None:
        try:
            self._bases.discard_damaged(str(error))
        except HoldfastError as failure:  # of the local disk; what the caller is told is why the batch failed
            self._context.logger.warning("local bases could not be read through: %s", failure)

    def _opened(self) -> Live:
        if self._live is None:
            raise InvalidRequest(
                f"slot {self._context.slot} of operator {self._context.operator!r} is not open; call open(handle)"
            )
        return self._live

    def _at_hand(self) -> DeltaIdentity:
        if self._identity is None:
            raise InvalidRequest(
                f"slot {self._context.slot} of operator {self._context.operator!r}: no batch is at hand; call begin()"
            )
        return self._identity

    def _publish_spill(self, live: Live, ref: DeltaRef) -> None:
        if self._spill is None:
            return
        spill, self._spill = self._spill, None
        try:
            base = spill.publish(ref)
            self._restoring.move_to(live.store, base)
            live.base = base
        finally:
            spill.close()

    def _take_newer_base(self, live: Live) -> None:
        """Moves the store onto the newest base that this or another process has folded."""
        if live.handle is None:
            return
        base = next(iter(self._bases.of(live.handle)), None)
        if base is None or base.sequence <= (live.base.sequence if live.base else 0):
            return
        if self._context.settings.complete:
            live.store.set_base(None, base.sequence)  # nothing is read: what the base holds need not be kept apart
            live.base = base
            return
        try:
            self._restoring.move_to(live.store, base)
        except Corrupt as error:
            self._context.logger.warning("a newer base is not used: %s", error)
            return
        live.base = base
        if live.store.memory_bytes > self._context.settings.cache_memory_max_bytes:
            live.store.evict_clean()
