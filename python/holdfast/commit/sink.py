"""What a sink is: the interface between the committer, which decides, and a system that output goes to.

Two phases. In a Spark task a `SinkWriter` takes the rows of one partition and *prepares* them: durable at the other
side, seen by nobody. What it gives back, a `Committable`, travels to the driver and into the commit record; the record
is the commit point. Then the driver calls `Sink.commit`, as often as it takes, from this process or, after a crash,
from another one.

An implementation holds if it keeps to this; tests/contract/test_sink.py tries each of them with it:

- A `Sink` is options and nothing else: it is pickled to the tasks, compared with nothing, and its text shows no secret.
- Between ``prepare`` and ``commit`` any process may be killed, the writer's and the other side's too. What was prepared
  stays, until `Sink.commit`, `Sink.abort`, or a time limit of the other side.
- ``commit`` and ``abort`` are idempotent. ``commit`` answers `Outcome.DONE` only when the output is visible (now, or by
  an earlier call), and `Outcome.LOST` only when it is certain that it never will be. Where the other side does not say
  which, it raises `holdfast.errors.Undecided` and never guesses.
- Names at the other side are made of the `Scope` with its epoch, the partition, the attempt and the batch's parity or
  number. Nothing that a record may still name is opened again: the committer finishes record N - 1 before it runs batch
  N, so two parities are enough. Late tasks of an overtaken driver must not make what its successor committed look lost:
  by the epoch in their names (docs/rfcs/0004), or by an answer that does not depend on names (docs/rfcs/0006).
- ``traces`` changes nothing, and shows what is visible of whoever wrote with this scope's query and sink; ``claim``
  leaves a trace itself, but only where no other driver has come before it.
- A writer that was superseded (another took its name, or `Sink.recover` swept it away) can not make anything visible:
  it raises `holdfast.errors.Fenced`, or what it prepares is `Outcome.LOST`.
- ``recover`` is fast: what it leaves may stall readers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.commit.traces import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.commit.epochs import Driver
    from holdfast.storage import StorageOptions


@dataclass(frozen=True)
class Scope:
    """Who writes: names everything that a sink creates at the other side.

    Attributes
    ----------
    query_id
        The streaming query, or its timeline's id since it was forked; the same over its restarts.
    run_id
        This run of it.
    epoch
        Number of this run's driver among all that ran on the checkpoint; the newest is the owner.
    sink
        Name of the sink, one of a kind in its query.
    claim
        What `Sink.claim` gave to this run's driver.
    recorded
        For `Sink.traces` and `Sink.claim`: what the newest record, in which the sink has no committable, has of the
        claim of the driver that wrote it.
    """

    query_id: str
    run_id: str
    epoch: int
    sink: str
    claim: Mapping[str, Any] = field(default_factory=dict, compare=False)
    recorded: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class SinkTask:
    """One attempt of one Spark task to write one partition of a batch.

    Attributes
    ----------
    attempt
        0, and one more for each retry or speculative copy of the task in the same stage.
    task_attempt_id
        Spark's; of one kind in a run.
    """

    scope: Scope
    batch_id: int
    partition: int
    attempt: int
    task_attempt_id: int


@dataclass(frozen=True)
class Committable:
    """What one task prepared, and what it takes to commit or abort it from any process.

    Attributes
    ----------
    rows, size_bytes
        What was written, for progress and checks; not read back by the sink.
    body
        The sink's own: JSON, small, no secrets. It stands in the commit record,
        so what a release wrote must be read by the next.
    """

    partition: int
    attempt: int
    rows: int
    size_bytes: int
    body: Mapping[str, Any]


@dataclass(frozen=True)
class CommitLimits:
    """What the committer will do, for a sink to check at start whether the other side allows it.

    Attributes
    ----------
    trigger_ms
        Time between batches; None: as fast as possible, or once.
    retry_max_ms
        How long the committer goes on retrying a commit that raises `holdfast.errors.Unavailable`.
    retry_backoff_ms
        Pause before the first retry; later ones wait longer.
    """

    trigger_ms: int | None
    retry_max_ms: int
    retry_backoff_ms: int


class Outcome(enum.Enum):
    """What became of a committable.

    There is no third: where the other side does not say, `holdfast.errors.Undecided` is raised.
    """

    DONE = "done"
    """Visible."""
    LOST = "lost"
    """It will never be visible, and must be produced again."""


@runtime_checkable
class SinkWriter(Protocol):
    """Writes one partition of one batch, in a Spark task. Used by one thread."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows. They may be buffered.

        Raises
        ------
        InvalidRequest
            A value does not fit (a topic that is null, a partition that does not exist).
        Fenced
            Another writer of this name, or a recovery, took over.
        Unavailable
            The other side does not answer; the task fails and Spark retries it.
        """

    def prepare(self) -> Committable | None:
        """Make everything written durable at the other side, without making it visible.

        None when nothing was written: there is nothing to commit. Afterwards the writer is of no use any more; nothing
        that happens to it or to this process may undo what was prepared.

        Raises
        ------
        Fenced, Unavailable
            As for ``write``; nothing was prepared, or what was will be aborted by a recovery.
        """

    def abort(self) -> None:
        """Give up what was written and not prepared. Does its best and raises nothing: recovery sweeps up after it."""


@runtime_checkable
class Sink(Protocol):
    """A place that output goes to, as options."""

    @property
    def name(self) -> str:
        """Letters, digits, ``_``, ``-`` and ``.``; one of a kind in its query, and the same over its restarts."""

    @property
    def kind(self) -> str:
        """Which implementation wrote a record's committables: ``kafka``, ``files``."""

    def check(self, schema: pa.Schema, limits: CommitLimits) -> None:
        """On the driver, at start: whether rows of this schema can be written, and whether the other side is fit.

        Raises
        ------
        InvalidRequest
            Options, schema, limits or the other side's own limits contradict each other.
        Unavailable
            The other side does not answer.
        """

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> Sequence[Trace]:
        """What drivers of this query have left visible at the other side, oldest first. Changes nothing.

        Parameters
        ----------
        scope
            Of the query and sink; its epoch is nobody's yet.
        newest
            What the newest record names: what is older need not be told.

        Raises
        ------
        Unavailable
            To be called again.
        """

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        """Take the sink over for this run, before anything is committed, recovered or opened by it.

        From now on drivers that claimed it before make nothing visible (`holdfast.errors.Fenced`), as far as the other
        side can tell them apart. Gives what `Scope.claim` then holds, on the driver and in the tasks: small, picklable.
        What of it is under ``recorded``, JSON, stands in records of batches in which the sink has no committable.

        Parameters
        ----------
        check
            Is given the traces up to this claim, and raises where this driver must not be: then it leaves none.

        Raises
        ------
        Fenced
            Another driver claims it at the same time.
        Unavailable
            To be called again.
        """

    def open(self, task: SinkTask) -> SinkWriter:
        """In a task: a writer. May start its work in a thread and return at once.

        This aborts what was written before under the same names (scope, partition, parity, attempt)
        and never committed.
        """

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> Sequence[Outcome]:
        """Make visible what was prepared; one outcome for each committable, in order.

        Raises
        ------
        Fenced
            Another driver has claimed the sink.
        Unavailable
            Not all could be decided within the sink's own short patience.
            To be called again, with the same committables.
        Undecided
            The other side does not know any more. The message names what, and how a person decides it.
        """

    def abort(self, scope: Scope, committables: Sequence[Committable]) -> None:
        """Make sure that none of these becomes visible. Those that are visible already, or gone, stay as they are.

        Raises
        ------
        Unavailable
            To be called again.
        """

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        """Abort whatever this query and sink has open at the other side, but not ``keep``; fence its writers.

        On the driver: once a run, before its first task, after what the newest record names was committed; and after a
        batch with failed attempts. Gives the number of strays. Spark has not committed yet what ``keep`` is of: should
        the driver die, the next one calls ``commit`` for it again, and must get the same answers.

        Raises
        ------
        Unavailable
            To be called again.
        """


@runtime_checkable
class KeepsFiles(Protocol):
    """A sink whose other side is a file store."""

    def with_storage(self, storage: StorageOptions) -> Sink:
        """The same sink, which reaches an object store by these options, unless it was given some of its own."""
