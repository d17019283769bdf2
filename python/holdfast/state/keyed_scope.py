"""Which key is current, and what its states have in common: they read and write for a whole chunk of keys at once.

A chunk is a run of distinct keys. A read of a state fetches that state for keys of the chunk that are still to come as
well: for few at first, for the more the more of them ask. Writes are gathered and go to the core together when the
chunk ends. Keys know nothing of each other, so neither can be noticed. Owner: the one thread that runs the processor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.state.casts import CONVERSION_ERRORS
from holdfast.state.columns import CoreKeys, used_without_key
from holdfast.state.live_state import LiveState, NoCurrentKey, reading
from holdfast.state.python_values import NotKept, arrow_of, keeper, python_of, refusal, shown

UNREAD: Final[Any] = object()  # in the place of a value that was not fetched yet
NO_KEY: Final = -1
CHUNK_KEYS_MAX = 4096
AHEAD_KEYS_MIN = 64  # with the first that asks: others may never do
AHEAD_GROWTH_MAX = 4
AHEAD_BYTES = 8 << 20  # in Arrow, as much as a chunk is meant to move
ARRAY_BYTES_MAX = (1 << 31) - 1  # of what is handed to the core at once


class TooMuch(InvalidRequest):
    """Several values that are kept each, and are more than one array holds."""


class KeyScope:
    """The current key, and the chunk that it is of."""

    def __init__(self) -> None:
        self.index = NO_KEY
        self.of_no_key = False  # rows of a broadcast input are at work
        self.keys: CoreKeys = None
        self.tuples: list[tuple[Any, ...]] = []  # the same keys in Python
        self.moved_bytes = 0  # read or written by states in this chunk
        self._states: list[KeyedState] = []

    def enlist(self, state: KeyedState) -> None:
        """Has a state told where chunks begin and end."""
        self._states.append(state)

    def begin(self, keys: CoreKeys, tuples: list[tuple[Any, ...]]) -> None:
        """Starts a chunk of distinct keys, in Arrow and in Python."""
        self.keys = keys
        self.tuples = tuples
        self.moved_bytes = 0
        for state in self._states:
            state.begin_reading_ahead()
            state.begin(len(keys))

    def end(self) -> None:
        """Writes what the chunk's keys changed, where all went well."""
        self.index = NO_KEY
        for state in self._states:
            state.check()
        for state in self._states:
            state.flush()

    def said_of(self, index: int) -> str:
        """For errors: which key it is; nothing where there is none."""
        key = self.tuples[index]
        return f"; key {key!r}" if key else ""

    def some(self, indices: list[int]) -> CoreKeys:
        """The keys at these positions, which are in order and all different."""
        return self.keys if len(indices) == len(self.keys) else self.keys.take(pa.array(indices, pa.int32()))

    def several(self, indices: list[int]) -> CoreKeys:
        """The keys at these positions, any number of times; TooMuch where that is more than one array holds."""
        try:
            return self.keys.take(pa.array(indices, pa.int32()))
        except CONVERSION_ERRORS as error:
            raise TooMuch(f"{len(indices)} times the keys of so many changes: {error}") from None

    def from_current(self, count: int) -> CoreKeys:
        """The current key and others still to come, so many together."""
        return self.keys.slice(self.index, count)

    def current(self) -> CoreKeys:
        """The current key."""
        return self.keys.slice(self.index, 1)


