"""What a user writes for an AggregatingState in Python."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Accumulator = TypeVar("Accumulator")


class AggregateFunction(Generic[Accumulator]):
    """An aggregate by its methods, as Flink's.
    Deriving from this class is not required: any class with ``create``, ``add`` and ``result`` will do.

    Accumulators are kept as Arrow values of the declared ``accumulator`` type, never pickled,
    so they are what Arrow makes of that type: numbers, text, bytes, lists, and dicts for structs.
    What ``create`` and ``add`` return becomes that at once, also within a batch: a tuple for a struct comes back as a
    dict, a set for a list as a list, a ``float32`` rounded.
    One object serves many keys: keep nothing in ``self``.
    """

    def create(self) -> Accumulator:
        """The accumulator of no values."""
        raise NotImplementedError

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        """The accumulator with one more value, which is never None.

        May change ``accumulator`` in place and return it.
        """
        raise NotImplementedError

    def merge(self, a: Accumulator, b: Accumulator) -> Accumulator:
        """The accumulator of the values of both. Not asked for: a state adds value by value, so this may be left out.

        It has its place in Flink where session windows meet; a class that comes from there keeps it.
        """
        raise NotImplementedError

    def result(self, accumulator: Accumulator) -> Any:
        """The result for the values so far, of the declared ``result`` type."""
        raise NotImplementedError


#: That a class must have. Nothing here makes one accumulator of two.
AGGREGATE_METHODS = ("create", "add", "result")
