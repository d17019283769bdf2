"""States that a processor got after its operator's first run: files beside operator.json, which never changes.

Timers, broadcast states and operator states may be added because there is nothing of them yet in any version: nothing
that is stored means anything else. Each is created under the next free id of its sort, so of two processes that add at
once one wins, and both go by what it wrote. Format: docs/formats/operator.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.checkpoint.names import added_state_name
from holdfast.checkpoint.state_record import StateRecord, state_fields, state_of
from holdfast.errors import Corrupt
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

#: Bit 15 of a state's id says that it lies in order of time in the store, bit 14 that it belongs to no key
#: (docs/formats/value.md).
FIRST_OPERATOR_STATE_ID, FIRST_TIMERS_ID = 0x4000, 0x8000
_IDS_OF_KEYS = range(1, FIRST_OPERATOR_STATE_ID)
VERSION = 1


@dataclass(frozen=True)
class _Sort:
    """States that are recorded alike: their kinds, their ids, and the folder and format of their files."""

    kinds: tuple[str, ...]
    ids: range
    folder: str
    format: str


_SORTS = (
    _Sort(("timers",), range(FIRST_TIMERS_ID, 0x10000), "timers", "holdfast.timers"),
    _Sort(
        ("broadcast", "operator"),
        range(FIRST_OPERATOR_STATE_ID, FIRST_TIMERS_ID),
        "operator_states",
        "holdfast.operator_state",
    ),
)


def may_be_added(state: StateRecord) -> bool:
    """Whether an operator that has run may get the state."""
    return _sort(state) is not None


def next_id(state: StateRecord, known: Sequence[StateRecord]) -> int:
    """The id of a state that is added to those that are known."""
    sort = _sort(state)
    ids = sort.ids if sort is not None else _IDS_OF_KEYS
    return 1 + max((other.id for other in known if other.id in ids), default=ids.start - 1)


def of_no_key(state: StateRecord) -> bool:
    """Whether the state belongs to the slot and to no key."""
    return state.kind in ("broadcast", "operator")


def added_states(
    store: FileStore, folder: str, recorded: Sequence[StateRecord], declared: Sequence[StateRecord]
) -> tuple[StateRecord, ...]:
    """All states beside an operator's record, those that are declared and were nowhere yet among them.

    Raises
    ------
    Corrupt
        A file is damaged, or has the id or the name of another.
    """
    added = recorded_states(store, folder, recorded)
    names = {state.name for state in (*recorded, *added)}
    for state in declared:
        sort = _sort(state)
        if sort is None or state.name in names:
            continue
        while state.name not in {found.name for found in added}:
            state_id = next_id(state, (*recorded, *added))
            text = seal(sort.format, VERSION, state_fields(replace(state, id=state_id)))
            store.create_if_absent(f"{folder}/{added_state_name(sort.folder, state_id)}", text.encode())
            added = recorded_states(store, folder, recorded)
    return added


def recorded_states(store: FileStore, folder: str, recorded: Sequence[StateRecord]) -> tuple[StateRecord, ...]:
    """All states beside an operator's record, whose states are ``recorded``; raises as :func:`added_states`."""
    found: list[StateRecord] = []
    for sort in _SORTS:
        for file in store.list(f"{folder}/{added_state_name(sort.folder)}"):
            state = _read(store, file.name, sort)
            known = (*recorded, *found)
            twin = next((other for other in known if other.id == state.id or other.name == state.name), None)
            named = file.name.endswith(added_state_name(sort.folder, state.id))
            if twin is not None or not named or _sort(state) is not sort or state.id not in sort.ids:
                raise Corrupt(
                    f"{file.name} in {store.uri}: expected {sort.folder.replace('_', ' ')} of an id and a name of "
                    f"their own, found id {state.id}, name {state.name!r}, kind {state.kind!r}"
                    f"{'' if twin is None else f'; id {twin.id}, name {twin.name!r} are recorded already'}"
                )
            found.append(state)
    return tuple(found)


def _sort(state: StateRecord) -> _Sort | None:
    return next((sort for sort in _SORTS if state.kind in sort.kinds), None)


def _read(store: FileStore, name: str, sort: _Sort) -> StateRecord:
    where = f"{name} in {store.uri}"
    stored = store.get(name)
    if stored is None:
        raise Corrupt(f"{where}: expected what a state of an operator was recorded as, found no file; restore it")
    fields = unseal(stored, sort.format, VERSION, where)
    try:
        return state_of(fields)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise Corrupt(f"{where} lacks what a record of a state has: {error!r}") from error
