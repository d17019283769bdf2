"""How an operator goes on from an earlier generation: what must be as it was, and which ids its states keep. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.checkpoint.added_states import may_be_added, next_id
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Incompatible

_AS_IT_WAS = "declare it as it was, or leave restore= out, and begin with nothing"


def continued(earlier: OperatorRecord, declared: OperatorRecord, origin: Origin) -> OperatorRecord:
    """The record of a generation that begins with versions of ``earlier``.

    Slots, labels and inputs are the new generation's: its Spark checkpoint is new. States keep their ids, by which the
    entries in the store know them; those that may be added (timers, states of no key) get the next ones.

    Raises
    ------
    Incompatible
        What is declared contradicts what is recorded: names each difference.
    """
    known = {state.name for state in earlier.states}
    added = [state for state in declared.states if state.name not in known and may_be_added(state)]
    names = {state.name for state in added}
    alike = replace(
        declared,
        slots=earlier.slots,
        inputs=earlier.inputs,
        states=tuple(state for state in declared.states if state.name not in names),
    )
    differences = earlier.differences(alike, _AS_IT_WAS)
    if differences:
        raise Incompatible(
            f"operator {declared.name!r} cannot begin with the state of {origin.where}, which is another:\n  "
            + "\n  ".join(differences)
        )
    states = list(earlier.states)
    for state in added:
        states.append(replace(state, id=next_id(state, states)))
    return replace(declared, states=tuple(states), origin=origin)
