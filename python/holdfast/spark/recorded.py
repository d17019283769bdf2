"""What slots are told of batches at which Spark may have made several attempts: the versions that count.

A local property of the job, as a replay is (`replay.py`). It has those of the newest batches; of others it says which
commit records are there, and a slot whose version is of such a batch reads that record itself, from the checkpoint.
So nothing that a record is kept of is forgotten, however many tasks a batch has (docs/rfcs/0020).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from holdfast.checkpoint.names import attempt_version_id
from holdfast.commit.batch import Doubted
from holdfast.commit.record_log import newest_record
from holdfast.errors import InternalError
from holdfast.storage import CHECKPOINT, StorageOptions, open_file_store

RECORDED_PROPERTY = "holdfast.recorded"
#: Records that a worker keeps what it read of: slots that were quiet are of several batches.
_KEPT = 64


@dataclass(frozen=True)
class Recorded:
    """The versions that count, by the batch and the partition of the sink's stage in which they were made.

    Attributes
    ----------
    told
        Those that the driver told.
    checkpoint, query_id
        Where the commit records are.
    first, before
        Batches of which a record says it, in place of the driver.
    """

    told: Mapping[tuple[int, int], str] = field(default_factory=dict)
    checkpoint: str = ""
    query_id: str = ""
    first: int = 0
    before: int = 0

    def version(
        self, batch_id: int, partition: int, run_id: str | None, storage: Callable[[], StorageOptions]
    ) -> str | None:
        """The version that counts; None: there was one attempt, or it is not known.

        Parameters
        ----------
        run_id
            The run that asks. A later one does not go by what this one has read.
        storage
            How the checkpoint is reached.

        Raises
        ------
        Corrupt
            The batch's record is damaged.
        Unavailable
            The checkpoint did not answer.
        """
        told = self.told.get((batch_id, partition))
        if told is not None or not self.first <= batch_id < self.before:
            return told
        return _read(self.checkpoint, storage(), self.query_id, run_id, batch_id).get(partition)


def recorded_property(doubted: Doubted) -> str | None:
    """What :func:`recorded` reads back; None: there is nothing to be told."""
    if not doubted.told and doubted.first >= doubted.before:
        return None
    told = {
        batch_id: {task.partition: attempt_version_id(task.run_id, task.task_attempt_id) for task in tasks}
        for batch_id, tasks in doubted.told.items()
    }
    records = [doubted.checkpoint, doubted.query_id, doubted.first, doubted.before]
    return json.dumps({"told": told, "records": records})


@lru_cache(maxsize=4)
def recorded(text: str | None) -> Recorded:
    """What a task's job was told."""
    if not text:
        return Recorded()
    try:
        found = json.loads(text)
        told = {
            (int(batch_id), int(partition)): str(version_id)
            for batch_id, versions in found["told"].items()
            for partition, version_id in versions.items()
        }
        checkpoint, query_id, first, before = found["records"]
        return Recorded(told, str(checkpoint), str(query_id), int(first), int(before))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InternalError(f"the local property {RECORDED_PROPERTY} is {text[:200]!r}: {error!r}") from error


@lru_cache(maxsize=_KEPT)
def _read(
    checkpoint: str, storage: StorageOptions, query_id: str, run_id: str | None, batch_id: int
) -> Mapping[int, str]:
    record = newest_record(open_file_store(checkpoint, storage, CHECKPOINT), query_id, batch_id)
    tasks = () if record is None else record.tasks  # another batch's is trimmed while this one runs
    return {task.partition: attempt_version_id(task.run_id, task.task_attempt_id) for task in tasks}
