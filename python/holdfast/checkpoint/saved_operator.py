"""An operator of a savepoint as a record: what a generation that begins with it goes on from (docs/rfcs/0015); and a
record, with the versions that are saved, as what a savepoint says of it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.checkpoint.as_of import AsOf, expiry_of
from holdfast.checkpoint.expiry import StateExpiry
from holdfast.checkpoint.handle import NamedVersion
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.state_ids import next_id
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.value_schemas import plain_schema
from holdfast.errors import Corrupt
from holdfast.savepoint import SavedOperator, SavedState, StateColumns, StateTtl, TableFile


def record_of(saved: SavedOperator) -> OperatorRecord:
    """With ids of its own, which a savepoint does not have: entries are made of its rows, under these."""
    states: list[StateRecord] = []
    for state in saved.states:
        ttl_time = state.ttl.time if state.ttl else None
        unnumbered = StateRecord(0, state.name, state.kind, state.schema, state.function, ttl_time=ttl_time)
        states.append(replace(unnumbered, id=next_id(unnumbered, states)))
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


def saved_operator(
    record: OperatorRecord,
    handles: Sequence[NamedVersion],
    files: Mapping[int, Sequence[TableFile]],
    as_of: AsOf | None = None,
) -> SavedOperator:
    """The operator as a manifest describes it. ``files``: of the tables that there are, by state id. ``as_of``: as for
    :func:`saved_ttls`.
    """
    states = sorted(record.states, key=lambda state: state.name)
    ttls = saved_ttls(record, handles, as_of)
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


def saved_ttls(
    record: OperatorRecord, handles: Sequence[NamedVersion], as_of: AsOf | None
) -> dict[int, StateTtl | None]:
    """By state id its TTL as the newest version has it as of the end of a batch (None: as it says itself); None: it has
    none, or none any more.
    """
    newest = expiry_of(max(handles, key=lambda handle: handle.batch_id), as_of)
    every = [one for handle in handles for one in expiry_of(handle, as_of)]
    return {state.id: _ttl(state, newest, every) for state in record.states}


def _ttl(state: StateRecord, newest: Sequence[StateExpiry], every: Sequence[StateExpiry]) -> StateTtl | None:
    known = next((one for one in newest if one.state_id == state.id), None)
    if known is None or known.ttl_ms is None:
        return None
    latest = [one.latest_ms for one in every if one.state_id == state.id]
    return StateTtl(known.time, known.ttl_ms, max(latest))


def columns_of(record: OperatorRecord, state: StateRecord) -> StateColumns:
    """The columns of a state that is recorded; Corrupt where its record lacks what its kind has."""
    try:
        return StateColumns.of(record.key_schema, state.kind, state.schema, state.function)
    except KeyError as error:
        raise Corrupt(f"state {state.name!r} of operator {record.name!r} is recorded without {error}") from error
