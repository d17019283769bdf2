"""What all slots, and all operators, of a query agree on that begins with the state of an earlier one. docs/rfcs/0015

Notes that are created if absent and never change: docs/formats/operator.md. Safe for several threads.
"""

from __future__ import annotations

from holdfast.checkpoint.names import OPENED, takeover_name
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

OPENED_FORMAT = "holdfast.opened"
TAKEOVER_FORMAT = "holdfast.takeover"
VERSION = 1


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
            self._since = _batch(self._store, self._name, OPENED_FORMAT)
        return self._since is None or batch_id < self._since

    def note_handle(self, batch_id: int) -> None:
        """Spark had a handle of a slot as batch ``batch_id`` began."""
        if self._has_origin and self._since is None:
            self._since = _agreed(self._store, self._name, OPENED_FORMAT, batch_id)


def begin_together(store: FileStore, query_id: str, origin: Origin | None) -> None:
    """Before an operator with an origin runs: all of a query that take over from one earlier query do so at one batch.

    Raises
    ------
    Incompatible
        Another operator began at another batch.
    """
    if origin is None:
        return
    agreed = _agreed(store, takeover_name(query_id, origin.query_id), TAKEOVER_FORMAT, origin.batch_id)
    if agreed != origin.batch_id:
        raise Incompatible(
            f"operator {origin.operator!r} begins at batch {origin.batch_id} of query {origin.query_id}, and another "
            f"operator of this query at its batch {agreed}: rows between the two would be lost or count twice. Nothing "
            "was written. Start with a new Spark checkpoint, and give all operators the same hf.Restore, which reads "
            "the earlier checkpoint once; or stop the earlier query first"
        )


def _agreed(store: FileStore, name: str, format_name: str, batch_id: int) -> int:
    if store.create_if_absent(name, seal(format_name, VERSION, {"batch_id": batch_id}).encode()):
        return batch_id
    found = _batch(store, name, format_name)
    if found is None:
        raise Corrupt(f"{name} in {store.uri}: expected a note of a batch, found no file; restore it")
    return found


def _batch(store: FileStore, name: str, format_name: str) -> int | None:
    data = store.get(name)
    if data is None:
        return None
    where = f"{name} in {store.uri}"
    batch_id = unseal(data, format_name, VERSION, where).get("batch_id")
    if not isinstance(batch_id, int):
        raise Corrupt(f"{where}: expected the number of a batch, found {batch_id!r}")
    return batch_id
