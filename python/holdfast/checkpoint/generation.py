"""What slots and operators agree on in a query that begins with the state of an earlier one. docs/rfcs/0015

Notes that are created if absent and never change: docs/formats/operator.md. Safe for several threads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.checkpoint.names import OPENED, TAKEOVER, operator_prefix, query_folder, takeover_name
from holdfast.checkpoint.operator_record import OperatorRecord, recorded_operator
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

OPENED_FORMAT = "holdfast.opened"
TAKEOVER_FORMAT = "holdfast.takeover"
VERSION = 1
_NOTHING_WRITTEN = "Nothing was written. Start with a new Spark checkpoint, and give all operators the same hf.Restore"


class Opening:
    """Whether all slots of an operator must be called, because not all have a handle from Spark yet.

    A batch in which any slot is called calls all of them, until one is seen that has a handle: Spark commits the
    handles of a batch together, so then all have one.
    """

    def __init__(self, store: FileStore, prefix: str, origin: Origin | None) -> None:
        self._store = store
        self._name = f"{prefix}/{OPENED}"
        self._has_origin = origin is not None
        self._since: int | None = None  # the batch in which a handle was seen

    def calls_all(self, batch_id: int) -> bool:
        """Whether batch ``batch_id`` calls all slots; also one that the query was rolled back to."""
        if not self._has_origin:
            return False
        if self._since is None:
            note = _note(self._store, self._name, OPENED_FORMAT)
            self._since = note["batch_id"] if note else None
        return self._since is None or batch_id < self._since

    def note_handle(self, batch_id: int) -> None:
        """Spark had a handle of a slot as batch ``batch_id`` began."""
        if self._has_origin and self._since is None:
            self._since = _agreed(self._store, self._name, OPENED_FORMAT, {"batch_id": batch_id})["batch_id"]


def begin_together(store: FileStore, query_id: str, record: OperatorRecord) -> None:
    """After an operator is registered, before it runs: all of a query that take over from one earlier query do so at
    one batch, and none of those that had state there begins with nothing.

    Of two operators that contradict each other at least one is told, whichever comes first: each has left its record,
    or its note, before it looks for the other's.

    Raises
    ------
    Incompatible
        Another operator began at another batch; or this one, or another, begins with nothing.
    """
    origin = record.origin
    if origin is None:
        for name in store.names(f"{query_folder(query_id)}/"):
            if name.rpartition("/")[2].startswith(TAKEOVER):
                note = _note(store, name, TAKEOVER_FORMAT)
                if note is not None and record.name in note["operators"]:
                    raise _begins_with_nothing(record.name)
        return
    source, batch_id = origin.note
    fields = {"batch_id": batch_id, "operators": list(origin.operators)}
    agreed = _agreed(store, takeover_name(query_id, source), TAKEOVER_FORMAT, fields)["batch_id"]
    if agreed != batch_id:
        raise Incompatible(
            f"operator {record.name!r} begins at batch {batch_id} of query {source}, and another "
            f"operator of this query at its batch {agreed}: rows between the two would be lost or count twice. "
            f"{_NOTHING_WRITTEN}, which reads the earlier checkpoint once; or stop the earlier query first"
        )
    for name in origin.operators:
        other = recorded_operator(store, operator_prefix(query_id, name))
        if other is not None and other.origin is None:
            raise _begins_with_nothing(name)


def not_begun(store: FileStore, query_id: str, begun: Collection[str]) -> list[str]:
    """Names of a query's operators that begin with the state of an earlier one and have no version yet: those whose
    record says so; and of those that had state there, the ones that no record has taken over, by their name there.

    Parameters
    ----------
    begun
        Operators of which Spark has a version.
    """
    folder = f"{query_folder(query_id)}/"
    ends = [name.rpartition("/") for name in (file.name for file in store.list(folder))]
    prefixes = [prefix for prefix, _, end in ends if end == "operator.json" and prefix.count("/") == 1]
    records = [record for record in (recorded_operator(store, prefix) for prefix in prefixes) if record is not None]
    names = {record.name for record in records if record.origin is not None}
    taken = {record.origin.operator for record in records if record.origin is not None}
    for name in store.names(folder):
        note = _note(store, name, TAKEOVER_FORMAT) if name.rpartition("/")[2].startswith(TAKEOVER) else None
        names.update(set(note["operators"]) - taken if note is not None else ())
    return sorted(names - set(begun))


def _begins_with_nothing(name: str) -> Incompatible:
    return Incompatible(
        f"operator {name!r} begins with nothing, while another of this query begins with the state of an earlier query "
        f"in which {name!r} had state too. {_NOTHING_WRITTEN}; where it shall begin with nothing, give it a new name"
    )


def _agreed(store: FileStore, name: str, format_name: str, fields: dict[str, Any]) -> dict[str, Any]:
    if store.create_if_absent(name, seal(format_name, VERSION, fields).encode()):
        return fields
    found = _note(store, name, format_name)
    if found is None:
        raise Corrupt(f"{name} in {store.uri}: expected a note of a batch, found no file; restore it")
    return found


def _note(store: FileStore, name: str, format_name: str) -> dict[str, Any] | None:
    data = store.get(name)
    if data is None:
        return None
    where = f"{name} in {store.uri}"
    fields = unseal(data, format_name, VERSION, where)
    if type(fields.get("batch_id")) is not int or not isinstance(fields.get("operators", []), list):
        raise Corrupt(f"{where}: expected the number of a batch, and names, found {fields!r}")
    return fields
