"""Origin: where an operator's generation began, if not empty: versions of an earlier one's slots, or a savepoint.

docs/rfcs/0015. Immutable; stands in the operator's record (docs/formats/operator.md) from the query's start, or its
first task, on. Slots have numbers within their generation; those of two generations are compared by ranges of key
groups alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

from holdfast._core import first_key_group, slot_of
from holdfast.checkpoint.as_of import AsOf, in_force
from holdfast.checkpoint.expiry import BatchTime, Lifetime
from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import operator_prefix
from holdfast.errors import Corrupt
from holdfast.sealed import CHECKSUM_DIGITS

_CHECKSUM = re.compile(f"[0-9a-f]{{{CHECKSUM_DIGITS}}}")


@dataclass(frozen=True)
class VersionsOrigin:
    """Versions of one operator's slots, all of the end of one batch.

    Attributes
    ----------
    store
        URI of the store that has them.
    query_id, operator
        Whose they are; together the folder in that store.
    batch_id
        The batch whose end they are.
    handles
        By slot, as many as the earlier generation has slots; None: the slot was empty.
    operators
        All operators of the earlier query that had state at that batch, in order.
    claim
        The store is a native savepoint's folder, and the generation's: it deletes it once it has taken it over.
    savepoint
        Checksum of that savepoint's manifest; None: of an earlier query, or recorded before this was.
    time
        The batch's: by it entries of slots have expired that had no rows in the batch. None: what the handles say of
        that holds, as in a native savepoint; or recorded before this was.
    lifetimes
        The TTLs of the earlier program in that batch. None: those of the newest handle; recorded before this was.
    """

    store: str
    query_id: str
    operator: str
    batch_id: int
    handles: tuple[StoredHandle | None, ...]
    operators: tuple[str, ...]
    claim: bool = False
    savepoint: str | None = None
    time: BatchTime | None = None
    lifetimes: tuple[Lifetime, ...] | None = None

    def as_of(self, dropped: frozenset[int]) -> AsOf | None:
        """As which the handles' versions are read. ``dropped``: ids of states that the operator has no more."""
        if self.time is None:
            return None
        lifetimes = self.lifetimes
        if lifetimes is None:
            lifetimes = in_force((handle for handle in self.handles if handle is not None), None)
        return AsOf(self.batch_id, self.time, lifetimes, dropped)

    @property
    def slots(self) -> int:
        return len(self.handles)

    @property
    def prefix(self) -> str:
        """The earlier generation's folder in its store."""
        return operator_prefix(self.query_id, self.operator)

    @property
    def sequence(self) -> int:
        """The newest version's; what begins here goes on above it, so that list indexes stay in order."""
        return max(handle.sequence for handle in self.handles if handle is not None)

    def is_same(self, declared: Origin) -> bool:
        """Whether a program that gives ``restore`` again gives what it gave: the query may have gone on meanwhile, a
        savepoint stays what it is.
        """
        if not isinstance(declared, VersionsOrigin):
            return False
        known = self.savepoint is None or self.savepoint == declared.savepoint
        return known and (self.query_id, self.operator) == (declared.query_id, declared.operator)

    @property
    def note(self) -> tuple[str, int]:
        """Under which name, and as of which batch, the operators of a query agree on where they begin."""
        return self.query_id, self.batch_id

    @property
    def where(self) -> str:
        """For messages."""
        place = self.store if self.savepoint is None else f"the savepoint {self.store} (manifest {self.savepoint})"
        return f"operator {self.operator!r} of query {self.query_id} at batch {self.batch_id}, in {place}"

    def overlapping(self, first: int, end: int, max_parallelism: int) -> list[int]:
        """Slots of the earlier generation that have key groups from ``first`` up to, but not including, ``end``."""
        return slots_of(first, end, self.slots, max_parallelism)

    def to_fields(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "query_id": self.query_id,
            "operator": self.operator,
            "batch_id": self.batch_id,
            "operators": list(self.operators),
            "handles": [handle.to_text() if handle else None for handle in self.handles],
            **_claimed(self.claim),
            **({"savepoint": self.savepoint} if self.savepoint is not None else {}),
            **({"time": [self.time.timestamp_ms, self.time.watermark_ms]} if self.time is not None else {}),
            **({"ttls": [one.to_row() for one in self.lifetimes]} if self.lifetimes is not None else {}),
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> VersionsOrigin:
        handles = tuple(StoredHandle.from_text(text) if text is not None else None for text in fields["handles"])
        return cls(
            store=fields["store"],
            query_id=fields["query_id"],
            operator=fields["operator"],
            batch_id=fields["batch_id"],
            handles=handles,
            operators=tuple(fields["operators"]),
            claim=_is_claimed(fields),
            savepoint=fields.get("savepoint"),
            time=_time(fields),
            lifetimes=tuple(map(Lifetime.from_row, fields["ttls"])) if "ttls" in fields else None,
        )

    def broken_rule(self) -> str | None:
        """The first rule that it breaks, or None."""
        if self.savepoint is not None and not _CHECKSUM.fullmatch(str(self.savepoint)):
            return f"expected the checksum of a savepoint's manifest, found {self.savepoint!r}"
        if not any(self.handles):
            return "expected a version of at least one slot, found none"
        for slot, handle in enumerate(self.handles):
            if handle is None:
                continue
            if (handle.operator, handle.slot) != (self.operator, slot):
                return f"expected a version of slot {slot}, found that of {handle.where}"
            if handle.batch_id > self.batch_id:
                return f"expected versions up to batch {self.batch_id}, found that of batch {handle.batch_id}"
        return None


@dataclass(frozen=True)
class SavepointOrigin:
    """One operator of a savepoint.

    Attributes
    ----------
    store
        URI of the savepoint's folder.
    manifest
        Checksum of its manifest, which names all of its files with theirs: it is this savepoint wherever it is.
    query_id, batch_id
        Of which query it was taken, after which batch; None: it was made of tables.
    operator, operators
        Its name there, and those of all operators of the savepoint, in order.
    states
        Name there, and id here, of its states. Those that the operator has dropped are not taken over.
    claim
        It is the generation's, which deletes it once it has taken it over.
    """

    store: str
    manifest: str
    query_id: str | None
    batch_id: int | None
    operator: str
    operators: tuple[str, ...]
    states: tuple[tuple[str, int], ...]
    claim: bool = False

    #: A savepoint has places in lists, not indexes: they begin with the lowest sequence that a version has.
    sequence = 1

    @property
    def savepoint(self) -> str:
        """As that of versions."""
        return self.manifest

    def is_same(self, declared: Origin) -> bool:
        """As that of versions."""
        if not isinstance(declared, SavepointOrigin):
            return False
        return (self.manifest, self.operator) == (declared.manifest, declared.operator)

    @property
    def note(self) -> tuple[str, int]:
        if self.query_id is None or self.batch_id is None:
            return f"savepoint-{self.manifest}", -1
        return self.query_id, self.batch_id

    @property
    def where(self) -> str:
        """For messages."""
        taken = f" (query {self.query_id}, batch {self.batch_id})" if self.query_id is not None else ""
        return f"operator {self.operator!r} of the savepoint {self.store}{taken}"

    def to_fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("store", "manifest", "query_id", "batch_id", "operator")}
        states = [list(row) for row in self.states]
        return {**fields, "operators": list(self.operators), "states": states, **_claimed(self.claim)}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> SavepointOrigin:
        return cls(
            **{name: fields[name] for name in ("store", "manifest", "query_id", "batch_id", "operator")},
            operators=tuple(fields["operators"]),
            states=tuple((name, index(state_id)) for name, state_id in fields["states"]),
            claim=_is_claimed(fields),
        )

    def broken_rule(self) -> str | None:
        names, ids = {name for name, _ in self.states}, {state_id for _, state_id in self.states}
        if len(names) != len(self.states) or len(ids) != len(self.states):
            return "expected each state once, under an id of its own"
        return None


