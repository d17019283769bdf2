"""An operator of a savepoint as a record: what a generation that begins with it goes on from. docs/rfcs/0015"""

from __future__ import annotations

from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.state_ids import next_id
from holdfast.checkpoint.state_record import StateRecord
from holdfast.savepoint import SavedOperator


def record_of(saved: SavedOperator) -> OperatorRecord:
    """With ids of its own, which a savepoint does not have: entries are made of its rows, under these."""
    states: list[StateRecord] = []
    for state in saved.states:
        unnumbered = StateRecord(0, state.name, state.kind, state.schema, state.function)
        states.append(StateRecord(next_id(unnumbered, states), state.name, state.kind, state.schema, state.function))
    return OperatorRecord(
        name=saved.name,
        max_parallelism=saved.max_parallelism,
        slots=saved.slots,
        labels=tuple(range(saved.slots)),
        key_schema=saved.key_schema,
        null_keys=saved.null_keys,
        states=tuple(states),
        inputs=saved.inputs,
    )
