"""operator.json: what an operator was when it first ran, so that a restart that contradicts it is told; its states may
change since, in `state_log.py`. Format: docs/formats/operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pyarrow as pa

from holdfast.arrow.types import nullable_schema
from holdfast.checkpoint.added_states import added_states
from holdfast.checkpoint.evolution import NO_CHANGES, OperatorStates, StateChanges, as_said, contradictions, evolved
from holdfast.checkpoint.names import encode_operator
from holdfast.checkpoint.origin import Origin, SavepointOrigin, left_behind, origin_of
from holdfast.checkpoint.state_ids import unnamed_state
from holdfast.checkpoint.state_log import check_states, newest_states, states_fields, states_of, write_states
from holdfast.checkpoint.state_record import StateRecord, decode_schema, encode_schema
from holdfast.errors import Corrupt, Incompatible, Unavailable
from holdfast.savepoint.manifest import GROUPS_MAX, SLOTS_MAX, count
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

FORMAT = "holdfast.operator"
VERSION = 5
_WITH_DROPPED, _WITH_SAVEPOINT, _WITH_VERSIONS, _WITHOUT_ORIGIN = 4, 3, 2, 1
_RESCALE = "go back to the recorded number, or rescale: a new Spark checkpoint with restore=, docs/guide/rescale.md"
_FIRST_START = "say in restore.operator(…) what the first start said, or start with a new Spark checkpoint"
_NEW = "go back to the recorded declaration, give the operator a new name, or start a new checkpoint"
_BESIDE = (
    "go back to the recorded declaration, or put a state or field of another name beside it, which your code fills: "
    "docs/guide/evolution.md"
)


class QueryPhase(Enum):
    """How far a query has come whose operator is compared. What it begins with is fixed by its first commit; what it
    reads first, by the first offsets.
    """

    PLANNED_NOTHING = "no offsets yet"
    COMMITTED_NOTHING = "offsets of the first batch"
    COMMITTED = "a batch, or more"


@dataclass(frozen=True)
class OperatorRecord:
    """Everything about an operator that its stored state depends on. ``inputs``: where it has several, the name and the
    key columns of each, by name: Spark's checkpoint knows their sources by the order of the names alone. One that is
    broadcast has no key columns. ``origin``: where this generation of the operator began; None: with nothing.
    ``key_schema``: compared without what says which of it may be null, at any depth, which no byte of a key depends on.
    ``dropped``: states that it had, or that were left behind as it began. ``changes``: of a declaration alone, what it
    says of states that it has no more. ``earlier``: of one with an origin, id and name of each state there.
    """

    name: str
    max_parallelism: int
    slots: int
    labels: tuple[int, ...]
    key_schema: pa.Schema
    null_keys: bool
    states: tuple[StateRecord, ...]
    inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    origin: Origin | None = None
    dropped: tuple[StateRecord, ...] = ()
    changes: StateChanges = NO_CHANGES
    earlier: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    @property
    def all_states(self) -> OperatorStates:
        """Those that it has, and those that it had."""
        return OperatorStates(self.states, self.dropped)

    def to_json(self) -> str:
        return seal(
            FORMAT,
            self._least_version(),
            {
                "name": self.name,
                **({"origin": self.origin.to_fields()} if self.origin else {}),
                **({"inputs": dict(self.inputs)} if self.inputs else {}),
                "max_parallelism": self.max_parallelism,
                "slots": self.slots,
                "labels": list(self.labels),
                "key_columns": {field.name: str(field.type) for field in self.key_schema},
                "key_schema": encode_schema(self.key_schema),
                "null_keys": self.null_keys,
                **states_fields(self.all_states),
            },
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "an operator's record") -> OperatorRecord:
        """Reads a record back; Corrupt when it is not what was written, Incompatible when a newer Holdfast wrote it."""
        fields = unseal(text, FORMAT, VERSION, where)
        try:
            all_states = _states_of(fields)
            return cls(
                name=fields["name"],
                inputs=tuple((name, tuple(key)) for name, key in sorted(dict(fields.get("inputs", {})).items())),
                max_parallelism=count(fields["max_parallelism"], 1, GROUPS_MAX),
                slots=count(fields["slots"], 1, SLOTS_MAX),
                labels=tuple(fields["labels"]),
                key_schema=nullable_schema(decode_schema(fields["key_schema"])),  # earlier ones were as Spark saw them
                null_keys=fields["null_keys"],
                states=all_states.states,
                origin=origin_of(fields["origin"], where) if "origin" in fields else None,
                dropped=all_states.dropped,
            )
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise Corrupt(f"{where} lacks what an operator's record has: {error!r}") from error

    def _least_version(self) -> int:
        """That says it all: earlier versions of Holdfast read what says nothing that is new to them."""
        if self.all_states.has_earlier_schemas:
            return VERSION
        if self.dropped:
            return _WITH_DROPPED
        if self.origin is None:
            return _WITHOUT_ORIGIN
        return _WITH_SAVEPOINT if isinstance(self.origin, SavepointOrigin) else _WITH_VERSIONS

    def differences(
        self, declared: OperatorRecord, way_out: str | None = None, phase: QueryPhase = QueryPhase.COMMITTED
    ) -> list[str]:
        """How ``declared`` contradicts this record: what was expected, what was found, and the way out. Labels may
        differ. ``way_out``: at a restore, of all but the number of slots. ``phase``: of the query.
        """
        of_states, way_out = way_out or _BESIDE, way_out or _NEW
        found: list[str] = []
        for what, key, way in (
            ("slots", "slots", _RESCALE),
            ("max parallelism", "max_parallelism", way_out),
            ("null keys", "null_keys", way_out),
        ):
            if getattr(self, key) != getattr(declared, key):
                found.append(f"{what}: recorded {getattr(self, key)}, declared {getattr(declared, key)} ({way})")
        if not nullable_schema(self.key_schema).equals(nullable_schema(declared.key_schema)):
            found.append(
                f"key columns: recorded {_text(self.key_schema)}, declared {_text(declared.key_schema)} ({way_out})"
            )
        found += (why for _, why in contradictions(self.all_states, declared.states, declared.changes, of_states))
        if self.inputs != declared.inputs:
            old_inputs, new_inputs = _inputs_text(self.inputs), _inputs_text(declared.inputs)
            found.append(f"inputs and their keys: recorded {old_inputs}, declared {new_inputs} ({way_out})")
        found += self._other_origin(declared.origin, phase)
        if phase is not QueryPhase.COMMITTED and self.origin is not None and declared.origin is not None:
            found += self._other_beginning(declared)
        return found

    def _other_beginning(self, declared: OperatorRecord) -> list[str]:
        """Which states of the origin it goes on from was recorded at the first start, be it that this came to nothing:
        names and types may be the same where that is not. Once a batch is committed it is no question any more, and
        what a program still says of it says nothing.
        """
        recorded_names = {state.id: state.name for state in as_said(self.all_states, declared.changes).states}
        declared_names = {state.id: state.name for state in declared.states}
        return [
            f"state {name!r} of the origin: recorded {_goes_on(recorded_names.get(state_id))}, declared "
            f"{_goes_on(declared_names.get(state_id))} ({_FIRST_START})"
            for state_id, name in declared.earlier
            if recorded_names.get(state_id) != declared_names.get(state_id)
        ]

    def _other_origin(self, declared: Origin | None, phase: QueryPhase) -> list[str]:
        """A program may leave `restore` out once its query has begun; and the earlier query may have gone on meanwhile.
        As long as no offsets are planned it may not: the first ones would be those after another batch.
        Who owns a savepoint is said at the start: a claim that is only left out later would delete it all the same.
        """
        recorded = self.origin
        if declared is None:
            return []
        if recorded is None or not recorded.is_same(declared):
            began = recorded.where if recorded else "the empty state"
            way = "leave restore= out, or start with a new Spark checkpoint"
            return [f"origin: recorded {began}, declared {declared.where} ({way})"]
        if phase is QueryPhase.PLANNED_NOTHING and recorded.note != declared.note:
            way = (
                "the query has planned no offsets yet: it would begin with the recorded state, and read on from the "
                "declared batch. Start with a new Spark checkpoint"
            )
            return [f"origin: recorded {recorded.where}, declared {declared.where} ({way})"]
        if recorded.claim == declared.claim:
            return []
        if recorded.claim:
            way = (
                "leave restore= out, or say claim=True again: the query deletes the savepoint either way once it has "
                "taken it over. To keep it, start with a new Spark checkpoint, and first delete the folder claims/ in "
                "the savepoint"
            )
        else:
            way = (
                "leave restore= out, or say claim=False as at first: this query deletes nothing: once a batch of it is "
                "committed, delete the savepoint by holdfast savepoint dispose"
            )
        return [f"claim of {recorded.where}: recorded {recorded.claim}, declared {declared.claim} ({way})"]


def register_operator(
    store: FileStore,
    declared: OperatorRecord,
    *,
    prefix: str | None = None,
    phase: QueryPhase = QueryPhase.COMMITTED,
) -> OperatorRecord:
    """Records an operator at its first run; later, compares it with what was recorded.

    Parameters
    ----------
    prefix
        The operator's folder in the store; by default its percent-encoded name.
    phase
        Of the query.

    Returns
    -------
    OperatorRecord
        What is recorded: its labels and state ids hold, whatever was declared. Only where its origin is now is the
        program's word.

    Raises
    ------
    Incompatible
        The declaration contradicts the record; names each difference and the way out.
    """
    folder = prefix if prefix is not None else encode_operator(declared.name)
    recorded = _record(store, folder)
    if recorded is None:
        first = replace(declared, changes=NO_CHANGES)
        if store.create_if_absent(_record_name(folder), first.to_json().encode()):
            return first
        recorded = _record(store, folder)
    if recorded is None:
        raise Unavailable(f"{_record_name(folder)} in {store.uri} exists but cannot be read; try again")
    while True:  # until nobody else has changed the states since they were read
        number, states = _newest(store, folder, recorded)
        check_operator(store, folder, _with(recorded, states), declared, phase)
        changed = evolved(states, declared.states, declared.changes)
        if changed == states or write_states(store, folder, number + 1, changed):
            return replace(_with(recorded, changed), origin=_where_declared(recorded.origin, declared.origin))


def recorded_operator(store: FileStore, prefix: str) -> OperatorRecord | None:
    """What is recorded of the operator in this folder, with the states that it has now; None before its first run."""
    recorded = _record(store, prefix)
    return None if recorded is None else _with(recorded, _newest(store, prefix, recorded)[1])


def check_operator(
    store: FileStore,
    prefix: str,
    recorded: OperatorRecord,
    declared: OperatorRecord,
    phase: QueryPhase = QueryPhase.COMMITTED,
) -> None:
    """Compares a declaration with what is recorded in this folder; raises as :func:`register_operator`."""
    where = f"{_record_name(prefix)} in {store.uri}"
    if recorded.name != declared.name:
        raise Corrupt(f"{where} is the record of another operator, {recorded.name!r}; expected {declared.name!r}")
    differences = recorded.differences(declared, phase=phase)
    if differences:
        raise Incompatible(f"operator {declared.name!r} is not what {where} recorded:\n  " + "\n  ".join(differences))


def _newest(store: FileStore, prefix: str, recorded: OperatorRecord) -> tuple[int, OperatorStates]:
    added = added_states(store, prefix, recorded.states)
    first = OperatorStates((*recorded.states, *added), recorded.dropped)
    return newest_states(store, prefix, first)


def _with(recorded: OperatorRecord, states: OperatorStates) -> OperatorRecord:
    return replace(recorded, states=states.states, dropped=states.dropped)


def _where_declared(recorded: Origin | None, declared: Origin | None) -> Origin | None:
    """The recorded origin where the program has it, which says that it is the same one: a folder may be moved, and one
    that the executors do not reach can be corrected. Of an earlier query, a savepoint's folder has that savepoint only.
    """
    if recorded is None or declared is None or recorded.savepoint != declared.savepoint:
        return recorded
    return replace(recorded, store=declared.store)


def _record(store: FileStore, prefix: str) -> OperatorRecord | None:
    name = _record_name(prefix)
    stored = store.get(name)
    return None if stored is None else OperatorRecord.from_json(stored, f"{name} in {store.uri}")


def _record_name(prefix: str) -> str:
    return f"{prefix}/operator.json"


def _states_of(fields: dict[str, Any]) -> OperatorStates:
    """Version 3 told states that were left behind by their ids alone, in its origin."""
    found = states_of(fields)
    left = tuple(unnamed_state(state_id) for state_id in left_behind(fields.get("origin", {})))
    return check_states(replace(found, dropped=(*found.dropped, *left)))


def _goes_on(name: str | None) -> str:
    return "as left behind" if name is None else f"as going on, named {name!r}"


def _text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"


def _inputs_text(inputs: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    return ", ".join(f"{name} ({', '.join(key) or 'broadcast'})" for name, key in inputs) or "one without a name"
