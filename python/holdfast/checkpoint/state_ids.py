"""Which ids states have: by their kind, so that who meets an entry knows how its key is laid out.

Format: docs/formats/value.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.checkpoint.state_record import StateRecord
from holdfast.errors import InvalidRequest

#: Bit 15 of a state's id says that it lies in order of time in the store, bit 14 that it belongs to no key.
FIRST_OPERATOR_STATE_ID, FIRST_TIMERS_ID = 0x4000, 0x8000
_OF_KEYS = range(FIRST_OPERATOR_STATE_ID)
_OF_NO_KEY = range(FIRST_OPERATOR_STATE_ID, FIRST_TIMERS_ID)
_TIMERS = range(FIRST_TIMERS_ID, 0x10000)


def ids_of(kind: str) -> range:
    """The ids that states of a kind may have."""
    if kind == "timers":
        return _TIMERS
    return _OF_NO_KEY if kind in ("broadcast", "operator") else _OF_KEYS


def next_id(state: StateRecord, known: Iterable[StateRecord]) -> int:
    """The id of a state that is added to all those that the operator ever had.

    Raises
    ------
    InvalidRequest
        There is none left.
    """
    ids = ids_of(state.kind)
    found = 1 + max((other.id for other in known if other.id in ids), default=max(ids.start, 1) - 1)
    if found not in ids:
        raise InvalidRequest(
            f"state {state.name!r}: the operator has had {len(ids)} states of its sort, and an id is used once; "
            "give the operator another name, in a new Spark checkpoint"
        )
    return found


def is_of_keys(state: StateRecord) -> bool:
    """Whether the state belongs to keys, and is no timers."""
    return ids_of(state.kind) is _OF_KEYS


def of_no_key(state: StateRecord) -> bool:
    """Whether the state belongs to the slot and to no key."""
    return state.kind in ("broadcast", "operator")


def unnamed_state(state_id: int) -> StateRecord:
    """A state of which nothing is known but its id, under a name that no state has in a program."""
    kind = "timers" if state_id in _TIMERS else "operator" if state_id in _OF_NO_KEY else "value"
    return StateRecord(state_id, f"(state {state_id})", kind, pa.schema([]))
