"""What a user writes for an AggregatingState in Python."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Accumulator = TypeVar("Accumulator")


class AggregateFunction(Generic[Accumulator]):
    """An aggregate by four methods, as Flink's.
    Deriving from this class is not required: any class with the four will do.

    Accumulators are kept as Arrow values of the declared ``accumulator`` type, never pickled,
    so they are what Arrow makes of that type: numbers, text, bytes, lists, and dicts for structs.
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
        """The accumulator of the values of both.

        Asked for where two accumulators become one, as when session windows meet.
        """
        raise NotImplementedError

    def result(self, accumulator: Accumulator) -> Any:
        """The result for the values so far, of the declared ``result`` type."""
        raise NotImplementedError


AGGREGATE_METHODS = ("create", "add", "merge", "result")
