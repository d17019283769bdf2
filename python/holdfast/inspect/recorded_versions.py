"""Which version of a slot counts where Spark's state has another attempt's: the one that the commit record names.

As the query itself has it when it starts (docs/rfcs/0020), and of the same batches: those that the newest record calls
doubted, and its own. A slot is known by its files, not by its partition. Where there are no records, or no more of a
batch, and of operators whose tasks are not the sink's, what Spark has counts. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial

from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import attempt_version_id, delta_name, maker_of, parse_version, slot_prefix
from holdfast.checkpoint.prepared_versions import version_beside
from holdfast.commit.record import CommitRecord
from holdfast.commit.record_log import RecordLog, query_prefix
from holdfast.commit.timeline import timeline_of
from holdfast.errors import Corrupt
from holdfast.storage import FileStore, run_parallel

#: Slots that are looked at side by side.
_THREADS = 16


class RecordedVersions:
    """What the commit records of one checkpoint name, as they are when this is made.

    Parameters
    ----------
    store
        Spark's checkpoint.

    Raises
    ------
    Corrupt
        The checkpoint's newest fork is damaged; and each method, where a record is.
    """

    def __init__(self, store: FileStore, query_id: str) -> None:
        timeline = timeline_of(store, query_id)
        self._where = f"{query_prefix(timeline)}/records in {store.uri}"
        self._log = RecordLog(store, timeline)
        self._log.load()
        self._versions: dict[int, frozenset[str]] = {}

    def every(self) -> frozenset[str]:
        """Versions of all attempts that records name."""
        return frozenset().union(*self._newest_first())

    def that_count(self, slots: Mapping[int, StoredHandle], store: FileStore, prefix: str) -> dict[int, StoredHandle]:
        """The handles that count of an operator of which Spark has ``slots``.

        Parameters
        ----------
        store, prefix
            Where the operator's state is.

        Raises
        ------
        Corrupt
            The version that counts is damaged, or was deleted.
        Incompatible
            It was prepared on another version than Spark's.
        """
        others = [slot for slot in sorted(slots) if self._may_not_count(slots[slot])]
        looks = [partial(store.names, f"{slot_prefix(prefix, slot)}/delta/") for slot in others]
        names = run_parallel(looks, _THREADS)
        found = dict(slots)
        for slot, in_folder in zip(others, names):
            versions = {version for name in in_folder if (version := parse_version(name)) is not None}
            counts = self._counting(slots, slots[slot], versions)
            beside = None if counts is None else version_beside(store, prefix, slots[slot], counts)
            if beside is not None:
                found[slot] = beside[0]
        return found

    def _may_not_count(self, handle: StoredHandle) -> bool:
        """A first version is no attempt's: all go on from one."""
        if handle.newest is None or self._newest is None:
            return False
        if handle.batch_id not in (self._newest.batch_id, *self._newest.doubted):
            return False
        return handle.version_id not in self._of(handle.batch_id)

    def _counting(
        self, slots: Mapping[int, StoredHandle], handle: StoredHandle, there: set[tuple[int, str]]
    ) -> str | None:
        """The version in place of the handle's; None: nothing says that it is another. ``there``: the slot's deltas."""
        recorded = self._of(handle.batch_id)
        counts = sorted(id for sequence, id in there if sequence == handle.sequence and id in recorded)
        if counts:
            return counts[0]  # one task of the record ran the slot
        is_gone = (handle.sequence, handle.version_id) not in there  # both are: retention, most likely; readers say so
        if is_gone or not recorded or not self._newest or handle.batch_id not in self._newest.doubted:
            return None
        known = {id for _, id in there} | {one.version_id for one in slots.values()}
        of_run = {id for id in known if maker_of(id) == maker_of(handle.version_id)}
        if not any(of_run & versions for versions in self._newest_first()):
            return None  # the operator's tasks are not the sink's: which attempt counts is not recorded
        named = delta_name(handle.sequence, "<version>")
        raise Corrupt(
            f"{handle.where}: Spark's state has this version of batch {handle.batch_id}, of an attempt that does not "
            f"count. The version that the visible output was made from is not there: expected {named} in the slot's "
            f"folder, of a task that the record of batch {handle.batch_id} has ({self._where}). Put that file back "
            "from a backup of the state; or take a batch before this one"
        )

    @cached_property
    def _newest(self) -> CommitRecord | None:
        while (batch_id := self._log.newest_batch) is not None:
            record = self._record(batch_id)
            if record is not None:
                return record
        return None

    def _of(self, batch_id: int) -> frozenset[str]:
        """Versions that a batch's record names; none where it is kept no longer."""
        if batch_id not in self._versions:
            record = self._record(batch_id)
            tasks = () if record is None else record.tasks
            self._versions[batch_id] = frozenset(attempt_version_id(one.run_id, one.task_attempt_id) for one in tasks)
        return self._versions[batch_id]

    def _newest_first(self) -> Iterator[frozenset[str]]:
        for batch_id in reversed(self._log.batches):
            yield self._of(batch_id)

    def _record(self, batch_id: int) -> CommitRecord | None:
        try:
            return self._log.newest(batch_id)
        except Corrupt:
            self._log.load()
            if batch_id not in self._log.batches:
                return None  # a query that runs keeps it no longer
            raise
