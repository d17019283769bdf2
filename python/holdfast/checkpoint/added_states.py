"""States that earlier versions of Holdfast added after an operator's first run: a file for each, beside operator.json.

Read only: what is added now goes into the log of states (`state_log.py`). Format: docs/formats/operator.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.checkpoint.names import added_state_name
from holdfast.checkpoint.state_ids import ids_of
from holdfast.checkpoint.state_record import StateRecord, state_of
from holdfast.errors import Corrupt
from holdfast.sealed import unseal
from holdfast.storage import FileStore

VERSION = 1
#: Folder, format and kinds.
_SORTS = (
    ("timers", "holdfast.timers", ("timers",)),
    ("operator_states", "holdfast.operator_state", ("broadcast", "operator")),
)


def added_states(store: FileStore, folder: str, recorded: Sequence[StateRecord]) -> tuple[StateRecord, ...]:
    """All states in files of their own beside an operator's record, whose states are ``recorded``.

    Raises
    ------
    Corrupt
        A file is damaged, or has the id or the name of another.
    """
    found: list[StateRecord] = []
    for place, form, kinds in _SORTS:
        for file in store.list(f"{folder}/{added_state_name(place)}"):
            state = _read(store, file.name, form)
            known = (*recorded, *found)
            twin = next((other for other in known if other.id == state.id or other.name == state.name), None)
            named = file.name.endswith(added_state_name(place, state.id))
            if twin is not None or not named or state.kind not in kinds or state.id not in ids_of(state.kind):
                raise Corrupt(
                    f"{file.name} in {store.uri}: expected {place.replace('_', ' ')} of an id and a name of "
                    f"their own, found id {state.id}, name {state.name!r}, kind {state.kind!r}"
                    f"{'' if twin is None else f'; id {twin.id}, name {twin.name!r} are recorded already'}"
                )
            found.append(state)
    return tuple(found)


def _read(store: FileStore, name: str, form: str) -> StateRecord:
    where = f"{name} in {store.uri}"
    stored = store.get(name)
    if stored is None:
        raise Corrupt(f"{where}: expected what a state of an operator was recorded as, found no file; restore it")
    fields = unseal(stored, form, VERSION, where)
    try:
        return state_of(fields)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise Corrupt(f"{where} lacks what a record of a state has: {error!r}") from error
