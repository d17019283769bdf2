"""The commit record of one batch: what its tasks prepared, and so what is or will be visible. Format:
docs/formats/commit_record.md.

Creating it is the commit point: before it, nothing of the batch is output, whatever was prepared; after it, all of it
is, whatever is visible yet. It is never changed: what was lost on its way is named anew by the next revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.commit.sink import Committable, Outcome, Sink
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.sealed import seal, unseal

FORMAT = "holdfast.commit"
VERSION = 2
#: Of records without doubted batches, which earlier releases read too.
_VERSION_WITHOUT_DOUBT = 1


@dataclass(frozen=True)
class TaskRecord:
    """The task attempt that wrote a partition: with its run it names the versions of state that it prepared."""

    partition: int
    run_id: str
    attempt: int
    task_attempt_id: int
    rows: int


@dataclass(frozen=True)
class SinkRecord:
    """What one sink has of the batch. ``done`` and ``lost``: partitions of which that is known already. ``claim``: what
    the driver's claim has for records, where there is no committable.
    """

    kind: str
    committables: tuple[Committable, ...]
    done: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    claim: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[Committable, ...]:
        """Those that the sink must be asked about."""
        known = {*self.done, *self.lost}
        return tuple(one for one in self.committables if one.partition not in known)


@dataclass(frozen=True)
class CommitRecord:
    """One revision of one batch's record.

    Attributes
    ----------
    run_id, epoch
        Who wrote this revision.
    offsets
        XXH64 of Spark's own ``offsets/<batch>``, which says what the batch read; empty where that could not be read.
    partitions
        Number of sink tasks.
    state_run_id
        The run whose versions the state has, where an operator's tasks are not the sink's: an earlier revision's as
        long as anything of that is kept.
    doubted
        Batches up to this one, of those whose records were kept, at which tasks had several attempts, in order.
    """

    query_id: str
    run_id: str
    epoch: int
    batch_id: int
    revision: int
    offsets: str
    partitions: int
    state_run_id: str
    tasks: tuple[TaskRecord, ...]
    sinks: Mapping[str, SinkRecord]
    doubted: tuple[int, ...] = ()

    def to_text(self) -> str:
        return seal(FORMAT, VERSION if self.doubted else _VERSION_WITHOUT_DOUBT, _fields(self))

    @classmethod
    def from_text(cls, text: str | bytes, where: str, named: tuple[str, int, int] | None = None) -> CommitRecord:
        """Reads a record back; Corrupt when it is not what was written, Incompatible when a newer Holdfast wrote it.
        ``named``: of which query, batch and revision it must be, by its file's name; Corrupt where it is another's.
        """
        fields = unseal(text, FORMAT, VERSION, where)
        found = tuple(fields.get(name) for name in ("query_id", "batch_id", "revision"))
        if named is not None and found != named:  # before room is made for batches up to the one that it says
            raise Corrupt(
                f"{where} belongs elsewhere: it is of batch {found[1]}, revision {found[2]}, of query {found[0]}"
            )
        try:
            record = _from_fields(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corrupt(f"{where} lacks what a commit record has: {error!r}") from error
        broken = broken_rule(record)
        if broken:
            raise Corrupt(f"{where} contradicts itself: {broken}")
        return record

    def decided(self, sink: str, partitions: Mapping[int, Outcome]) -> CommitRecord:
        """The next revision, once it is known from elsewhere what became of some partitions of a sink.

        Raises
        ------
        InvalidRequest
            The record names no such sink or partition, or knows the opposite of it.
        """
        if sink not in self.sinks:
            raise InvalidRequest(
                f"the record of batch {self.batch_id} has no sink {sink!r}; it has {', '.join(sorted(self.sinks))}"
            )
        record = self.sinks[sink]
        done, lost = set(record.done), set(record.lost)
        named = {one.partition for one in record.committables}
        for partition, outcome in partitions.items():
            mine, other = (done, lost) if outcome is Outcome.DONE else (lost, done)
            if partition not in named or partition in other:
                raise InvalidRequest(
                    f"batch {self.batch_id}, sink {sink!r}: partition {partition} cannot be said to be "
                    f"{outcome.value}: " + ("the opposite is recorded" if partition in named else "it wrote nothing")
                )
            mine.add(partition)
        changed = replace(record, done=tuple(sorted(done)), lost=tuple(sorted(lost)))
        return replace(self, revision=self.revision + 1, sinks={**self.sinks, sink: changed})


def recorded_of(record: CommitRecord | None, sink: Sink) -> SinkRecord:
    """What a record has of a sink: no stray. Nothing where another kind of sink had that name."""
    recorded = record.sinks.get(sink.name) if record is not None else None
    return recorded if recorded is not None and recorded.kind == sink.kind else SinkRecord(sink.kind, ())


def broken_rule(record: CommitRecord) -> str | None:
    """The first rule of docs/formats/commit_record.md that ``record`` breaks, or None. On writing and reading."""
    partitions = [task.partition for task in record.tasks]
    if len(partitions) != record.partitions or partitions != list(range(record.partitions)):
        return f"it has one task for each of {record.partitions} partitions, in order; found {partitions}"
    for name, sink in record.sinks.items():
        named = [one.partition for one in sink.committables]
        if named != sorted(set(named)) or (named and not 0 <= named[0] <= named[-1] < record.partitions):
            return f"sink {name!r} has at most one committable for each partition, in order; found {named}"
        if not {*sink.done, *sink.lost} <= set(named) or set(sink.done) & set(sink.lost):
            return f"sink {name!r} is done or lost where it has a committable, not both: {sink.done}, {sink.lost}"
    doubted = list(record.doubted)
    if doubted != sorted(set(doubted)) or (doubted and not 0 <= doubted[0] <= doubted[-1] <= record.batch_id):
        return f"batches that are doubted are in order, up to {record.batch_id}; found {doubted}"
    return None


def stretches(batches: Sequence[int]) -> list[list[int]]:
    """``[first, last]`` of each unbroken stretch of batches that are in order."""
    found: list[list[int]] = []
    for batch_id in batches:
        if found and found[-1][1] == batch_id - 1:
            found[-1][1] = batch_id
        else:
            found.append([batch_id, batch_id])
    return found


def _fields(record: CommitRecord) -> dict[str, Any]:
    doubt = {"doubted": stretches(record.doubted)} if record.doubted else {}
    return {
        **doubt,
        "query_id": record.query_id,
        "run_id": record.run_id,
        "epoch": record.epoch,
        "batch_id": record.batch_id,
        "revision": record.revision,
        "offsets": record.offsets,
        "partitions": record.partitions,
        "state_run_id": record.state_run_id,
        "tasks": [[t.partition, t.run_id, t.attempt, t.task_attempt_id, t.rows] for t in record.tasks],
        "sinks": {
            name: {
                "kind": sink.kind,
                "committables": committables_to_rows(sink.committables),
                "done": list(sink.done),
                "lost": list(sink.lost),
                **({"claim": dict(sink.claim)} if sink.claim else {}),
            }
            for name, sink in record.sinks.items()
        },
    }


def _from_fields(fields: dict[str, Any]) -> CommitRecord:
    sinks = {
        name: SinkRecord(
            kind=sink["kind"],
            committables=committables_from_rows(sink["committables"]),
            done=tuple(sink["done"]),
            lost=tuple(sink["lost"]),
            claim=dict(sink.get("claim", {})),
        )
        for name, sink in fields["sinks"].items()
    }
    tasks = tuple(TaskRecord(*row) for row in fields["tasks"])
    doubted = tuple(_batches(fields.get("doubted", ()), fields["batch_id"]))
    return CommitRecord(**{**fields, "tasks": tasks, "sinks": sinks, "doubted": doubted})


def _batches(rows: Sequence[Sequence[int]], newest: int) -> Iterator[int]:
    count = 0
    for first, last in rows:
        count += last - first + 1
        if first > last or count > newest + 1:  # before room is made for them
            raise ValueError(f"doubted batches {first} to {last} of batch {newest}, {count} in all")
        yield from range(first, last + 1)


def committables_to_rows(committables: Sequence[Committable]) -> list[list[Any]]:
    """``[partition, attempt, rows, size, body]`` of each."""
    return [[c.partition, c.attempt, c.rows, c.size_bytes, dict(c.body)] for c in committables]


def committables_from_rows(rows: Sequence[Sequence[Any]]) -> tuple[Committable, ...]:
    """The inverse of :func:`committables_to_rows`."""
    return tuple(Committable(*row) for row in rows)
