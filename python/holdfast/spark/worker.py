"""What a Python worker process keeps from task to task:
operators that were compared with their record, and slots' states.

Spark hands a task to any idle worker, so nothing here is relied on: a state that is kept may be behind the handle of
the next batch, and `SlotState.open` finds that out. One task at a time runs in a process.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark import TaskContext

from holdfast.checkpoint import (
    BackgroundWork,
    CheckpointSettings,
    OperatorRecord,
    QueryPhase,
    Runs,
    SlotState,
    operator_prefix,
)
from holdfast.checkpoint.generation import Opening
from holdfast.checkpoint.names import attempt_version_id
from holdfast.checkpoint.ttl_log import DeclaredTtls, note_ttls
from holdfast.errors import InternalError, InvalidRequest
from holdfast.settings import default_local_dir
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.recorded import RECORDED_PROPERTY, Recorded, recorded
from holdfast.spark.registration import registered
from holdfast.spark.replay import REPLAY_PROPERTY, RUN_PROPERTY, SlotReplay
from holdfast.spark.slot_batch import lifetimes_of
from holdfast.storage import FileStore, StorageOptions, open_file_store

LOGGER = logging.getLogger("holdfast")


@dataclass(frozen=True)
class BatchIdentity:
    """Which batch of which run of which query the task at hand belongs to."""

    query_id: str
    run_id: str | None
    batch_id: int
    attempt: int
    partition: int
    task_attempt_id: int
    replay: SlotReplay | None
    recorded: Recorded = field(default_factory=Recorded)

    @classmethod
    def of_task(cls) -> BatchIdentity:
        """From the local properties that Spark sets on every task of a streaming query.

        Raises
        ------
        InvalidRequest
            The task's job was started by a thread to which Spark's properties were not handed on.
        """
        task = TaskContext.get()
        if task is None:
            raise InternalError("a keyed operator ran outside a task of Spark")
        query_id = task.getLocalProperty("sql.streaming.queryId")
        batch_id = task.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise InvalidRequest(
                "expected a job of a streaming query's batch, found one that Spark does not know as such: foreachBatch "
                "started it in a thread of its own, to which a batch's properties are not handed on. Start the "
                "batch's one action in foreachBatch itself; or make the thread a pyspark.InheritableThread, or the "
                "function of an executor a pyspark.inheritable_thread_target, and wait for it before foreachBatch "
                "ends. With PYSPARK_PIN_THREAD=false every job of foreachBatch is one: start the program without it"
            )
        return cls(
            query_id=query_id,
            run_id=_run_of(task),
            batch_id=int(batch_id),
            attempt=task.attemptNumber(),
            partition=task.partitionId(),
            task_attempt_id=task.taskAttemptId(),
            replay=SlotReplay.from_property(task.getLocalProperty(REPLAY_PROPERTY)),
            recorded=recorded(task.getLocalProperty(RECORDED_PROPERTY)),
        )


def _run_of(task: TaskContext) -> str | None:
    """The query's run; None where the program hides it.

    Spark runs a query's jobs in a group that is named after the run, and describes them so. In foreachBatch a program
    may set a group and a description of its own, and then the group may be anything: also a name that the next run of
    the program has too.
    """
    told = task.getLocalProperty(RUN_PROPERTY)
    if told is not None:
        return told
    group = task.getLocalProperty("spark.jobGroup.id")
    described = task.getLocalProperty("spark.job.description") or ""
    return group if group is not None and f"runId = {group}" in described else None


@dataclass
class LiveOperator:
    """An operator whose declaration was compared with its record, in a run that is registered. ``to_note``: the TTLs
    that it declares, until they are noted.
    """

    record: OperatorRecord
    runs: Runs
    file_store: FileStore
    prefix: str
    local_dir: str
    opening: Opening
    to_note: DeclaredTtls | None
    background_work: BackgroundWork = field(default_factory=BackgroundWork)

    def version_id(self, identity: BatchIdentity) -> str:
        """Of the versions that a task prepares."""
        return attempt_version_id(self.runs.run_id, identity.task_attempt_id)

    def note_admitted(self, batch_id: int) -> None:
        """A slot was admitted to a batch: notes the TTLs. Not before, since those of a copy of the checkpoint that is
        refused would be what readers of the original go by. Another slot may yet refuse the first batch.
        """
        if self.to_note is None:
            return
        if note_ttls(self.file_store, self.prefix, self.to_note, admitted=batch_id > self.to_note.batch_id):
            self.to_note = None


#: Least recently used first. A worker lives on from run to run, and each run compares and registers anew.
_operators: OrderedDict[tuple[str, str, str, str | None], LiveOperator] = OrderedDict()
_OPERATORS_MAX = 128
_slot_states: OrderedDict[tuple[str, str, int], tuple[Runs, SlotState]] = OrderedDict()  # least recently used first
_warned_bytes = 0
#: A state that was in one of so many last batches is at work here: a slot need not have rows in each.
_BATCHES_AT_WORK = 8
#: A state that was in no batch for so long is let go of, whatever room there is: its query may have ended, its slot may
#: have moved. Its files are open and mapped, and stay on the disk though they were deleted. To open it again is short.
_UNUSED_MS = 600_000


def operator(plan: OperatorPlan, identity: BatchIdentity) -> LiveOperator:
    """The operator of a plan; the first call of a run compares it with what the checkpoint recorded.

    Raises
    ------
    Incompatible, InvalidRequest, Fenced
        See `register_operator` and `Runs.register`.
    """
    key = (plan.checkpoint_dir, identity.query_id, plan.instance, identity.run_id)
    live = _operators.get(key)
    if live is None:
        prefix = operator_prefix(identity.query_id, plan.name)
        store = open_file_store(plan.checkpoint_dir, StorageOptions.of(plan.settings))
        run_id = identity.run_id or Runs.of_instance(plan.instance)
        runs = Runs(store, prefix, plan.name, run_id, plan.instance)
        runs.register(identity.batch_id)
        phase = QueryPhase.COMMITTED if identity.batch_id else QueryPhase.COMMITTED_NOTHING
        record = registered(plan, store, identity.query_id, phase)
        first = identity.batch_id + (identity.replay is not None)  # a replay asks no slot whether it may go on
        to_note = DeclaredTtls(first, lifetimes_of(plan.ttls, record.states))
        opening = Opening(store, prefix, record.origin)
        local_dir = plan.settings.local_dir or default_local_dir()
        live = LiveOperator(record, runs, store, prefix, local_dir, opening, to_note)
        _operators[key] = live
        while len(_operators) > _OPERATORS_MAX:
            _operators.popitem(last=False)
    _operators.move_to_end(key)
    return live


def slot_state(plan: OperatorPlan, live: LiveOperator, slot: int) -> SlotState:
    """The state of a slot, kept or new; open it before use."""
    key = (live.local_dir, f"{live.file_store.uri} {live.prefix}", slot)
    kept = _slot_states.pop(key, None)
    if kept is not None and kept[0] is not live.runs:  # an earlier run's, whose settings may have been others
        kept[1].release_memory()
        kept = None
    if kept is None:
        state = SlotState(
            record=live.record,
            slot=slot,
            file_store=live.file_store,
            prefix=live.prefix,
            local_dir=live.local_dir,
            local_dir_private=plan.settings.local_dir is None,
            settings=CheckpointSettings.of(plan.settings),
            logger=LOGGER.getChild("checkpoint"),
            runs=live.runs,
            background_work=live.background_work,
            open_store=partial(open_file_store, options=StorageOptions.of(plan.settings)),
        )
        kept = (live.runs, state)
    _slot_states[key] = kept
    return kept[1]


def trim_slot_states(memory_max_bytes: int) -> None:
    """Lets go of states that were not used for long; then of what was only read, then of whole states, those first that
    were not used for longest, until the rest fits. Between batches only.

    States of backend ``hashmap`` that are at work stay, and the limit is that of the others: each would be read back as
    a whole at its next batch. Those that another worker has taken on meanwhile are let go.
    """
    for key, (_, state) in list(_slot_states.items()):
        if state.unused_ms > _UNUSED_MS:
            del _slot_states[key]
            state.release_memory()
    total = sum(state.memory_bytes for _, state in _slot_states.values())
    for _, state in _slot_states.values():
        if total <= memory_max_bytes:
            return
        total -= state.memory_bytes
        state.forget_clean()
        total += state.memory_bytes
    at_work = _newest_batches()
    whole_bytes = 0
    for key, (run, state) in list(_slot_states.items()):
        if total - whole_bytes <= memory_max_bytes:
            break
        if state.wanted_whole is not None and state.wanted_whole > at_work[run] - _BATCHES_AT_WORK:
            whole_bytes += state.memory_bytes
            continue
        del _slot_states[key]
        total -= state.memory_bytes
        state.release_memory()
    if total > memory_max_bytes:
        _warn_of_whole_states(total, memory_max_bytes)


def _newest_batches() -> dict[Any, int]:
    """By run: the newest batch of its states that are kept as a whole."""
    newest: dict[Any, int] = {}
    for run, state in _slot_states.values():
        if state.wanted_whole is not None:
            newest[run] = max(newest.get(run, 0), state.wanted_whole)
    return newest


def _warn_of_whole_states(kept_bytes: int, memory_max_bytes: int) -> None:
    """Says what hashmap keeps above the limit, again whenever that has doubled: once, where state no longer grows."""
    global _warned_bytes
    if kept_bytes <= 2 * _warned_bytes:
        return
    _warned_bytes = kept_bytes
    LOGGER.warning(
        "this worker keeps %d bytes of state, above spark.holdfast.memory.cache.max (%d bytes): backend hashmap keeps "
        "all of its state in memory. Give the workers that much, spread the state over more executors, or set "
        "spark.holdfast.state.backend to rocksdb, which takes the same checkpoint at the next start",
        kept_bytes,
        memory_max_bytes,
    )
