"""The log of an operator's states: what they are since the program last changed them. docs/rfcs/0017

Documents with numbers from 1 without a gap, each created if absent and never changed: all states, and all that were
dropped. The newest holds. Of all who write one number one wins, and the others go by what it wrote.
Format: docs/formats/operator.md.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.checkpoint.evolution import OperatorStates
from holdfast.checkpoint.names import parse_logged, states_name
from holdfast.checkpoint.state_ids import ids_of
from holdfast.checkpoint.state_record import state_fields, state_of
from holdfast.checkpoint.value_schemas import check_schemas
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

FORMAT = "holdfast.states"
VERSION = 2
_VERSION_WITHOUT_EARLIER = 1


def newest_states(store: FileStore, folder: str, first: OperatorStates) -> tuple[int, OperatorStates]:
    """The number of the newest document, 0 where there is none, and what holds. ``first``: what was recorded otherwise.

    Raises
    ------
    Corrupt
        A document is missing or damaged, or contradicts itself.
    Incompatible
        A Holdfast that knows no such log has added a state since.
    """
    place = f"{folder}/{states_name()}"
    numbers = sorted(parse_logged(file.name) for file in store.list(place))
    if not numbers:
        return 0, first
    if numbers != list(range(1, len(numbers) + 1)):
        raise Corrupt(
            f"{place} in {store.uri}: expected documents 1 to {numbers[-1]}, found {', '.join(map(str, numbers))}; "
            "restore what is missing from a backup"
        )
    name = f"{folder}/{states_name(numbers[-1])}"
    where = f"{name} in {store.uri}"
    stored = store.get(name)
    if stored is None:
        raise Corrupt(f"{where}: expected an operator's states, found no file; restore it")
    found = _of_text(stored, where)
    ids = {state.id for state in (*found.states, *found.dropped)}
    later = [state.name for state in (*first.states, *first.dropped) if state.id not in ids]
    if later:
        raise Incompatible(
            f"{where} does not know the state {later[0]!r}, which an earlier Holdfast has added since: it does not "
            "read this log. Go on with it and its program, or restore the checkpoint from a backup"
        )
    return numbers[-1], found


def write_states(store: FileStore, folder: str, number: int, states: OperatorStates) -> bool:
    """Writes a document; False: another has that number."""
    version = VERSION if states.has_earlier_schemas else _VERSION_WITHOUT_EARLIER  # which older ones read too
    text = seal(FORMAT, version, states_fields(states))
    return store.create_if_absent(f"{folder}/{states_name(number)}", text.encode())


def states_fields(states: OperatorStates) -> dict[str, Any]:
    """As a document has them; without the field of those that were dropped, where none were."""
    dropped = {"dropped": [state_fields(state) for state in states.dropped]} if states.dropped else {}
    return {"states": [state_fields(state) for state in states.states], **dropped}


def states_of(fields: dict[str, Any]) -> OperatorStates:
    """From the fields of a document; KeyError, TypeError, ValueError or ArrowException where it has none.

    Raises
    ------
    ValueError
        Also where two states have one id, or two that are there one name, or one has an id of another sort, or schemas
        that contradict each other.
    """
    states = tuple(state_of(state) for state in fields["states"])
    return check_states(OperatorStates(states, tuple(state_of(state) for state in fields.get("dropped", ()))))


def check_states(found: OperatorStates) -> OperatorStates:
    """The same; ValueError where they contradict each other."""
    both = (*found.states, *found.dropped)
    ids, names = [state.id for state in both], [state.name for state in found.states]
    if len(set(ids)) < len(ids) or len(set(names)) < len(names):
        raise ValueError(f"the ids are {ids}, the names {names}; expected each once")
    for state in both:
        check_schemas(state)
    wrong = [state for state in both if type(state.id) is not int or state.id not in ids_of(state.kind)]
    if wrong:
        raise ValueError(f"state {wrong[0].name!r}, a {wrong[0].kind}, has the id {wrong[0].id!r}")
    return found


def _of_text(stored: bytes, where: str) -> OperatorStates:
    fields = unseal(stored, FORMAT, VERSION, where)
    try:
        return states_of(fields)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise Corrupt(f"{where} lacks what a log of states has: {error!r}") from error
