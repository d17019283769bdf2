"""Timers that a processor got after its operator's first run: files beside operator.json, which never changes.

Timers may be added because there are none of them yet in any version: nothing that is stored means anything else. Each
is created under the next free id, so of two processes that add at once one wins, and both go by what it wrote. Format:
docs/formats/operator.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.checkpoint.names import timers_name
from holdfast.checkpoint.state_record import StateRecord, state_fields, state_of
from holdfast.errors import Corrupt
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

KIND = "timers"
#: Bit 15 of a state's id says that it lies in order of time in the store. docs/formats/value.md
FIRST_TIMERS_ID = 0x8000
FORMAT = "holdfast.timers"
VERSION = 1


def added_timers(
    store: FileStore, folder: str, recorded: Sequence[StateRecord], declared: Sequence[StateRecord]
) -> tuple[StateRecord, ...]:
    """All timers beside an operator's record, those that are declared and were nowhere yet among them.

    Raises
    ------
    Corrupt
        A file is damaged, or has the id or the name of another.
    """
    added = recorded_timers(store, folder, recorded)
    names = {state.name for state in (*recorded, *added)}
    for state in declared:
        if state.kind != KIND or state.name in names:
            continue
        while state.name not in {timers.name for timers in added}:
            next_id = 1 + max((known.id for known in (*recorded, *added)), default=0)
            next_id = max(next_id, FIRST_TIMERS_ID)
            text = seal(FORMAT, VERSION, state_fields(replace(state, id=next_id)))
            store.create_if_absent(f"{folder}/{timers_name(next_id)}", text.encode())
            added = recorded_timers(store, folder, recorded)
    return added


def recorded_timers(store: FileStore, folder: str, recorded: Sequence[StateRecord]) -> tuple[StateRecord, ...]:
    """All timers beside an operator's record, whose states are ``recorded``; raises as :func:`added_timers`."""
    found: list[StateRecord] = []
    for file in store.list(f"{folder}/{timers_name(None)}"):
        where = f"{file.name} in {store.uri}"
        stored = store.get(file.name)
        if stored is None:
            raise Corrupt(f"{where}: expected what an operator's timers were recorded as, found no file; restore it")
        fields = unseal(stored, FORMAT, VERSION, where)
        try:
            state = state_of(fields)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise Corrupt(f"{where} lacks what a record of timers has: {error!r}") from error
        twin = next((known for known in (*recorded, *found) if known.id == state.id or known.name == state.name), None)
        if twin is not None or not file.name.endswith(timers_name(state.id)):
            raise Corrupt(
                f"{where}: expected timers of an id and a name of their own, found id {state.id}, name {state.name!r}"
                f"{'' if twin is None else f'; id {twin.id}, name {twin.name!r} are recorded already'}"
            )
        found.append(state)
    return tuple(found)
