"""What a savepoint says of an operator, from what its checkpoint recorded and the versions that are saved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.value_schemas import plain_schema
from holdfast.inspect.state_rows import columns_of
from holdfast.savepoint import SavedOperator, SavedState, StateTtl, TableFile


def saved_operator(
    record: OperatorRecord, handles: Sequence[Handle], files: Mapping[int, Sequence[TableFile]]
) -> SavedOperator:
    """The operator as a manifest describes it. ``files``: of the tables that there are, by state id."""
    states = sorted(record.states, key=lambda state: state.name)
    ttls = saved_ttls(record, handles)
    return SavedOperator(
        name=record.name,
        max_parallelism=record.max_parallelism,
        slots=record.slots,
        null_keys=record.null_keys,
        key_schema=record.key_schema,
        inputs=record.inputs,
        versions=tuple((one.slot, one.sequence, one.version_id, one.batch_id) for one in handles),
        states=tuple(
            SavedState(
                name=state.name,
                kind=state.kind,
                schema=plain_schema(state),
                function=state.function,
                columns=columns_of(record, state),
                ttl=ttls[state.id],
                files=tuple(files.get(state.id, ())),
            )
            for state in states
        ),
    )


def saved_ttls(record: OperatorRecord, handles: Sequence[Handle]) -> dict[int, StateTtl | None]:
    """By state id its TTL as the newest version has it; None: it has none, or none any more."""
    newest = max(handles, key=lambda handle: handle.batch_id)
    return {state.id: _ttl(state, newest, handles) for state in record.states}


def _ttl(state: StateRecord, newest: Handle, handles: Sequence[Handle]) -> StateTtl | None:
    known = next((one for one in newest.expiry if one.state_id == state.id), None)
    if known is None or known.ttl_ms is None:
        return None
    latest = [one.latest_ms for handle in handles for one in handle.expiry if one.state_id == state.id]
    return StateTtl(known.time, known.ttl_ms, max(latest))
