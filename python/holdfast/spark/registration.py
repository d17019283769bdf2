"""Registers operators: each with its record, and as one of those with which its query begins.

Whoever comes first writes it: the workers at an operator's first task, or, of what begins with the state of an earlier
query, the driver's `write_exactly_once`, as soon as the query has an id; the writer of another query does not tell
which operators stand in it. A first batch without rows has no task, and would leave no word of what the query begins
with: a program that left ``restore`` out after it would begin with nothing. Safe for several threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from holdfast.checkpoint import OperatorRecord, operator_prefix, recorded_operator, register_operator
from holdfast.checkpoint.generation import begin_together
from holdfast.errors import Unavailable
from holdfast.spark.plan import OperatorPlan
from holdfast.storage import FileStore, StorageOptions, open_file_store

#: Declarations that are remembered, the newest last. Of one that is not, the workers register the operator.
_PLANS_MAX = 256

_LOGGER = logging.getLogger("holdfast.spark")
_lock = threading.Lock()
_restored: dict[str, OperatorPlan] = {}  # by instance


def remember_origin(plan: OperatorPlan) -> None:
    """Remembers an operator that begins with the state of an earlier query or a savepoint."""
    with _lock:
        _restored[plan.instance] = plan
        while len(_restored) > _PLANS_MAX:
            del _restored[next(iter(_restored))]


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
    with _lock:
        plans = [plan for instance, plan in _restored.items() if instance in instances]
    for plan in plans:
        try:
            registered(plan, open_file_store(plan.checkpoint_dir, StorageOptions.of(plan.settings)), query_id)
        except Unavailable as error:  # the workers ask again
            _LOGGER.warning(
                "what operator %r begins with is not recorded before its first rows; leave restore= in the program "
                "until they are committed: %s",
                plan.name,
                error,
            )


def registered(plan: OperatorPlan, store: FileStore, query_id: str) -> OperatorRecord:
    """The record of an operator in a query, which is written if there is none.

    Raises
    ------
    Incompatible
        See :func:`register_operator` and :func:`begin_together`.
    """
    prefix = operator_prefix(query_id, plan.name)
    declared = plan.declared_over(recorded_operator(store, prefix))
    record = register_operator(store, declared, prefix=prefix)
    begin_together(store, query_id, record)
    return record
