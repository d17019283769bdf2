"""What a restore would do with one operator: for people as text, for machines as JSON. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from holdfast.checkpoint import OperatorRecord, StateChanges, StateRecord
from holdfast.checkpoint.continued import NOTHING_SAID, continued, taken_over
from holdfast.checkpoint.evolution import NO_CHANGES, as_said, other_ttl_time
from holdfast.checkpoint.origin import Origin, VersionsOrigin
from holdfast.errors import Corrupt, HoldfastError
from holdfast.inspect.earlier import Earlier, EarlierSavepoint
from holdfast.spark.keyed import state_changes, state_records
from holdfast.state import Processor, declared_states

#: Of a state: it comes along; under another name; it stays behind; it begins with nothing; it stands in the way.
Fate = Literal["taken over", "renamed", "dropped", "added", "refused"]


@dataclass(frozen=True)
class StatePlan:
    """A state. ``was``: its name there, None: it is new. ``becomes``: its name here, None: it is not declared.
    ``types``: as there, of one that is new as here. ``new_types``: as here, None: they are the same.
    """

    was: str | None
    becomes: str | None
    kind: str
    types: dict[str, str]
    function: str | None
    fate: Fate
    new_types: dict[str, str] | None = None


@dataclass(frozen=True)
class RestorePlan:
    """What a restore would do with one operator.

    Attributes
    ----------
    source
        The checkpoint or the savepoint.
    query_id, batch_id
        Of which query's which batch; None: the savepoint was made of tables.
    operator
        Its name there.
    slots_before, slots
        How many it had, and gets.
    key
        Types of the key columns by name, which must be the same; as must ``null_keys`` and ``max_parallelism``.
    states
        Each with its fate.
    refused
        Why it is refused, in words; nothing: the operator would begin.
    sources
        Where each source of the earlier query goes on, as Spark wrote it.
    """

    source: str
    query_id: str | None
    batch_id: int | None
    operator: str
    slots_before: int
    slots: int
    key: dict[str, str]
    null_keys: bool
    max_parallelism: int
    states: tuple[StatePlan, ...]
    refused: tuple[str, ...]
    sources: tuple[str | None, ...]

    def to_json(self) -> str:
        """For machines: one object, with the attributes as they are."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        of = f"batch {self.batch_id} of query {self.query_id}" if self.query_id else "made of tables"
        key = ", ".join(f"{name}: {kind}" for name, kind in self.key.items())
        nulls = ", null is a key" if self.null_keys else ""
        lines = [
            f"{self.source}, {of}",
            f"operator {self.operator!r}: {self.slots_before} slots → {self.slots}",
            f"  key ({key}){nulls}, max parallelism {self.max_parallelism}",
            *(f"  {_line(state)}" for state in self.states),
            *(f"  source {number}: {offset or 'nothing yet'}" for number, offset in enumerate(self.sources)),
            *(f"REFUSED: {reason}" for reason in self.refused),
        ]
        return "\n".join(lines)


def plan_of(
    earlier: Earlier,
    recorded: OperatorRecord,
    origin: Origin,
    changes: StateChanges,
    processor: Processor | type[Processor] | None,
    slots: int | None,
) -> RestorePlan:
    """Of an operator of ``earlier``; without ``processor`` its states are declared as they were."""
    said = as_said(recorded.all_states, changes).states if processor is None else state_records(processor)
    in_program = NO_CHANGES if processor is None else state_changes(processor)
    slots = recorded.slots if slots is None else slots
    declared = replace(recorded, slots=slots, states=said, changes=in_program, origin=None)
    refused: tuple[str, ...] = ()
    try:
        continued(recorded, declared, origin, changes)
    except HoldfastError as error:
        refused = (str(error),)
    try:
        earlier.check_files(recorded.name)
    except Corrupt as error:
        refused += (str(error),)
    taken, wrong = taken_over(recorded, declared, changes)
    names = {state.id: state.name for state in taken.states}
    wrong_times = _other_times(earlier, recorded, origin, names, processor)
    refused += tuple(why for name, why in wrong_times.items() if name not in wrong)
    if declared.slots < 1 or declared.slots > recorded.max_parallelism:
        refused += (f"{declared.slots} slots; expected 1 to {recorded.max_parallelism}, the max parallelism",)
    query_id, batch_id = earlier.batch
    return RestorePlan(
        source=earlier.path,
        query_id=query_id,
        batch_id=batch_id,
        operator=recorded.name,
        slots_before=recorded.slots,
        slots=declared.slots,
        key={field.name: str(field.type) for field in recorded.key_schema},
        null_keys=recorded.null_keys,
        max_parallelism=recorded.max_parallelism,
        states=tuple(_fates(recorded, declared, names, wrong | set(wrong_times))),
        refused=refused,
        sources=earlier.sources,
    )


def _other_times(
    earlier: Earlier,
    recorded: OperatorRecord,
    origin: Origin,
    names: Mapping[int, str],
    processor: Processor | type[Processor] | None,
) -> dict[str, str]:
    """By name here, why a state is refused whose time to live counted by another time: its first batch would fail."""
    declared = dict(declared_states(processor)) if processor is not None else {}
    found = {}
    for state_id, time in _times(earlier, recorded, origin).items():
        name = names.get(state_id)
        ttl = declared[name].ttl if name in declared else None
        if name is not None and ttl is not None and ttl.time != time:
            found[name] = f"state {name!r}: {other_ttl_time(time, ttl.time, NOTHING_SAID)}"
    return found


def _times(earlier: Earlier, recorded: OperatorRecord, origin: Origin) -> dict[int, str]:
    """By id, the time by which states have a time to live."""
    if isinstance(earlier, EarlierSavepoint):
        saved = earlier.manifest.operator(recorded.name)
        ttls = {state.id: saved.state(state.name).ttl for state in recorded.states}
        return {state_id: ttl.time for state_id, ttl in ttls.items() if ttl is not None}
    handles = origin.handles if isinstance(origin, VersionsOrigin) else ()
    return {expiry.state_id: expiry.time for handle in handles if handle is not None for expiry in handle.expiry}


def _fates(
    recorded: OperatorRecord, declared: OperatorRecord, names: Mapping[int, str], refused: set[str]
) -> list[StatePlan]:
    """``names``: here, of what is taken over, by id."""
    here = {state.name: state for state in declared.states}
    plans = []
    for state in recorded.states:
        name = names.get(state.id)
        now = here.get(name) if name is not None else None
        fate: Fate = "taken over" if name == state.name else "renamed"
        if name is None or name in refused:
            fate = "dropped" if name is None else "refused"
        plans.append(_plan(state, state.name, now, fate))
    plans += (
        _plan(state, None, state, "refused" if name in refused else "added")
        for name, state in here.items()
        if name not in names.values()
    )
    return plans


def _plan(state: StateRecord, was: str | None, now: StateRecord | None, fate: Fate) -> StatePlan:
    new_types = now.types if now is not None and now.types != state.types else None
    becomes = now.name if now is not None else None
    return StatePlan(was, becomes, state.kind, state.types, state.function, fate, new_types)


def _line(state: StatePlan) -> str:
    function = f", {state.function}" if state.function else ""
    types = _types(state.types)
    name = state.was or state.becomes
    other = f" → {state.becomes}" if state.fate == "renamed" else ""
    after = f" → ({_types(state.new_types)})" if state.new_types is not None else ""
    return f"{state.fate}: {name}{other}, {state.kind}({types}){function}{after}"


def _types(types: Mapping[str, str]) -> str:
    return ", ".join(f"{role}: {kind}" for role, kind in types.items())
