"""What goes between the driver and the tasks of one batch: results of sink tasks, and what a replay asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.commit.record import CommitRecord, TaskRecord
from holdfast.commit.sink import Committable, Outcome

#: By sink and partition.
Outcomes = Mapping[str, Mapping[int, Outcome]]


@dataclass(frozen=True)
class TaskResult:
    """What the successful attempt at one partition gives back.

    Attributes
    ----------
    attempt
        Among those of its stage's run: also 0 where Spark ran the stage anew.
    committables
        By sink, of those that got rows.
    run_anew
        Whether it was perhaps not the first attempt at its partition, whatever ``attempt`` says.
    """

    partition: int
    attempt: int
    task_attempt_id: int
    rows: int
    committables: Mapping[str, Committable] = field(default_factory=dict)
    run_anew: bool = False


@dataclass(frozen=True)
class Doubted:
    """Batches at whose partitions there were perhaps several attempts: what the others left Spark may take for the
    state.

    Attributes
    ----------
    told
        By batch, of the newest, the tasks that are recorded.
    checkpoint, query_id
        Where the records of others are: the URI, and the identity that they belong to.
    first, before
        Of batches from ``first`` to below ``before`` the records say it, as far as they are there.
    """

    told: Mapping[int, tuple[TaskRecord, ...]]
    checkpoint: str
    query_id: str
    first: int
    before: int


@dataclass(frozen=True)
class Replay:
    """How a batch runs again whose record exists and of which some output is visible.

    Attributes
    ----------
    record
        What was recorded.
    lost
        Partitions that each sink must write again; every other partition is read to its end and written nowhere.
    """

    record: CommitRecord
    lost: Mapping[str, frozenset[int]]

    @property
    def lost_partitions(self) -> frozenset[int]:
        """Those that some sink lost: they are computed again."""
        return frozenset().union(*self.lost.values())

    @property
    def tasks(self) -> Mapping[int, TaskRecord]:
        return {task.partition: task for task in self.record.tasks}

    def writes(self, sink: str, partition: int) -> bool:
        """Whether a sink takes the rows of a partition."""
        return partition in self.lost.get(sink, ())


def replay_of(record: CommitRecord, outcomes: Outcomes) -> Replay | None:
    """How the batch of ``record`` runs again.
    None when nothing of it is kept, so that it runs as if for the first time.
    """
    lost = {
        sink: frozenset(partition for partition, outcome in found.items() if outcome is Outcome.LOST)
        for sink, found in outcomes.items()
    }
    is_kept = any(outcome is Outcome.DONE for found in outcomes.values() for outcome in found.values())
    if any(lost.values()) and not is_kept:
        return None
    return Replay(record, lost)
