"""The protocol that makes output exactly-once, one batch at a time, on the driver, without Spark. See docs/rfcs/0004.

A batch: finish what the newest record names; run the job, in which tasks prepare; write the record (the commit point);
make visible what it names. A crash before the record leaves strays, which the next run aborts before its first task. A
crash after it leaves work that the next run finishes first. Owner: the thread that runs the query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from holdfast.commit.batch import Doubted, Outcomes, Replay, TaskResult, replay_of
from holdfast.commit.epochs import Driver, Epochs
from holdfast.commit.former_sinks import end_former_sinks, recorded_sinks
from holdfast.commit.given_up import check_not_given_up
from holdfast.commit.record import CommitRecord, SinkRecord, TaskRecord, recorded_of
from holdfast.commit.record_log import RecordLog, query_prefix
from holdfast.commit.repeats import Repeating, check_repeats, keeps_its_tasks
from holdfast.commit.retries import Retries
from holdfast.commit.sink import Committable, Outcome, Scope, Sink
from holdfast.commit.sweeps import LateStrays, LateSweeps, SweepsBetween
from holdfast.commit.timeline import timeline_of
from holdfast.commit.traces import Known, Trace, check_traces
from holdfast.errors import Fenced, HoldfastError, Incompatible, InternalError, Unavailable
from holdfast.fault_points import reach
from holdfast.sealed import checksum_of
from holdfast.spark_files.logs import planned_sources
from holdfast.storage import FileStore

_WRITING_MAX_MS = 3_600_000
#: Each is told to every task of a batch, in some 45 bytes. Of more the slots read the records.
_DOUBTED_MAX = 500
#: Runs the batch's job, exactly one full action, and gives the results of all its sink tasks.
Job = Callable[["Replay | None"], Sequence[TaskResult]]


@dataclass(frozen=True)
class CommitOptions:
    """What a committer goes by.

    Attributes
    ----------
    retained_batches
        Batches that Spark can be rolled back to: so many records are kept, and at least two.
    speculation
        Whether tasks may have copies that die unnoticed, and leave strays in batches where nothing failed.
    orphan_max_ms
        How long after a start, or after the last sign of one, a task may open something that nobody waits for.
    slots_take_over
        Whether the query has operators, whose slots give no rows of tasks that are done.
    rows_stay
        Whether what is made of a row of the input stays in the task that read it; asked where it matters.
    is_running
        Whether the query still runs; asked by any thread.
    """

    retries: Retries
    retained_batches: int = 100
    speculation: bool = False
    orphan_max_ms: int = 900_000
    slots_take_over: bool = False
    rows_stay: Callable[[], bool] = lambda: False
    is_running: Callable[[], bool] = lambda: True


@dataclass
class CommitTimes:
    """What the last batch's commit took, in milliseconds: the record, and from there until all is visible."""

    record_ms: float = 0.0
    commit_ms: float = 0.0


