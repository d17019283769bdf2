"""What a Python worker process keeps from task to task: operators that were compared with their record, and slots'
states.

Spark hands a task to any idle worker, so nothing here is relied on: a state that is kept may be behind the handle of
the next batch, and `SlotState.open` finds that out. One task at a time runs in a process.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext

from holdfast.checkpoint import CheckpointSettings, OperatorRecord, SlotState, operator_prefix, register_operator
from holdfast.checkpoint.names import attempt_version_id
from holdfast.errors import InternalError
from holdfast.settings import default_local_dir
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.replay import REPLAY_PROPERTY, SlotReplay
from holdfast.storage import FileStore, open_file_store

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
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

    @property
    def version_id(self) -> str | None:
        """Of the versions that this task prepares; None where the run is not known, so that any new name does."""
        return attempt_version_id(self.run_id, self.task_attempt_id) if self.run_id else None

    @classmethod
    def of_task(cls) -> BatchIdentity:
        """From the local properties that Spark sets on every task of a streaming query."""
        task = TaskContext.get()
        query_id = task.getLocalProperty("sql.streaming.queryId") if task is not None else None
        batch_id = task.getLocalProperty("streaming.sql.batchId") if task is not None else None
        if task is None or query_id is None or batch_id is None:
            raise InternalError("a keyed operator ran outside a task of a streaming query")
        # Spark runs a query's jobs in a group named after the run, but a program may set a group of its own in
        # foreachBatch.
        group = task.getLocalProperty("spark.jobGroup.id")
        run_id = group if group is not None and _UUID.fullmatch(group) else None
        return cls(
            query_id=query_id,
            run_id=run_id,
            batch_id=int(batch_id),
            attempt=task.attemptNumber(),
            partition=task.partitionId(),
            task_attempt_id=task.taskAttemptId(),
            replay=SlotReplay.from_property(task.getLocalProperty(REPLAY_PROPERTY)),
        )


@dataclass(frozen=True)
class LiveOperator:
    """An operator whose declaration was compared with its record."""

    record: OperatorRecord
    file_store: FileStore
    prefix: str
    local_dir: str


_stores: dict[str, FileStore] = {}
_operators: dict[tuple[str, str, str, str | None], LiveOperator] = {}
_slot_states: OrderedDict[tuple[str, str, int], tuple[str, SlotState]] = OrderedDict()  # least recently used first
_warned_bytes = 0
#: A state that was in one of so many last batches is at work here: a slot need not have rows in each.
_BATCHES_AT_WORK = 8


def operator(plan: OperatorPlan, identity: BatchIdentity) -> LiveOperator:
    """The operator of a plan; the first call of a run compares it with what the checkpoint recorded.

    Raises
    ------
    Incompatible, InvalidRequest
        See `register_operator`.
    """
    key = (plan.checkpoint_dir, identity.query_id, plan.instance, identity.run_id)
    live = _operators.get(key)
    if live is None:
        prefix = operator_prefix(identity.query_id, plan.name)
        store = _stores.setdefault(plan.checkpoint_dir, open_file_store(plan.checkpoint_dir))
        declared = plan.declared if plan.slots_given else _with_recorded_slots(plan.declared, store, prefix)
        record = register_operator(
            store, declared, identity.run_id or f"instance-{plan.instance}", plan.instance, prefix=prefix
        )
        live = LiveOperator(record, store, prefix, plan.settings.local_dir or default_local_dir())
        _operators[key] = live
    return live


def slot_state(plan: OperatorPlan, live: LiveOperator, slot: int) -> SlotState:
    """The state of a slot, kept or new; open it before use."""
    key = (live.local_dir, f"{live.file_store.uri} {live.prefix}", slot)
    kept = _slot_states.pop(key, None)
    if kept is not None and kept[0] != plan.instance:  # an earlier run's, whose settings may have been others
        kept[1].release_memory()
        kept = None
    if kept is None:
        state = SlotState(
            record=live.record,
            slot=slot,
            file_store=live.file_store,
            prefix=live.prefix,
            local_dir=live.local_dir,
            settings=CheckpointSettings.of(plan.settings),
            logger=LOGGER.getChild("checkpoint"),
        )
        kept = (plan.instance, state)
    _slot_states[key] = kept
    return kept[1]


def trim_slot_states(memory_max_bytes: int) -> None:
    """Lets go of what was only read, then of whole states, those first that were not used for longest, until the rest
    fits. Between batches only.

    States of backend ``hashmap`` that are at work stay, and the limit is that of the others: each would be read back as
    a whole at its next batch. Those that another worker has taken on meanwhile are let go.
    """
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


def _with_recorded_slots(declared: OperatorRecord, store: FileStore, prefix: str) -> OperatorRecord:
    """A number of slots that nobody asked for follows the record, so that a session with other shuffle partitions can
    go on.
    """
    name = f"{prefix}/operator.json"
    stored = store.get(name)
    if stored is None:
        return declared
    recorded = OperatorRecord.from_json(stored, f"{name} in {store.uri}")
    return replace(declared, slots=recorded.slots, labels=recorded.labels)
