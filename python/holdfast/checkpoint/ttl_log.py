"""The log of TTLs: which ones an operator's programs declared, and from which batch on. docs/rfcs/0009

A version says which TTL its own batch went by. Where no slot had rows since a program declared another, this does.
Documents with numbers from 1, each created if absent and never changed, one where a program that starts declares other
TTLs than the newest says. Nothing that a batch does rests on it: it is for who reads slots that had no rows.
Format: docs/formats/operator.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.delta_file import checked_identity_of
from holdfast.checkpoint.expiry import Lifetime
from holdfast.checkpoint.names import parse_logged, run_digits, ttls_name
from holdfast.errors import Corrupt
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore, StoredFile

FORMAT = "holdfast.ttls"
VERSION = 1

_ADVICE = (
    "The state is whole. Put the file back from a backup of the state folder, or delete it: then what was noted before "
    "it and the state's versions tell the times to live, until the program's next start notes them again"
)


@dataclass(frozen=True)
class DeclaredTtls:
    """From this batch on, until another document says otherwise. ``lifetimes``: of all states that have a TTL."""

    batch_id: int
    lifetimes: tuple[Lifetime, ...]


def declared_ttls(store: FileStore, folder: str, batch_id: int) -> DeclaredTtls | None:
    """What was declared in a batch, as far as the operator in this folder noted it; None: it did not.

    Raises
    ------
    Corrupt
        A document is damaged.
    """
    noted = _newest_first(store, folder, _numbers(store, folder))
    return next((declared for declared in noted if declared.batch_id <= batch_id), None)


def note_ttls(
    store: FileStore, folder: str, declared: DeclaredTtls, *, admitted: bool = True, run_id: str | None = None
) -> bool:
    """Writes a document, where the newest one says otherwise, or is damaged: no query stops for it. Without any, states
    have no TTL.

    Parameters
    ----------
    admitted
        Whether all slots were asked if the state may go on from here. Before that nothing is written where a document,
        or a version of any of the query's operators, is of a later batch: it is a rollback, or a copy of the checkpoint
        that will be refused.
    run_id
        The run of the query that asks, where it may have gone on by now: its own versions are no others'.

    Returns
    -------
    bool
        Whether the newest document says so now; False: it is left as it is.
    """
    rows = _rows(declared)
    while True:  # until nobody else has the number
        numbers = _numbers(store, folder)
        try:
            newest = next(_newest_first(store, folder, numbers), DeclaredTtls(declared.batch_id, ()))
        except Corrupt:
            newest = None
        if newest is not None and newest.batch_id > declared.batch_id and not admitted:
            return False
        if newest is not None and newest.batch_id <= declared.batch_id and rows == _rows(newest):
            return True
        if not admitted and _is_ahead(store, folder.rpartition("/")[0], declared.batch_id, run_id):
            return False
        name = f"{folder}/{ttls_name(max(numbers, default=0) + 1)}"
        if store.create_if_absent(name, seal(FORMAT, VERSION, {"batch_id": declared.batch_id, "ttls": rows}).encode()):
            return True


def _is_ahead(store: FileStore, query: str, batch_id: int, run_id: str | None) -> bool:
    """Whether an operator of the query in this folder has a version of a later batch, of another run than this, as far
    as its newest delta tells; one that is damaged tells nothing, and may be.
    """
    own = run_digits(run_id) if run_id is not None else "none"
    newest: dict[str, StoredFile] = {}
    for file in store.list(f"{query}/"):
        operator, delta, _ = file.name.partition("/delta/")
        operator = operator.rpartition("/")[0]  # of all its slots the one that was written last
        if delta and (operator not in newest or file.modified_ms > newest[operator].modified_ms):
            newest[operator] = file
    for file in newest.values():
        data = store.get(file.name)
        try:
            identity = None if data is None else checked_identity_of(data, f"{file.name} in {store.uri}")
            if identity is not None and identity.batch_id > batch_id and not identity.version_id.startswith(own):
                return True
        except Corrupt:
            return True
    return False


def _rows(declared: DeclaredTtls) -> list[list[Any]]:
    return sorted(lifetime.to_row() for lifetime in declared.lifetimes)


def _numbers(store: FileStore, folder: str) -> list[int]:
    place = f"{folder}/{ttls_name()}"
    return sorted(number for file in store.list(place) if (number := parse_logged(file.name)) > 0)


def _newest_first(store: FileStore, folder: str, numbers: Sequence[int]) -> Iterator[DeclaredTtls]:
    for number in reversed(numbers):
        name = f"{folder}/{ttls_name(number)}"
        where = f"{name} in {store.uri}"
        stored = store.get(name)
        if stored is None:
            raise Corrupt(f"{where}: expected an operator's times to live, found no file; restore it")
        try:
            found = _unsealed(stored, where)
        except Corrupt as error:
            raise Corrupt(f"{error}. {_ADVICE}") from error
        yield found


def _unsealed(stored: bytes, where: str) -> DeclaredTtls:
    fields = unseal(stored, FORMAT, VERSION, where)
    try:
        batch_id, lifetimes = fields["batch_id"], tuple(map(Lifetime.from_row, fields["ttls"]))
        if type(batch_id) is not int or len({one.state_id for one in lifetimes}) < len(lifetimes):
            raise ValueError(f"batch {batch_id!r}, {len(lifetimes)} states; expected a number, each state once")
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{where} lacks what an operator's times to live have: {error!r}") from error
    return DeclaredTtls(batch_id, lifetimes)
