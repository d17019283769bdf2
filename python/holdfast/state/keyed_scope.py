"""Which key is current, and what its states have in common: they read and write for a whole chunk of keys at once.

A chunk is a run of distinct keys. The first read of a state in a chunk fetches that state for all keys that are still
to come; writes are gathered and go to the core together when the chunk ends. Keys know nothing of each other, so
neither can be noticed. Owner: the one thread that runs the processor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.state.columns import CoreKeys

UNREAD: Final[Any] = object()  # in the place of a value that was not fetched yet
NO_KEY: Final = -1


class KeyScope:
    """The current key, and the chunk that it is of."""

    def __init__(self) -> None:
        self.index = NO_KEY
        self.keys: CoreKeys = None
        self.moved_bytes = 0  # read or written by states in this chunk
        self._states: list[KeyedState] = []

    def enlist(self, state: KeyedState) -> None:
        """Has a state told where chunks begin and end."""
        self._states.append(state)

    def begin(self, keys: CoreKeys) -> None:
        """Starts a chunk of distinct keys."""
        self.keys = keys
        self.moved_bytes = 0
        for state in self._states:
            state.begin(len(keys))

    def end(self) -> None:
        """Writes what the chunk's keys changed."""
        self.index = NO_KEY
        for state in self._states:
            state.flush()

    def some(self, indices: list[int]) -> CoreKeys:
        """The keys at these positions, which are in order and all different."""
        return self.keys if len(indices) == len(self.keys) else self.keys.take(pa.array(indices, pa.int32()))

    def several(self, indices: list[int]) -> CoreKeys:
        """The keys at these positions, any number of times."""
        return self.keys.take(pa.array(indices, pa.int32()))

    def from_current(self) -> CoreKeys:
        """The current key and those still to come."""
        return self.keys.slice(self.index)

    def current(self) -> CoreKeys:
        """The current key."""
        return self.keys.slice(self.index, 1)


class KeyedState(ABC):
    """What all states of a KeyedProcessor share.

    Values are by copy: changing what was read or written changes no state.
    """

    def __init__(self, name: str, scope: KeyScope) -> None:
        self.name = name
        self._scope = scope
        scope.enlist(self)

    @abstractmethod
    def begin(self, size: int) -> None:
        """A chunk of ``size`` keys begins. For the driver, as is :meth:`flush`."""

    @abstractmethod
    def flush(self) -> None:
        """The chunk ends: what was changed goes to the core."""

    def _index(self) -> int:
        """Position of the current key in its chunk."""
        index = self._scope.index
        if index < 0:
            raise InvalidRequest(
                f"state {self.name!r} used while no key is current: states of a KeyedProcessor belong to the key at "
                "hand; use them in process(key, rows, ctx)"
            )
        return index

    def _run(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the core; its errors know state ids only."""
        try:
            return operation(*arguments)
        except HoldfastError as error:
            raise type(error)(f"state {self.name!r}: {error}") from None

    def _read(self, operation: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Calls the core for an array, and has it as Python values."""
        array = pa.array(self._run(operation, *arguments))
        self._scope.moved_bytes += array.nbytes
        values: list[Any] = array.to_pylist()
        return values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
