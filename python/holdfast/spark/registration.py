"""Registers operators: each with its record, as one of those with which its query begins, and with its run.

Whoever comes first writes it: the workers at an operator's first task, or the driver's `write_exactly_once`. That one
does so for what begins with the state of an earlier query, as soon as the query has an id; the writer of another query
does not tell which operators stand in it. A first batch without rows has no task, and would leave no word of what the
query begins with: a program that left ``restore`` out after it would begin with nothing. And it registers the run of
each operator that has had a run before the first job: a task of a query that was stopped may come to its first line
after the next query has begun, and would be the newer run. Safe for several threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from holdfast.checkpoint import OperatorRecord, QueryPhase, Runs, operator_prefix, recorded_operator, register_operator
from holdfast.checkpoint.generation import begin_together
from holdfast.errors import Unavailable
from holdfast.spark.plan import OperatorPlan
from holdfast.storage import FileStore, StorageOptions, open_file_store

#: Declarations that are remembered, the newest last. Of one that is not, the workers register the operator.
_PLANS_MAX = 256

_LOGGER = logging.getLogger("holdfast.spark")
_lock = threading.Lock()
_declared: dict[str, OperatorPlan] = {}  # by instance


def remember_operator(plan: OperatorPlan) -> None:
    """Remembers an operator that was declared."""
    with _lock:
        _declared[plan.instance] = plan
        while len(_declared) > _PLANS_MAX:
            del _declared[next(iter(_declared))]


def register_runs(query_id: str, run_id: str, batch_id: int, instances: Collection[str]) -> None:
    """Registers the run of a query's operators, before the job of its first batch. Not of those that have had none: the
    folders that come with the first one are to be of the user that executors run as, which need not be the driver's.

    Raises
    ------
    InvalidRequest, Fenced
        See :meth:`Runs.register`: what the first task would raise.
    """
    for plan in _remembered(instances):
        try:
            store = open_file_store(plan.checkpoint_dir, StorageOptions.of(plan.settings))
            runs = Runs(store, operator_prefix(query_id, plan.name), plan.name, run_id, plan.instance)
            runs.register(batch_id, unless_first=True)
        except Unavailable as error:  # the workers do it
            _LOGGER.warning("operator %r is registered by its first task: %s", plan.name, error)


def register_origins(query_id: str, instances: Collection[str]) -> None:
    """Registers those of a query's operators that begin with the state of an earlier one.

    Parameters
    ----------
    query_id
        Spark's id of the query, which has started.
    instances
        Of all its operators.

    Raises
    ------
    Incompatible
        As :func:`register_operator` and :func:`begin_together`: what the first task would raise.
    Corrupt
        A record is damaged.
    """
    for plan in _remembered(instances):
        if plan.declared.origin is None:
            continue
        try:
            registered(plan, open_file_store(plan.checkpoint_dir, StorageOptions.of(plan.settings)), query_id)
        except Unavailable as error:  # the workers ask again
            _LOGGER.warning(
                "what operator %r begins with is not recorded before its first rows; leave restore= in the program "
                "until they are committed: %s",
                plan.name,
                error,
            )


def _remembered(instances: Collection[str]) -> list[OperatorPlan]:
    with _lock:
        return [plan for instance, plan in _declared.items() if instance in instances]


def registered(
    plan: OperatorPlan, store: FileStore, query_id: str, phase: QueryPhase = QueryPhase.COMMITTED
) -> OperatorRecord:
    """The record of an operator in a query, which is written if there is none. ``phase``: of the query.

    Raises
    ------
    Incompatible
        See :func:`register_operator` and :func:`begin_together`.
    """
    prefix = operator_prefix(query_id, plan.name)
    declared = plan.declared_over(recorded_operator(store, prefix))
    record = register_operator(store, declared, prefix=prefix, phase=phase)
    begin_together(store, query_id, record)
    return record
