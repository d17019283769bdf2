"""What all live states share: their name, and that a change which failed is never forgotten.

A state may have done a part of what failed, so its batch must not be prepared, whatever the processor makes of the
error: the first one is kept, and raised again before anything of the batch leaves the processor's hands. A read changes
nothing: one that is refused (InvalidRequest) leaves the batch as good as it was. One that fails otherwise does not, as
the processor goes on without knowing its state. Any exception counts: memory that is refused, a recursion that is too
deep, what a signal handler raises; they strike amid any change.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from holdfast.errors import HoldfastError, InvalidRequest, Unavailable

_CALLED = re.compile(r"(?P<state>\w+)\.(?P<name>\w+)\(\) (?P<wrong>takes|missing) .*positional argument")

Method = TypeVar("Method", bound=Callable[..., Any])
Failure = TypeVar("Failure", bound=BaseException)


class NoCurrentKey(InvalidRequest):
    """A state of keys was used while there was none: nothing of any key is half done."""


class LiveState:
    """A state while its processor runs. ``failure``: the first error of an operation, once there was one.

    ``_elsewhere``: what a state of this kind is asked by in the other kind of processor, and what to call here.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    _of: ClassVar[tuple[str, str]] = ("", "")  # this kind of processor, and the other
    _not_for_users: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None

    def check(self) -> None:
        """Raises what an operation of this state raised before, if any."""
        error = self.failure
        if error is None:
            return
        kind: type[Exception] = type(error) if isinstance(error, HoldfastError) else InvalidRequest
        advice = "Check values before they go into a state."
        if isinstance(error, (MemoryError, RecursionError, Unavailable)) or not isinstance(error, Exception):
            kind = MemoryError if isinstance(error, MemoryError) else kind
            advice = "No value was wrong: let such an error pass."
        raise kind(
            f"state {self.name!r}: an operation failed, and the processor went on; nothing of this batch is kept. "
            f"{advice} The error was {type(error).__name__}: {error}"
        ) from error

    def failed(self, error: Failure) -> Failure:
        """Notes the error of an operation; the caller raises it."""
        if self.failure is None and not isinstance(error, NoCurrentKey):
            self.failure = error
        return error

    def _ask(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the core for what it only reads; its errors know state ids only."""
        try:
            return read(*arguments)
        except InvalidRequest as refusal:
            raise InvalidRequest(f"state {self.name!r}: {refusal}") from None
        except HoldfastError as error:
            raise self.failed(type(error)(f"state {self.name!r}: {error}")) from None
        except BaseException as error:
            self.failed(error)
            raise

    def _run(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the core for a change; its errors know state ids only."""
        try:
            return operation(*arguments)
        except HoldfastError as error:
            raise self.failed(type(error)(f"state {self.name!r}: {error}")) from None
        except BaseException as error:
            self.failed(error)
            raise

    if not TYPE_CHECKING:  # a checker shall find a wrong name by itself

        def __getattr__(self, name: str) -> Any:
            """Only for names that there are not: says what this kind of processor calls it, or what there is."""
            here = self._elsewhere.get(name)
            mine, other = self._of
            there_is = f"; it has {', '.join(_methods(type(self)))}"
            hint = there_is if here is None else f": {name} is a {other}'s; a {mine} calls {here}"
            # Not self.name: whoever copies a state asks before there is one.
            raise AttributeError(f"state {self.__dict__.get('name')!r} has no {name!r}{hint}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def other_forms_arguments(error: Exception) -> str | None:
    """A hint where a method was called as a state of the other kind of processor has it, known by Python's own text;
    None for any other error. So the calls themselves, which are many, cost nothing more.
    """
    called = _CALLED.match(str(error)) if isinstance(error, TypeError) else None
    kind = _kinds(LiveState).get(called["state"]) if called is not None else None
    if called is not None and (kind, called["wrong"]) == ("KeyedProcessor", "takes"):
        return f"In a KeyedProcessor a state is the current key's: {called['name']} is given no keys"
    if called is not None and (kind, called["wrong"]) == ("BatchProcessor", "missing"):
        return (
            f"In a BatchProcessor a state is of many keys: {called['name']} is given them first, by the batch at hand"
        )
    return None


def _kinds(above: type[LiveState]) -> dict[str, str]:
    """The kind of processor that each class of states below this one is for."""
    kinds = {}
    for below in above.__subclasses__():
        kinds.update({below.__name__: below._of[0], **_kinds(below)})
    return kinds


def _methods(kind: type[LiveState]) -> list[str]:
    """What a user calls of a state: no more than that kind has above what all have."""
    every = next(above for above in kind.__mro__ if LiveState in above.__bases__)
    own = set(dir(kind)) - set(dir(every)) - kind._not_for_users
    return sorted(name for name in own if not name.startswith("_") and callable(getattr(kind, name)))


def operation(method: Method) -> Method:
    """A method that changes a state: its errors are all noted."""

    @functools.wraps(method)
    def noting(self: LiveState, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except BaseException as error:
            self.failed(error)
            raise

    return noting  # type: ignore[return-value]


def reading(method: Method) -> Method:
    """A method that only reads: its errors are all noted but that it is refused."""

    @functools.wraps(method)
    def noting(self: LiveState, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except InvalidRequest:
            raise
        except BaseException as error:
            self.failed(error)
            raise

    return noting  # type: ignore[return-value]
