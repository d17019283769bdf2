"""The commit records of one query in storage: `<checkpoint>/holdfast/<query id>/records/<batch>-<revision>.json`.

What is listed once, at a run's start, is known from then on: only the driver of the newest epoch writes here, and two
that meet are told by `create`. The newest revision of a batch counts.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from holdfast.commit.record import CommitRecord, broken_rule
from holdfast.errors import Corrupt, InternalError
from holdfast.storage import FileStore

_NAME = re.compile(r"(\d{12,})-(\d{4,})\.json")


def query_prefix(query_id: str) -> str:
    """The folder in the checkpoint that is this query's."""
    return f"holdfast/{quote(query_id, safe='')}"


def record_name(query_id: str, batch_id: int, revision: int) -> str:
    return f"{query_prefix(query_id)}/records/{batch_id:012d}-{revision:04d}.json"


def stored_record(store: FileStore, query_id: str, batch_id: int, revision: int) -> CommitRecord | None:
    """One revision as it is stored; None where it is not. Corrupt when it is damaged, or another one."""
    name = record_name(query_id, batch_id, revision)
    data = store.get(name)
    if data is None:
        return None
    return CommitRecord.from_text(
        data, f"the commit record {name} in {store.uri}", named=(query_id, batch_id, revision)
    )


def newest_record(store: FileStore, query_id: str, batch_id: int) -> CommitRecord | None:
    """The newest revision of a batch's record, for who wants that one only and lists nothing; None when there is none.
    Raises as :func:`stored_record`.
    """
    newest = None
    while (found := stored_record(store, query_id, batch_id, newest.revision + 1 if newest else 0)) is not None:
        newest = found
    return newest


class RecordLog:
    """The records of one query. Owner: the driver's thread."""

    def __init__(self, store: FileStore, query_id: str) -> None:
        self._store = store
        self._query_id = query_id
        self._revisions: dict[int, list[int]] = {}
        self._kept: dict[tuple[int, int], CommitRecord] = {}  # the newest few, as they were written or read

    def load(self) -> None:
        """Lists what there is."""
        self._kept.clear()
        self._revisions.clear()
        for file in self._store.list(f"{query_prefix(self._query_id)}/records/"):
            match = _NAME.fullmatch(file.name.rpartition("/")[2])
            if match:
                self._revisions.setdefault(int(match.group(1)), []).append(int(match.group(2)))

    @property
    def batches(self) -> list[int]:
        """Batches that have a record, in order."""
        return sorted(self._revisions)

    @property
    def newest_batch(self) -> int | None:
        return max(self._revisions, default=None)

    def newest(self, batch_id: int) -> CommitRecord | None:
        """The newest revision of a batch's record; None when there is none.

        Raises
        ------
        Corrupt
            It is damaged: restore it, or decide by hand what became of the batch.
        """
        revisions = self._revisions.get(batch_id)
        return self.read(batch_id, max(revisions)) if revisions else None

    def read(self, batch_id: int, revision: int) -> CommitRecord:
        """One revision."""
        found = self._kept.get((batch_id, revision))
        if found is None:
            found = stored_record(self._store, self._query_id, batch_id, revision)
            if found is None:
                name = record_name(self._query_id, batch_id, revision)
                raise Corrupt(f"the commit record {name} was listed in {self._store.uri} and is missing now")
            self._keep(found)
        return found

    def create(self, record: CommitRecord) -> CommitRecord:
        """Makes a record durable, unless there is one of this batch and revision; the one that is there then.

        May be called again with the same record: when an answer was lost, the second call tells.
        """
        broken = broken_rule(record)
        if broken:
            raise InternalError(f"the record made for batch {record.batch_id} contradicts itself: {broken}")
        name = record_name(self._query_id, record.batch_id, record.revision)
        if self._store.create_if_absent(name, record.to_text().encode()):
            self._known(record)
            return record
        there = self.read(record.batch_id, record.revision)
        self._known(there)
        return there

    def trim(self, retained: int) -> None:
        """Deletes the records of all batches but the newest ``retained``, and older revisions with them."""
        newest = self.newest_batch
        old = [batch for batch in self._revisions if newest is not None and batch <= newest - retained]
        names = [record_name(self._query_id, b, r) for b in old for r in self._revisions[b]]
        if names:
            self._store.delete(names)
        for batch in old:
            del self._revisions[batch]

    def _known(self, record: CommitRecord) -> None:
        revisions = self._revisions.setdefault(record.batch_id, [])
        if record.revision not in revisions:
            revisions.append(record.revision)
        self._keep(record)

    def _keep(self, record: CommitRecord) -> None:
        if len(self._kept) > 4:
            self._kept.clear()
        self._kept[record.batch_id, record.revision] = record
