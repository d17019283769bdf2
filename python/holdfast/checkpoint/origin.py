"""Origin: where an operator's generation began, if not empty: versions of an earlier generation's slots. RFC 15.

Immutable; stands in the operator's record (docs/formats/operator.md) from the generation's first task on. Slots have
numbers within their generation; those of two generations are compared by their ranges of key groups alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast._core import first_key_group, slot_of
from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.names import operator_prefix
from holdfast.errors import Corrupt


@dataclass(frozen=True)
class Origin:
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
    """

    store: str
    query_id: str
    operator: str
    batch_id: int
    handles: tuple[Handle | None, ...]
    operators: tuple[str, ...]

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

    @property
    def where(self) -> str:
        """For messages."""
        return f"operator {self.operator!r} of query {self.query_id} at batch {self.batch_id}, in {self.store}"

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
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any], where: str) -> Origin:
        """Reads an origin back; KeyError or TypeError for what is none, Corrupt for one that contradicts itself."""
        handles = tuple(Handle.from_text(text) if text is not None else None for text in fields["handles"])
        origin = cls(
            store=fields["store"],
            query_id=fields["query_id"],
            operator=fields["operator"],
            batch_id=fields["batch_id"],
            handles=handles,
            operators=tuple(fields["operators"]),
        )
        broken = broken_rule(origin)
        if broken:
            raise Corrupt(f"{where}: the origin, {origin.where}, contradicts itself: {broken}")
        return origin


def broken_rule(origin: Origin) -> str | None:
    """The first rule that ``origin`` breaks, or None. Checked on writing and on reading."""
    if origin.operator not in origin.operators:
        return f"expected {origin.operator!r} among the operators that had state, found {', '.join(origin.operators)}"
    if not any(origin.handles):
        return "expected a version of at least one slot, found none"
    for slot, handle in enumerate(origin.handles):
        if handle is None:
            continue
        if (handle.operator, handle.slot) != (origin.operator, slot):
            return f"expected a version of slot {slot}, found that of {handle.where}"
        if handle.batch_id > origin.batch_id:
            return f"expected versions up to batch {origin.batch_id}, found that of batch {handle.batch_id}"
    return None


def key_groups_of(slot: int, slots: int, max_parallelism: int) -> tuple[int, int]:
    """The first key group of a slot, and the first after it. docs/formats/key.md"""
    first = first_key_group(slot, max_parallelism, slots)
    end = max_parallelism if slot + 1 == slots else first_key_group(slot + 1, max_parallelism, slots)
    return first, end


def slots_of(first: int, end: int, slots: int, max_parallelism: int) -> list[int]:
    """Of ``slots``, those that have key groups from ``first`` up to, but not including, ``end``."""
    return list(range(slot_of(first, max_parallelism, slots), slot_of(end - 1, max_parallelism, slots) + 1))
