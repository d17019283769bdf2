"""How an operator goes on from an earlier generation: what must be as it was, and which ids its states keep. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.checkpoint.evolution import evolved
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Incompatible

_AS_IT_WAS = "declare it as it was, or leave restore= out, and begin with nothing"


def continued(earlier: OperatorRecord, declared: OperatorRecord, origin: Origin) -> OperatorRecord:
    """The record of a generation that begins with versions of ``earlier``.

    Slots, labels and inputs are the new generation's: its Spark checkpoint is new. States keep their ids, by which the
    entries in the store know them; they may change as at a restart (`evolution.py`).

    Raises
    ------
    Incompatible
        What is declared contradicts what is recorded: names each difference.
    """
    alike = replace(declared, slots=earlier.slots, inputs=earlier.inputs)
    differences = earlier.differences(alike, _AS_IT_WAS)
    if differences:
        raise Incompatible(
            f"operator {declared.name!r} cannot begin with the state of {origin.where}, which is another:\n  "
            + "\n  ".join(differences)
        )
    states = evolved(earlier.all_states, declared.states, declared.changes)
    return replace(declared, states=states.states, dropped=states.dropped, origin=origin)