Origin: TypeAlias = VersionsOrigin | SavepointOrigin


def origin_of(fields: dict[str, Any], where: str) -> Origin:
    """Reads an origin back; KeyError or TypeError for what is none, Corrupt for one that contradicts itself."""
    kind: type[Origin] = SavepointOrigin if "manifest" in fields else VersionsOrigin
    origin = kind.from_fields(fields)
    broken = origin.broken_rule()
    if origin.operator not in origin.operators:
        found = ", ".join(origin.operators)
        broken = f"expected {origin.operator!r} among the operators that had state, found {found}"
    if broken:
        raise Corrupt(f"{where}: the origin, {origin.where}, contradicts itself: {broken}")
    return origin


def _claimed(claim: bool) -> dict[str, bool]:
    """Said where it is so: what claims nothing stays as it always was."""
    return {"claim": True} if claim else {}


def _is_claimed(fields: dict[str, Any]) -> bool:
    claim = fields.get("claim", False)
    if not isinstance(claim, bool):
        raise TypeError(f"expected true or false as claim, found {claim!r}")
    return claim


def _time(fields: dict[str, Any]) -> BatchTime | None:
    if "time" not in fields:
        return None
    time = fields["time"]
    if not isinstance(time, list) or len(time) != 2:
        raise TypeError(f"expected a batch's timestamp and watermark, found {time!r}")
    timestamp_ms, watermark_ms = time
    return BatchTime(index(timestamp_ms), None if watermark_ms is None else index(watermark_ms))


def left_behind(fields: dict[str, Any]) -> tuple[int, ...]:
    """Ids of states that are left behind, as version 3 of an operator's record said it."""
    return tuple(map(index, fields.get("dropped", ())))


def key_groups_of(slot: int, slots: int, max_parallelism: int) -> tuple[int, int]:
    """The first key group of a slot, and the first after it. docs/formats/key.md"""
    first = first_key_group(slot, max_parallelism, slots)
    end = max_parallelism if slot + 1 == slots else first_key_group(slot + 1, max_parallelism, slots)
    return first, end


def slots_of(first: int, end: int, slots: int, max_parallelism: int) -> list[int]:
    """Of ``slots``, those that have key groups from ``first`` up to, but not including, ``end``."""
    return list(range(slot_of(first, max_parallelism, slots), slot_of(end - 1, max_parallelism, slots) + 1))
