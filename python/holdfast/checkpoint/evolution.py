"""What may become of an operator's states from one program to the next. docs/rfcs/0017

Pure: from what is recorded and what is declared to what will be recorded, or to the list of what contradicts.

Nothing is lost because a line is missing: a state is dropped, or goes on under another name, where the program says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.checkpoint.schema_evolution import FieldChange, next_schema, schema_contradictions
from holdfast.checkpoint.state_ids import is_of_keys, next_id
from holdfast.checkpoint.state_record import StateRecord

_ANOTHER = "give it another name: what an older program would find under this one is not what it left"


@dataclass(frozen=True)
class StateChanges:
    """What is said of states that are not as they were: by a program, in its processor; at a restore, beside it.

    Attributes
    ----------
    dropped
        Names of states that were there and go, with all that they hold.
    renamed
        States, (name now, name before).
    fields
        Of the values of states.
    added
        States of keys that are new, all of them; None: whatever is new is added.
    """

    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    fields: tuple[FieldChange, ...] = ()
    added: tuple[str, ...] | None = None

    def fields_of(self, state: str) -> list[FieldChange]:
        """What it says of the fields of a state's values."""
        return [one for one in self.fields if one.state == state]

    def begins(self, state: str) -> bool:
        """Whether it says that this state begins with nothing."""
        return self.added is not None and state in self.added


NO_CHANGES = StateChanges()


@dataclass(frozen=True)
class OperatorStates:
    """All states of an operator, and all that it had: their ids are never used again; nor are their names, unless it is
    said at a restore that a state of this name begins anew.
    """

    states: tuple[StateRecord, ...]
    dropped: tuple[StateRecord, ...] = ()

    @property
    def has_earlier_schemas(self) -> bool:
        """Whether values of any of them were written with another schema than it has."""
        return any(state.earlier for state in (*self.states, *self.dropped))


def as_said(recorded: OperatorStates, changes: StateChanges) -> OperatorStates:
    """The states without those that are dropped, under the names that they have now."""
    left = [state for state in recorded.states if state.name not in changes.dropped]
    # A name that is taken is no new one: the line has stayed since an earlier restart.
    taken = {state.name for state in left} - {before for _, before in changes.renamed}
    names = {before: now for now, before in changes.renamed if now not in taken}
    return OperatorStates(
        tuple(replace(state, name=names.get(state.name, state.name)) for state in left),
        (*recorded.dropped, *(state for state in recorded.states if state.name in changes.dropped)),
    )


def evolved(recorded: OperatorStates, declared: Sequence[StateRecord], changes: StateChanges) -> OperatorStates:
    """What is recorded once a declaration is, which contradicts nothing. The same, where it says nothing new."""
    given = {state.name: state for state in declared}
    said = as_said(recorded, changes)
    # The time of its TTL stays as it was first recorded: of a state that has none there, entries may be of either time.
    kept = [next_schema(state, given[state.name], changes.fields_of(state.name)) for state in said.states]
    known = {state.name for state in kept}
    for state in declared:
        if state.name not in known:
            kept.append(replace(state, id=next_id(state, (*kept, *said.dropped))))
    return OperatorStates(tuple(kept), said.dropped)


def contradictions(
    recorded: OperatorStates, declared: Sequence[StateRecord], changes: StateChanges, way_out: str
) -> list[tuple[str, str]]:
    """Why what is recorded cannot become what is declared: of each state the name that it has now, and, in words, what
    was expected, what was found, and the way out; ``way_out`` is that of states that cannot change so.
    """
    found = _wrong_names(recorded, changes)
    said = as_said(recorded, changes)
    known = {state.name: state for state in said.states}
    given = {state.name: state for state in declared}
    gone = {state.name for state in said.dropped}
    for name, old in known.items():
        new = given.get(name)
        if new is None:
            found.append((name, _left_out(old, changes, way_out)))
        elif (old.kind, old.function) != (new.kind, new.function):
            found.append((name, f"recorded {described(old)}, declared {described(new)} ({way_out})"))
        elif old.ttl_time and new.ttl_time and old.ttl_time != new.ttl_time:
            found.append((name, other_ttl_time(old.ttl_time, new.ttl_time, changes)))
    for name, new in given.items():
        if changes.begins(name) or any(state.name == name for state in recorded.states):
            continue
        if name not in known and changes.added is not None and (name in gone or is_of_keys(new)):
            found.append((name, f"recorded none, declared {described(new)} ({way_out})"))
        elif name in gone:
            found.append((name, f"was dropped in this checkpoint, for good, declared {described(new)} ({_ANOTHER})"))
    met = {name for name, _ in found}
    texts = [(name, f"state {name!r}: {why}") for name, why in found]
    for name, old in known.items():
        if name not in met:
            whys = schema_contradictions(old, given[name], changes.fields_of(name), way_out)
            texts += ((name, why) for why in whys)
    return texts


def described(state: StateRecord) -> str:
    """A state's kind, types and function, for people."""
    types = ", ".join(f"{field.name}: {field.type}" for field in state.schema)
    return f"{state.kind}({types}){f', {state.function}' if state.function else ''}"


def other_ttl_time(recorded: str, declared: str, changes: StateChanges) -> str:
    """That the TTL of a state counted by the other time, and what to do."""
    in_program = "give the state a new name, and drop this one: hf.DroppedState()"
    way_out = in_program if changes.added is None else "leave it behind: dropped=, added="
    return (
        f"counts its time to live in {recorded} time, and is declared with {declared} time; the times of its entries "
        f'cannot be compared with it (go back to time="{recorded}", or {way_out})'
    )


def _left_out(old: StateRecord, changes: StateChanges, way_out: str) -> str:
    in_program = (
        f"declare it; if it has another name now, <name> = hf.renamed_from({old.name!r}, …); if it shall go, with all "
        f"that it holds, {old.name} = hf.DroppedState()"
    )
    return f"recorded {described(old)}, declared none ({in_program if changes.added is None else way_out})"


def _wrong_names(recorded: OperatorStates, changes: StateChanges) -> list[tuple[str, str]]:
    found = []
    known = {state.name for state in recorded.states}
    for new, old in changes.renamed:
        if new in known and old in known:
            why = (
                f"is recorded, and so is {old!r}, from which it is renamed (take hf.renamed_from away, or give it a "
                "name that is not recorded)"
            )
        elif new not in known and old not in known:
            dropped = any(state.name == old for state in recorded.dropped)
            there = "that it was dropped" if dropped else ", ".join(sorted(known)) or "none"
            why = (
                f"expected a recorded state {old!r}, from which it is renamed, found {there} (name the state as it is "
                "recorded; without hf.renamed_from it is a new state, which is empty)"
            )
        else:
            continue
        found.append((new, why))
    return found