class Committer:
    """Commits the batches of one run of one query.

    Parameters
    ----------
    store
        The query's checkpoint folder, Spark's own: records are kept beside its logs.
    driver
        This run and its process.
    """

    def __init__(
        self, store: FileStore, query_id: str, driver: Driver, sinks: Sequence[Sink], options: CommitOptions
    ) -> None:
        self._store = store
        self._spark_query_id = query_id
        self._driver = driver
        self._run_id = driver.run_id
        self._sinks = {sink.name: sink for sink in sinks}
        self._options = options
        self._retries = replace(options.retries, is_running=options.is_running)
        self._go_by(query_id)  # until it has started, and knows its timeline
        self._claims: dict[str, Mapping[str, Any]] = {}
        self._is_started = False
        self._has_copies = options.speculation  # whether each task of the newest batch may have had other attempts
        self._newest: tuple[CommitRecord, Outcomes] | None = None  # what the start found, and what became of it
        self._asked_next: CommitRecord | None = None  # of which the next start asks, until Spark has its batch
        self._spared: int | None = None  # batch of such a record that the start found: its names are swept after it
        clock = options.retries.clock
        self._sweeps = LateSweeps(options.orphan_max_ms, clock, self._abort_late, options.is_running)
        self.times = CommitTimes()
        #: By batch, of the newest, the tasks that are recorded and were perhaps not the only attempts at their
        #: partitions: what the others left Spark may take for the state.
        self.doubted: dict[int, tuple[TaskRecord, ...]] = {}
        self._doubted_ids: set[int] = set()  # all such batches whose records are kept: of those not told these say it
        self._kept = max(2, options.retained_batches)  # records
        self._logger = logging.getLogger("holdfast.commit")

    @property
    def epoch(self) -> int:
        """This run's; 0 before its first batch."""
        return self._epochs.mine

    @property
    def told(self) -> Doubted:
        """What slots are told of attempts that count."""
        recorded = tuple(sorted(self._doubted_ids - self.doubted.keys()))
        return Doubted(self.doubted, self._store.uri, self._query_id, recorded)

    def scope(self, sink: str) -> Scope:
        return Scope(self._query_id, self._run_id, self._epochs.mine, sink, self._claims.get(sink, {}))

    def run_batch(self, batch_id: int, run_job: Job) -> None:
        """Runs a batch and makes its output visible, exactly once.

        Raises
        ------
        Fenced
            Another driver has taken over. Nothing of this one becomes visible any more.
        Incompatible
            The batch was committed with another input, other sinks, or longer ago than records are kept; or the
            sinks were written on without this checkpoint.
        Undecided
            A sink cannot say whether something is visible. Every start asks again, until somebody has decided.
        Unavailable
            Something did not answer within the limits, or lost what was recorded: start the query again.
        """
        if not self._is_started:
            self.start()
        record, outcomes = self._recorded(batch_id)
        if record is None:
            self._commit_new(batch_id, 0, self._run(run_job, None), None)
            return
        self._check_offsets(record)
        replay = replay_of(record, outcomes)
        if replay is None:
            self._logger.warning("batch %d: all that its record names was lost; it runs anew", batch_id)
            self._commit_new(batch_id, record.revision + 1, self._run(run_job, None, record), record)
            return
        results = self._run(run_job, replay, record)
        lost = replay.lost_partitions
        if lost:
            self._logger.warning("batch %d: partitions %s were lost and are written again", batch_id, sorted(lost))
            with self._or_nothing(results, record):
                check_repeats(replay, results, self._repeating(batch_id))
                revision = self._next_revision(replay, results)
            self._commit(replace(revision, doubted=self._doubted_by(revision)))

    def start(self) -> None:
        """Looks whether the sinks were written on without this checkpoint; takes it and them over; finishes what the
        newest record names; aborts all strays. Once a run, before any task.
        """
        self._go_by(self._retries.call("reading the forks", lambda: timeline_of(self._store, self._spark_query_id)))
        self._look_around()
        self._retries.call("claiming the checkpoint", self._epochs.claim)
        record = self._newest_record()
        self._claim_sinks(record)
        if record is not None:
            # Once more: the driver that wrote it may have been killed before it was durable.
            self._retries.call("writing the commit record", lambda record=record: self._log.create(record))  # type: ignore[misc]
            is_committed = self._is_committed(record)
            self._asked_next, self._spared = (None, None) if is_committed else (record, record.batch_id)
            self._newest = (record, _all_done(record) if is_committed else self._finish(record))
            self._go_on_from(record)
        self._recover(record)
        self._is_started = True
        if self._with_late_strays():
            self._sweeps.start()
        try:
            self._epochs.trim()
            # What drivers that were killed were writing. A live one may be writing too: it has an hour.
            before_ms = self._retries.clock.now_ms() - _WRITING_MAX_MS
            self._store.sweep(f"{query_prefix(self._query_id)}/", before_ms)
        except HoldfastError as error:
            self._logger.warning("old epochs and half-written files are cleared at the next start: %s", error)

    def check_newest(self) -> None:
        """Fenced when a newer driver has taken over."""
        self._check_epoch()

    def close(self) -> None:
        """The query has ended: nothing is looked after any more."""
        self._sweeps.stop()

    def _go_by(self, query_id: str) -> None:
        self._query_id = query_id
        self._log = RecordLog(self._store, query_id)
        self._epochs = Epochs(self._store, query_id, self._driver)

    def _newest_record(self) -> CommitRecord | None:
        self._retries.call("listing the commit records", self._log.load)
        newest = self._log.newest_batch
        if newest is None:
            return None
        return self._retries.call("reading the newest commit record", lambda: self._log.newest(newest))

    def _look_around(self) -> None:
        """Before anything is changed: a copy that was started by mistake must not harm the query it was copied from."""
        record = self._newest_record()
        if record is not None:
            recorded = record.batch_id
            self._retries.call("looking for a repartition", lambda: check_not_given_up(self._store, recorded))
        for name, sink in self._sinks.items():
            self._look_at(name, sink, recorded_of(record, sink))
        for name, former in self._retries.call("reading the commit records", lambda: recorded_sinks(self._log)).items():
            if not self._has(name, former.kind):
                for sink in self._sinks.values():
                    if sink.kind == former.kind:  # perhaps at the same other side
                        self._look_at(name, sink, former)

    def _look_at(self, name: str, sink: Sink, recorded: SinkRecord) -> None:
        """At what a sink has, or one of its kind had under another name."""
        scope, newest = replace(self.scope(name), recorded=recorded.claim), recorded.committables
        traces = self._retries.call(f"looking at what sink {name!r} has", lambda: sink.traces(scope, newest))
        self._check_traces(name, traces)

    def _has(self, name: str, kind: str) -> bool:
        return name in self._sinks and self._sinks[name].kind == kind

    def _claim_sinks(self, record: CommitRecord | None) -> None:
        for name, sink in self._sinks.items():
            recorded = recorded_of(record, sink)
            scope, newest = replace(self.scope(name), recorded=recorded.claim), recorded.committables

            def claim(name: str = name, sink: Sink = sink, scope: Scope = scope, newest: Any = newest) -> Any:
                self._epochs.check()  # who was overtaken while it waited would fence its own successor
                return sink.claim(scope, self._driver, newest, lambda traces: self._check_traces(name, traces))

            self._claims[name] = self._retries.call(f"claiming sink {name!r}", claim)

    def _check_traces(self, sink: str, traces: Sequence[Trace]) -> None:
        """What the checkpoint says is read after the traces: what they show was there before them."""
        if not traces:
            return
        epochs = self._retries.call("listing the epochs", self._epochs.numbers)
        # One of its own: what this driver goes by is what it has finished, not what another one has recorded since.
        log = RecordLog(self._store, self._query_id)
        self._retries.call("listing the commit records", log.load)

        def run_of(epoch: int) -> str | None:
            driver = self._retries.call("reading an epoch", lambda: self._epochs.driver_of(epoch))
            return None if driver is None else driver.run_id

        check_traces(sink, traces, Known(self._store.uri, epochs, run_of, log.newest_batch))

    def _recorded(self, batch_id: int) -> tuple[CommitRecord | None, Outcomes]:
        """The record of a batch, and what became of what it names."""
        newest = self._log.newest_batch
        record = self._retries.call("reading the commit record", lambda: self._log.newest(batch_id))
        if record is None:
            if newest is not None and newest > batch_id:
                raise Incompatible(
                    f"batch {batch_id} runs again, but {self._where()} has records of batches {self._log.batches[0]} "
                    f"to {newest} only: Spark's checkpoint was rolled back further than records are kept "
                    f"(spark.holdfast.retainedBatches, by default spark.sql.streaming.minBatchesToRetain), and what "
                    f"of the batch is visible is not known. Roll back to batch {self._log.batches[0]} at most. Or, to "
                    f"write the output of all batches from {batch_id} on once more, under identities of its own, run "
                    f"`holdfast fork {self._store.uri}`"
                )
            return None, {}
        if self._newest is not None and self._newest[0].to_text() == record.to_text():
            return self._newest
        # A later batch's record was only written once all of this one was visible. Its names at the other side may be
        # in use again, so it must not be committed once more.
        return record, _all_done(record)

    def _is_committed(self, record: CommitRecord) -> bool:
        """Whether Spark has committed the batch: then all of it was visible. Nobody needs to be asked, and a query that
        comes back after so long that the other side has forgotten its names goes on.
        """
        name = f"commits/{record.batch_id}"
        is_committed = self._retries.call("reading Spark's commits", lambda: self._store.get(name)) is not None
        # A newer driver may have committed another revision than the newest that was listed here.
        self._check_epoch()
        return is_committed

    def _run(self, run_job: Job, replay: Replay | None, record: CommitRecord | None = None) -> list[TaskResult]:
        try:
            results = sorted(run_job(replay), key=lambda result: result.partition)
        except BaseException:
            self._sweep(record)
            raise
        self._has_copies = self._options.speculation or any(result.run_anew for result in results)
        partitions = [result.partition for result in results]
        if partitions != list(range(len(results))):
            self._sweep(record)
            raise InternalError(f"expected one result for each sink task, found results of partitions {partitions}")
        return results

    def _commit_new(
        self, batch_id: int, revision: int, results: Sequence[TaskResult], record: CommitRecord | None
    ) -> None:
        with self._or_nothing(results, record):
            new = self._new_record(batch_id, revision, results)
        self._commit(replace(new, doubted=self._doubted_by(new)))

    @contextmanager
    def _or_nothing(self, results: Sequence[TaskResult], record: CommitRecord | None) -> Iterator[None]:
        """Between the job and its record: where there will be none, what the job prepared must not stay open, for
        readers wait for it.
        """
        try:
            yield
        except HoldfastError:
            for name, sink in self._sinks.items():
                self._abort_of(name, sink, _committables(results, name))  # by what it is: storage may be away
            self._sweep(record)
            raise

    def _new_record(self, batch_id: int, revision: int, results: Sequence[TaskResult]) -> CommitRecord:
        """The record of a batch of which all output is this run's."""
        return CommitRecord(
            query_id=self._query_id,
            run_id=self._run_id,
            epoch=self._epochs.mine,
            batch_id=batch_id,
            revision=revision,
            offsets=self._offsets(batch_id),
            partitions=len(results),
            state_run_id=self._run_id,
            tasks=tuple(self._task(result) for result in results),
            sinks={
                name: self._sink_record(name, sink.kind, _committables(results, name))
                for name, sink in self._sinks.items()
            },
        )

    def _sink_record(
        self, name: str, kind: str, committables: tuple[Committable, ...], done: tuple[int, ...] = ()
    ) -> SinkRecord:
        """Committables say themselves what the next start is to know of the claim."""
        claim = {} if committables else self._claims.get(name, {}).get("recorded", {})
        return SinkRecord(kind, committables, done, claim=claim)

    def _next_revision(self, replay: Replay, results: Sequence[TaskResult]) -> CommitRecord:
        """The record of a batch of which some output is an earlier run's."""
        record, again = replay.record, replay.lost_partitions
        sinks = {}
        for name, sink in record.sinks.items():
            lost = replay.lost[name]
            kept = [one for one in sink.committables if one.partition not in lost]
            new = [one for one in _committables(results, name) if one.partition in lost]
            together = tuple(sorted((*kept, *new), key=lambda one: one.partition))
            sinks[name] = self._sink_record(name, sink.kind, together, tuple(one.partition for one in kept))
        return replace(
            record,
            run_id=self._run_id,
            epoch=self._epochs.mine,
            revision=record.revision + 1,
            offsets=self._offsets(record.batch_id),
            tasks=tuple(self._task(results[old.partition]) if old.partition in again else old for old in record.tasks),
            sinks=sinks,
        )

    def _task(self, result: TaskResult) -> TaskRecord:
        return TaskRecord(result.partition, self._run_id, result.attempt, result.task_attempt_id, result.rows)

    def _commit(self, record: CommitRecord) -> None:
        """From prepared to visible."""
        clock = self._retries.clock
        started_ms = clock.elapsed_ms()
        try:
            self._check_epoch()
        except HoldfastError:
            self._abort(record)  # no record names it, so nobody else will
            raise
        reach("before_record")
        # Where the answer stays away, the record may exist: nothing may be aborted, and the next run finds out.
        there = self._retries.call("writing the commit record", lambda: self._log.create(record))
        if there.to_text() != record.to_text():
            self._abort(record)
            raise self._beaten(there)
        self._asked_next = record
        reach("after_record")
        recorded_ms = clock.elapsed_ms()
        self._check_epoch()
        try:
            outcomes = self._finish(record)
        except Fenced:
            # By a driver of this checkpoint, or else by one of a copy: that one does not know of this record, and what
            # it names would stay open.
            self._epochs.check()
            self._abort(record)
            raise
        reach("after_commit")
        self.times = CommitTimes(recorded_ms - started_ms, clock.elapsed_ms() - recorded_ms)
        self._logger.debug("batch %d: %s", record.batch_id, self.times)
        lost = {name: [p for p, o in found.items() if o is Outcome.LOST] for name, found in outcomes.items()}
        if any(lost.values()):
            raise Unavailable(
                f"batch {record.batch_id}: after its record was written, this was lost at the other side, most likely "
                f"to a time limit there: {_by_sink(lost)}. Nothing is missing for good: start the query again, and it "
                f"is written again from the same offsets and the same state"
            )
        self._note_doubted(record)
        self._tidy_up(record)

    def _doubted_by(self, record: CommitRecord) -> tuple[int, ...]:
        """Batches that a record which is about to be written is to name as doubted: no later driver knows of them."""
        oldest = record.batch_id - self._kept
        mine = {record.batch_id} if self._tried_again(record) else set()
        known = {*self._doubted_ids, *record.doubted, *mine}
        return tuple(sorted(one for one in known if oldest < one <= record.batch_id))

    def _tried_again(self, record: CommitRecord) -> tuple[TaskRecord, ...]:
        return tuple(task for task in record.tasks if task.attempt > 0 or self._has_copies)

    def _go_on_from(self, record: CommitRecord) -> None:
        """At the start. Of its own batch each task is told, once: an earlier release did not record which stages ran
        anew, and which batches are to be doubted.
        """
        self._doubted_ids = {*record.doubted, *({record.batch_id} if self._tried_again(record) else ())}
        if len(record.tasks) <= _DOUBTED_MAX:
            self.doubted[record.batch_id] = record.tasks

    def _note_doubted(self, record: CommitRecord) -> None:
        self._doubted_ids = set(record.doubted)
        if self._newest is not None:
            self.doubted.pop(self._newest[0].batch_id, None)
        if record.batch_id in record.doubted:
            self.doubted[record.batch_id] = self._tried_again(record)
        while len(self.doubted) > 1 and sum(map(len, self.doubted.values())) > _DOUBTED_MAX:
            del self.doubted[min(self.doubted)]

    def _tidy_up(self, record: CommitRecord) -> None:
        """Old records, and strays of attempts that failed. The batch is committed: what fails here is done later."""
        try:
            self._log.trim(self._kept)
        except HoldfastError as error:
            self._logger.warning("old commit records are deleted later: %s", error)
        has_failed = self._has_copies or any(task.attempt > 0 for task in record.tasks)
        is_free = self._spared is not None and record.batch_id > self._spared  # Spark has that batch now
        if has_failed or is_free:
            self._sweep(record, goes_on=True)
        if is_free:
            self._spared = None
        if has_failed:
            self._sweeps.attempts_failed()
        self._sweeps.between_batches()

    def _finish(self, record: CommitRecord) -> Outcomes:
        """Makes visible what a record names, as far as that is not known to be done."""
        found: dict[str, dict[int, Outcome]] = {}
        for name, recorded in record.sinks.items():
            outcomes = dict.fromkeys(recorded.done, Outcome.DONE)
            outcomes.update((partition, Outcome.LOST) for partition in recorded.lost)
            pending = recorded.pending
            if pending or recorded.lost:
                sink = self._sink_of(record, name, recorded.kind)
            if pending:
                scope = self.scope(name)
                answers = self._retries.call(
                    f"committing batch {record.batch_id} to sink {name!r}",
                    lambda sink=sink, scope=scope, pending=pending: sink.commit(scope, pending),  # type: ignore[misc]
                )
                if len(answers) != len(pending):
                    raise InternalError(
                        f"sink {name!r} was asked to commit {len(pending)} committables and gave {len(answers)} answers"
                    )
                outcomes.update((one.partition, answer) for one, answer in zip(pending, answers))
            found[name] = outcomes
        return found

    def _sink_of(self, record: CommitRecord, name: str, kind: str) -> Sink:
        sink = self._sinks.get(name)
        if sink is None or sink.kind != kind:
            raise Incompatible(
                f"the record of batch {record.batch_id} in {self._where()} has output of sink {name!r}, "
                f"of kind {kind!r}, that may not be visible yet; this query has "
                f"{', '.join(f'{s.name!r} of kind {s.kind!r}' for s in self._sinks.values())}. "
                "Start it once more with that sink, then change it"
            )
        return sink

    def _recover(self, record: CommitRecord | None) -> None:
        for name, sink in self._sinks.items():
            keep = recorded_of(self._asked_next, sink).committables
            scope = self.scope(name)
            strays = self._retries.call(
                f"aborting strays of sink {name!r}",
                lambda sink=sink, scope=scope, keep=keep: sink.recover(scope, keep),  # type: ignore[misc]
            )
            if strays:
                self._logger.info("sink %r: %d strays of earlier attempts were aborted", name, strays)
            reach("during_recover")
        self._check_epoch()  # what a newer driver has under names of its own would look like a former sink's
        end_former_sinks(self._sinks.values(), self.scope, record)

    def _sweep(self, record: CommitRecord | None, *, goes_on: bool = False) -> None:
        """Aborts what attempts left that nobody will commit, as far as that works now: the next start does the rest."""
        try:
            self._epochs.check()  # another driver's open transactions would look like strays
            for name, sink in self._sinks.items():
                scope, keep = self.scope(name), recorded_of(record, sink).committables
                if goes_on and record is not None and isinstance(sink, SweepsBetween):
                    sink.recover_between(scope, keep, {(task.partition, task.attempt) for task in record.tasks})
                else:
                    sink.recover(scope, keep)
        except HoldfastError as error:
            self._logger.warning("strays of attempts that failed are aborted later: %s", error)

    def _with_late_strays(self) -> list[tuple[str, LateStrays]]:
        return [(name, sink) for name, sink in self._sinks.items() if isinstance(sink, LateStrays)]

    def _abort_late(self, own: bool) -> int:
        """Also in the sweeps' own thread: what drivers before this one open is a stray, whoever is the owner now."""
        record = self._asked_next
        # Where it is this driver's own turn, Spark has yet to commit the batch.
        if record is not None and not own and self._store.get(f"commits/{record.batch_id}") is not None:
            record = None
        return sum(
            sink.abort_late(self.scope(name), recorded_of(record, self._sinks[name]).committables, own=own)
            for name, sink in self._with_late_strays()
        )

    def _abort(self, record: CommitRecord) -> None:
        """Aborts what this run prepared for a record that was not written."""
        prepared_by_run = {task.partition for task in record.tasks if task.run_id == self._run_id}
        for name, sink in self._sinks.items():
            recorded = record.sinks.get(name)
            mine = [one for one in recorded.pending if one.partition in prepared_by_run] if recorded else []
            self._abort_of(name, sink, mine)

    def _abort_of(self, name: str, sink: Sink, prepared: Sequence[Committable]) -> None:
        if prepared:
            try:
                sink.abort(self.scope(name), prepared)
            except HoldfastError as error:
                self._logger.warning("what sink %r prepared is aborted by the next start: %s", name, error)

    def _beaten(self, there: CommitRecord) -> HoldfastError:
        said = f"batch {there.batch_id} was recorded by another driver, run {there.run_id} of epoch {there.epoch}"
        if there.epoch > self._epochs.mine:
            return Fenced(
                f"{said}, which took over the checkpoint {self._store.uri}; this is epoch {self._epochs.mine}. Nothing "
                f"of this driver becomes visible any more. Stop one of the two"
            )
        return Unavailable(
            f"{said}, just before this driver, of epoch {self._epochs.mine}, took its place. Start the query again: "
            f"that record is finished first, and the batch goes on from there"
        )

    def _check_epoch(self) -> None:
        self._retries.call("looking for newer drivers", self._epochs.check)

    def _repeating(self, batch_id: int) -> Repeating:
        def keeps_tasks() -> bool:
            read = self._retries.call("reading Spark's offsets", lambda: planned_sources(self._store, batch_id))
            return bool(read) and all(map(keeps_its_tasks, read)) and self._options.rows_stay()

        return Repeating(self._store.uri, self._options.slots_take_over, keeps_tasks)

    def _check_offsets(self, record: CommitRecord) -> None:
        offsets = self._offsets(record.batch_id)
        if record.offsets and offsets and record.offsets != offsets:
            raise Incompatible(
                f"batch {record.batch_id} runs again with other offsets than those whose output its record in "
                f"{self._where()} made visible: Spark's checkpoint was rolled back, and its offset log written anew. "
                f"Put back the file offsets/{record.batch_id} of that time. Or, to write the output of this batch and "
                f"all later ones once more, beside what is visible and under identities of its own, run `holdfast fork "
                f"{self._store.uri}`"
            )

    def _offsets(self, batch_id: int) -> str:
        data = self._retries.call("reading Spark's offsets", lambda: self._store.get(f"offsets/{batch_id}"))
        return "" if data is None else checksum_of(data)

    def _where(self) -> str:
        return f"{self._store.uri}/{query_prefix(self._query_id)}/records"


def _committables(results: Sequence[TaskResult], sink: str) -> tuple[Committable, ...]:
    found = [result.committables[sink] for result in results if sink in result.committables]
    return tuple(sorted(found, key=lambda one: one.partition))


def _all_done(record: CommitRecord) -> Outcomes:
    return {name: {one.partition: Outcome.DONE for one in sink.committables} for name, sink in record.sinks.items()}


def _by_sink(partitions: Mapping[str, Sequence[int]]) -> str:
    told = (f"partitions {list(found)} of sink {name!r}" for name, found in partitions.items() if found)
    return ", ".join(told)
