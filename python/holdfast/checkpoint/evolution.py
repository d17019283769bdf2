"""What may become of an operator's states from one program to the next. docs/rfcs/0017

Pure: from what is recorded and what is declared to what will be recorded, or to the list of what contradicts.

Nothing is lost because a line is missing: a state is dropped, or goes on under another name, where the program says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.checkpoint.schema_evolution import FieldChange, next_schema, schema_contradictions
from holdfast.checkpoint.state_ids import next_id
from holdfast.checkpoint.state_record import StateRecord


@dataclass(frozen=True)
class StateChanges:
    """What a program says of what it has no more. ``renamed``: states, (name now, name before). ``fields``: of the
    values of states.
    """

    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    fields: tuple[FieldChange, ...] = ()

    def fields_of(self, state: str) -> list[FieldChange]:
        """What it says of the fields of a state's values."""
        return [one for one in self.fields if one.state == state]


NO_CHANGES = StateChanges()


@dataclass(frozen=True)
class OperatorStates:
    """All states of an operator, and all that it had: their ids, and their names, are never used again."""

    states: tuple[StateRecord, ...]
    dropped: tuple[StateRecord, ...] = ()

    @property
    def has_earlier_schemas(self) -> bool:
        """Whether values of any of them were written with another schema than it has."""
        return any(state.earlier for state in (*self.states, *self.dropped))


def evolved(recorded: OperatorStates, declared: Sequence[StateRecord], changes: StateChanges) -> OperatorStates:
    """What is recorded once a declaration is, which contradicts nothing. The same, where it says nothing new."""
    given = {state.name: state for state in declared}
    kept = [
        next_schema(state, given[state.name], changes.fields_of(state.name))
        for state in _renamed(recorded.states, changes)
        if state.name not in changes.dropped
    ]
    dropped = (*recorded.dropped, *(state for state in recorded.states if state.name in changes.dropped))
    known = {state.name for state in kept}
    for state in declared:
        if state.name not in known:
            kept.append(replace(state, id=next_id(state, (*kept, *dropped))))
    return OperatorStates(tuple(kept), dropped)


def contradictions(
    recorded: OperatorStates, declared: Sequence[StateRecord], changes: StateChanges, way_out: str
) -> list[str]:
    """Why what is recorded cannot become what is declared: each state, what was expected, what was found, and the way
    out; ``way_out`` is that of states that cannot change so.
    """
    found = [*_wrong_names(recorded, changes)]
    known = {state.name: state for state in _renamed(recorded.states, changes)}
    given = {state.name: state for state in declared}
    gone = {state.name for state in recorded.dropped}
    for name, old in known.items():
        new = given.get(name)
        if new is None and name not in changes.dropped:
            found.append(
                f"state {name!r}: recorded {described(old)}, declared none (declare it; if it has another name now, "
                f"<name> = hf.renamed_from({name!r}, …); if it shall go, with all that it holds, "
                f"{name} = hf.DroppedState())"
            )
        elif new is not None and (old.kind, old.function) != (new.kind, new.function):
            found.append(f"state {name!r}: recorded {described(old)}, declared {described(new)} ({way_out})")
        elif new is not None:
            found += schema_contradictions(old, new, changes.fields_of(name), way_out)
    for name, new in given.items():
        if name in gone:
            found.append(
                f"state {name!r}: was dropped in this checkpoint, for good, declared {described(new)} (give it another "
                "name: what an older program would find under this one is not what it left)"
            )
    return found


def described(state: StateRecord) -> str:
    """A state's kind, types and function, for people."""
    types = ", ".join(f"{field.name}: {field.type}" for field in state.schema)
    return f"{state.kind}({types}){f', {state.function}' if state.function else ''}"


def _wrong_names(recorded: OperatorStates, changes: StateChanges) -> list[str]:
    found = []
    known = {state.name for state in recorded.states}
    for new, old in changes.renamed:
        if new in known and old in known:
            found.append(
                f"state {new!r}: is recorded, and so is {old!r}, from which it is renamed (take hf.renamed_from away "
                f"from {new!r}, or give it a name that is not recorded)"
            )
        elif new not in known and old not in known:
            dropped = any(state.name == old for state in recorded.dropped)
            found.append(
                f"state {new!r}: expected a recorded state {old!r}, from which it is renamed, found "
                f"{'that it was dropped' if dropped else ', '.join(sorted(known)) or 'none'} (name the state as it is "
                "recorded; without hf.renamed_from it is a new state, which is empty)"
            )
    return found


def _renamed(states: Sequence[StateRecord], changes: StateChanges) -> tuple[StateRecord, ...]:
    """The states under the names that they have now."""
    known = {state.name for state in states}
    names = {old: new for new, old in changes.renamed if new not in known}
    return tuple(replace(state, name=names.get(state.name, state.name)) for state in states)
