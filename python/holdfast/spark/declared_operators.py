"""The operators that this program has declared, compared with a checkpoint before a query on it starts.

What contradicts the checkpoint (another key, other states, another number of slots) needs no data to be found. The
workers find it in any case, at the query's first batch; here it is found on the driver, before anything runs.

Spark does not say which operators a query has. So of all that were declared under a name that the checkpoint has, any
may be meant: only if each of them contradicts the record is the query refused. So none is ever forgotten: where they
are too many to remember, they are not compared here. Safe for several threads.

What they declare of times to live is noted here for the same reason: without rows no worker does it, and who reads the
state of slots that get none must know it. Only once the query has started: of a start that is refused nothing may
remain, since another run of the query may go on, and its readers would go by it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from holdfast.checkpoint import Lifetime, OperatorRecord, QueryPhase, check_operator, operator_prefix, recorded_operator
from holdfast.checkpoint.evolution import evolved
from holdfast.checkpoint.ttl_log import DeclaredTtls, note_ttls
from holdfast.errors import HoldfastError, Incompatible, Unavailable
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.slot_batch import lifetimes_of
from holdfast.storage import FileStore, StorageOptions, open_file_store

#: Names, and different declarations of one name, that are remembered.
_NAMES_MAX, _PLANS_MAX = 256, 16

_LOGGER = logging.getLogger("holdfast.spark")
_lock = threading.Lock()
#: Declarations by folder and name, the newest last; None: too many.
_declared: dict[tuple[str, str], list[OperatorPlan] | None] = {}


@dataclass(frozen=True)
class Known:
    """What the state folders have of a query's operators, of all that this program has declared.

    Attributes
    ----------
    recorded
        Names of which a folder has a record.
    unrecorded
        Folders and names of the others.
    is_all
        Whether none was forgotten, and each folder answered.
    """

    recorded: frozenset[str]
    unrecorded: tuple[tuple[str, str], ...]
    is_all: bool

    def of(self, names: Set[str]) -> Known:
        """Of these operators, where they are known to be all of a query's: what else was declared is another query's,
        or an operator of this one under the name that it had before, in a notebook.
        """
        return Known(self.recorded & names, tuple(one for one in self.unrecorded if one[1] in names), self.is_all)


def declare(plan: OperatorPlan) -> None:
    """Remembers an operator."""
    key = (plan.checkpoint_dir, plan.name)
    said = _said(plan)
    with _lock:
        before = _declared.get(key, [] if len(_declared) < _NAMES_MAX else None)
        if before is None:
            return
        # A notebook declares the same one again and again.
        plans = [one for one in before if _said(one) != said]
        _declared[key] = [*plans, plan] if len(plans) < _PLANS_MAX else None


def _said(plan: OperatorPlan) -> tuple[object, ...]:
    return plan.declared, plan.slots_given, plan.ttls


def is_any_declared() -> bool:
    """Whether this program has declared an operator."""
    return bool(_declared)


def declared_places() -> list[tuple[str, StorageOptions]]:
    """Where operators that were declared have their state, and how it is reached."""
    with _lock:
        return [(folder, StorageOptions.of(plans[-1].settings)) for (folder, _), plans in _declared.items() if plans]


def check_declared(query_id: str, phase: QueryPhase = QueryPhase.COMMITTED, instances: Collection[str] = ()) -> Known:
    """Compares what was declared with what the checkpoint of a query recorded.

    Parameters
    ----------
    phase
        Of the query.
    instances
        Of the query's operators, as far as they are known: other declarations of their names are not meant.

    Returns
    -------
    Known
        Of which operators there is a record.

    Raises
    ------
    Incompatible
        No declaration of an operator agrees with its record; told is what the newest one contradicts.
    Corrupt
        The record is damaged.
    """
    with _lock:
        declared = [(*key, plans) for key, plans in _declared.items() if plans is not None]
        is_all = len(declared) == len(_declared) < _NAMES_MAX
    recorded_names: set[str] = set()
    unrecorded: list[tuple[str, str]] = []
    for folder, name, plans in declared:
        store = open_file_store(folder, StorageOptions.of(plans[-1].settings))
        prefix = operator_prefix(query_id, name)
        try:
            recorded = recorded_operator(store, prefix)
        except Unavailable as error:  # perhaps another query's folder; the workers ask theirs
            _LOGGER.info("operator %r is not compared with its record here: %s", name, error)
            is_all = False
            continue
        if recorded is None:
            unrecorded.append((store.uri, name))
            continue
        recorded_names.add(name)
        first: Incompatible | None = None
        for plan in reversed([plan for plan in plans if plan.instance in instances] or plans):
            try:
                check_operator(store, prefix, recorded, plan.declared_over(recorded), phase)
                break
            except Incompatible as error:
                first = first or error
        else:
            if first is not None:
                raise first
    left = tuple(one for one in unrecorded if one[1] not in recorded_names)
    return Known(frozenset(recorded_names), left, is_all)


@dataclass(frozen=True)
class TtlsToNote:
    """The TTLs of an operator in this folder of the store, for :func:`note_declared_ttls`."""

    store: FileStore
    prefix: str
    declared: DeclaredTtls


def ttls_to_note(query_id: str, batch_id: int, instances: Set[str]) -> list[TtlsToNote]:
    """The TTLs of operators that the checkpoint of a query knows, as of its next batch. Where several declarations of
    one name may be meant that differ, a worker notes them.

    Parameters
    ----------
    instances
        Of the query's operators, as far as they are known.

    Raises
    ------
    Corrupt
        A record is damaged.
    """
    with _lock:
        declared = [(*key, plans) for key, plans in _declared.items() if plans]
    found: list[TtlsToNote] = []
    for folder, name, plans in declared:
        store = open_file_store(folder, StorageOptions.of(plans[-1].settings))
        prefix = operator_prefix(query_id, name)
        try:
            recorded = recorded_operator(store, prefix)
            if recorded is None:
                continue
            agreeing = _that_agree(store, prefix, recorded, plans)
            meant = [plan for plan in agreeing if plan.instance in instances] or agreeing
            said = {_lifetimes(plan, recorded) for plan in meant}
            if len(said) == 1:
                found.append(TtlsToNote(store, prefix, DeclaredTtls(batch_id, *said)))
        except Unavailable as error:  # the workers note them too, once there are rows
            _LOGGER.info("the times to live of operator %r are not noted here: %s", name, error)
    return found


def note_declared_ttls(to_note: Sequence[TtlsToNote], run_id: str) -> None:
    """Notes what was found before the query started, whose run this is. Where the checkpoint is behind the newest note,
    or behind what another run wrote, a worker does it. The query runs: it does not stop for this.
    """
    for one in to_note:
        try:
            note_ttls(one.store, one.prefix, one.declared, admitted=False, run_id=run_id)
        except HoldfastError as error:  # the workers note them too, once there are rows
            _LOGGER.info("the times to live in %s are not noted here: %s", one.prefix, error)


def _that_agree(
    store: FileStore, prefix: str, recorded: OperatorRecord, plans: Sequence[OperatorPlan]
) -> list[OperatorPlan]:
    found = []
    for plan in plans:
        try:
            check_operator(store, prefix, recorded, plan.declared_over(recorded))
        except Incompatible:
            continue
        found.append(plan)
    return found


def _lifetimes(plan: OperatorPlan, recorded: OperatorRecord) -> tuple[Lifetime, ...]:
    """Under the ids that the states have once the declaration is recorded."""
    declared = plan.declared_over(recorded)
    return lifetimes_of(plan.ttls, evolved(recorded.all_states, declared.states, declared.changes).states)