class KeyedState(LiveState, ABC):
    """What all states of a KeyedProcessor share.

    Values are by copy: changing what was read or written changes no state. What is buffered is what the declared type
    keeps (python_values.py), so a wrong value is told at the call, or, where only Arrow can tell, when the chunk ends.
    """

    _of = ("KeyedProcessor", "BatchProcessor")

    def __init__(self, name: str, scope: KeyScope) -> None:
        super().__init__(name)
        self._scope = scope
        #: False where reading is a write: of keys whose turn may never come, or that read nothing.
        self.reads_ahead = True
        self._ahead_max = AHEAD_KEYS_MIN  # keys whose values are read together
        self._ahead_fitting = CHUNK_KEYS_MAX  # going by the last read
        self._ahead_grows = False
        scope.enlist(self)

    def begin_reading_ahead(self) -> None:
        """The first read of a chunk is for as many keys as the last one before; who reads again is read more for."""
        self._ahead_grows = False

    @abstractmethod
    def begin(self, size: int) -> None:
        """A chunk of ``size`` keys begins. For the driver, as is :meth:`flush`."""

    @abstractmethod
    def flush(self) -> None:
        """The chunk ends: what was changed goes to the core. An :func:`operation`: what failed to go is nowhere."""

    def _index(self) -> int:
        """Position of the current key in its chunk."""
        index = self._scope.index
        if index < 0:
            if self._scope.of_no_key:
                raise self.failed(used_without_key(f"state {self.name!r}"))
            raise NoCurrentKey(
                f"state {self.name!r} used while no key is current: states of a KeyedProcessor belong to the key at "
                "hand; use them in process(key, rows, ctx)"
            )
        return index

    def _asked_several(self, values: Any, role: str) -> Iterable[Any]:
        """What a caller calls several values: anything but one text, which Python would take for its characters."""
        if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
            of_key = self._scope.said_of(self._index())
            error = f"state {self.name!r}{role}: expected several in a list, found {shown(values)}{of_key}"
            raise InvalidRequest(error)
        return values

    def _several(self, values: Any, role: str) -> Iterable[Any]:
        """The same, of values for a change."""
        try:
            return self._asked_several(values, role)
        except InvalidRequest as error:
            raise self.failed(error) from None

    @reading
    def _read_ahead(
        self, operation: Callable[..., Any], into: list[Any], each: Callable[[Any], Any] | None = None
    ) -> None:
        """Reads the current key, and where that changes nothing those to come, into their places, as ``each`` makes
        them.

        A read that is refused is tried for fewer keys, at last for the current one alone: values of several may be more
        than one array holds, or one of theirs be none that Python has.
        """
        index, moved_bytes = self._scope.index, self._scope.moved_bytes
        most = min(self._ahead_max * (AHEAD_GROWTH_MAX if self._ahead_grows else 1), self._ahead_fitting)
        self._ahead_grows = True
        count = min(len(self._scope.tuples) - index, most) if self.reads_ahead else 1
        while True:
            try:
                found = self._read(operation, self._scope.from_current(count))
                break
            except InvalidRequest:
                if count == 1:
                    raise
                self._ahead_grows = False
                count = most = count // 2
        fitting = count * AHEAD_BYTES // max(self._scope.moved_bytes - moved_bytes, 1)
        self._ahead_fitting = max(1, min(fitting, CHUNK_KEYS_MAX))
        self._ahead_max = min(most, self._ahead_fitting)
        into[index : index + count] = found if each is None else [each(one) for one in found]

    @reading
    def _read(self, operation: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Calls the core for an array, and has it as Python values."""
        array = pa.array(self._ask(operation, *arguments))
        self._scope.moved_bytes += array.nbytes
        return python_of(array, f"state {self.name!r}")

    def _in_parts(self, change: Callable[[int, int], None], count: int) -> None:
        """Has ``change(first, end)`` make so many changes, in their order, in as many parts as there have to be: values
        that are more than one array holds are handed to the core by halves. For an :func:`operation`.
        """
        parts = [(0, count)] if count else []
        while parts:
            first, end = parts.pop()
            try:
                change(first, end)
            except TooMuch as error:
                if end - first < 2:  # one change, which nobody divides
                    raise InvalidRequest(str(error)) from None
                middle = (first + end) // 2
                parts += [(middle, end), (first, middle)]

    def _asked_arrow(self, kept: Sequence[Any], type: pa.DataType, indices: Sequence[int], role: str) -> pa.Array:
        """Kept values of the keys at these positions as the core takes them; TooMuch where no array holds them."""
        try:
            array = arrow_of(kept, type, f"state {self.name!r}{role}")
        except InvalidRequest as error:
            keep = keeper(type)
            for index, value in zip(indices, kept):
                try:
                    keep(value)
                except NotKept as reason:
                    self._scope.index = index
                    raise self._refusal(value, type, reason, role) from None
            raise (TooMuch(str(error)) if len(kept) > 1 else error) from None
        if array.nbytes > ARRAY_BYTES_MAX and len(array) > 1:
            raise TooMuch(
                f"state {self.name!r}{role}: {array.nbytes} bytes at once; at most {ARRAY_BYTES_MAX} are taken"
            )
        self._scope.moved_bytes += array.nbytes
        return array

    def _refused(self, value: Any, type: pa.DataType, reason: object, role: str = "") -> Exception:
        """The error for a value that the current key's state does not keep."""
        return self.failed(self._refusal(value, type, reason, role))

    def _refusal(self, value: Any, type: pa.DataType, reason: object, role: str) -> InvalidRequest:
        of_key = self._scope.said_of(self._scope.index)
        return refusal(f"state {self.name!r}{role}", type, value, f"{reason}{of_key}")
