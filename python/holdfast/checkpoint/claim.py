"""Claims: a query that begins with a savepoint and owns it from then on. It deletes the savepoint's files, but not its
manifest, once it has taken over all of it. docs/rfcs/0019

Notes in the savepoint's folder, one for each operator that is claimed, one when it is taken over, and one when all is
done, which are created if absent and never change: docs/formats/savepoint.md. Whoever makes the last but one deletes,
and so does any process of the query that finds something left: each step may be killed, and none is taken back. Safe
for several processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.names import encode_operator
from holdfast.checkpoint.origin import Origin
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

CLAIM_FORMAT = "holdfast.savepoint.claim"
VERSION = 1
#: The folder of the notes.
CLAIMS = "claims/"
_CLAIMED, _TAKEN, _DONE = ".claimed.json", ".taken.json", ".done.json"


@dataclass(frozen=True)
class Claim:
    """Whose an operator of a savepoint is. ``operator``: of the query, under the name that it has there."""

    query_id: str
    operator: str

    @property
    def who(self) -> str:
        """For messages."""
        return f"operator {self.operator!r} of query {self.query_id}"

    def to_text(self) -> str:
        return seal(CLAIM_FORMAT, VERSION, {"query_id": self.query_id, "operator": self.operator})


class Claims:
    """Those of one savepoint. All methods raise Corrupt for a note that is damaged."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def check(self, operator: str, own: Claim) -> None:
        """Incompatible where another has claimed an operator of the savepoint."""
        found = self._note(_name(operator, _CLAIMED))
        if found is not None and found != own:
            raise Incompatible(
                f"{own.who} cannot begin with operator {operator!r} of the savepoint {self._store.uri}: {found.who} "
                "has claimed it, and deletes it once it has taken it over. Nothing was written. Start with a new Spark "
                "checkpoint, from another savepoint; several can begin with one if none claims it. If that query began,"
                f" and will never run again, and savepoint.json is still there, delete the folder {CLAIMS} beside it"
            )

    def make(self, operator: str, own: Claim) -> None:
        """Before the first of an operator's slots begins; raises as :meth:`check`."""
        if not self._store.create_if_absent(_name(operator, _CLAIMED), own.to_text().encode()):
            self.check(operator, own)

    def note_taken(self, operator: str, own: Claim, operators: Iterable[str]) -> bool:
        """All slots of an operator have what they began with, and a batch of theirs is committed. Whether that holds
        for all operators of the savepoint now, so that it may go.
        """
        if self._note(_name(operator, _CLAIMED)) != own:
            return False  # it was disposed of; whatever is in the folder now is somebody's
        self._store.create_if_absent(_name(operator, _TAKEN), own.to_text().encode())
        return all(self._note(_name(name, _TAKEN)) is not None for name in operators)

    def is_done(self, savepoint: str) -> bool:
        """Whether nothing is left to do with the savepoint whose manifest has this checksum."""
        return self._note(f"{CLAIMS}{savepoint}{_DONE}") is not None

    def note_done(self, savepoint: str, own: Claim) -> None:
        """Whoever comes later looks at this note, and at nothing else."""
        self._store.create_if_absent(f"{CLAIMS}{savepoint}{_DONE}", own.to_text().encode())

    def waiting(self) -> list[Claim]:
        """Of operators that are not taken over yet."""
        names = self._store.names(CLAIMS)
        notes = [name for name in names if name.endswith(_CLAIMED)]
        begun = [name for name in notes if f"{name.removesuffix(_CLAIMED)}{_TAKEN}" not in names]
        return [found for name in begun if (found := self._note(name)) is not None]

    def _note(self, name: str) -> Claim | None:
        data = self._store.get(name)
        if data is None:
            return None
        where = f"{name} in {self._store.uri}"
        fields: dict[str, Any] = unseal(data, CLAIM_FORMAT, VERSION, where)
        query_id, operator = fields.get("query_id"), fields.get("operator")
        if not isinstance(query_id, str) or not isinstance(operator, str):
            raise Corrupt(f"{where}: expected the names of a query and an operator, found {fields!r}")
        return Claim(query_id, operator)


def begin_with(context: SlotContext, origin: Origin) -> None:
    """Before a slot makes its first version of what may be a savepoint.

    Raises
    ------
    Incompatible
        Another query, or another operator, has claimed it.
    """
    claims, own = _of(context, origin)
    if origin.claim:
        claims.make(origin.operator, own)
    else:
        claims.check(origin.operator, own)


def end(context: SlotContext, origin: Origin) -> None:
    """Once Spark has committed a batch of the operator: the savepoint goes, if nobody needs it any more."""
    claims, own = _of(context, origin)
    savepoint = origin.savepoint
    # One that the record does not name (of a development version) is left to its owner.
    if savepoint is None or claims.is_done(savepoint):
        return
    if claims.note_taken(origin.operator, own, origin.operators):
        from holdfast.checkpoint.savepoint_files import delete_claimed  # loads Parquet, which no other worker needs

        deleted = delete_claimed(context.store_at(origin.store), savepoint)
        claims.note_done(savepoint, own)
        if deleted is None:
            context.logger.warning(
                "%s is taken over, but its folder holds another savepoint now, of which nothing was deleted. What is "
                "left of the first one nobody needs: delete by hand what the manifest there does not name",
                origin.where,
            )
        elif deleted:
            context.logger.info("%s is taken over and deleted: %d files", origin.where, deleted)


def _of(context: SlotContext, origin: Origin) -> tuple[Claims, Claim]:
    query_id = context.prefix.rpartition("/")[0]
    return Claims(context.store_at(origin.store)), Claim(query_id, context.operator)


def _name(operator: str, suffix: str) -> str:
    return f"{CLAIMS}{encode_operator(operator)}{suffix}"
