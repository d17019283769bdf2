"""A copy of a processor for each slot and batch: what one leaves in it is not the next one's."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any, TypeVar

from holdfast.errors import InvalidRequest
from holdfast.state.processor import Processor

Kind = TypeVar("Kind", bound=Processor)


class _Memo(dict[int, Any]):
    """What ``deepcopy`` made so far, by the id of what it was made of. One for all attributes: ``deepcopy`` keeps alive
    what it has ids of, by this dictionary's own id, which must not become another object's.
    """

    def __init__(self, processor: Processor, fresh: Processor) -> None:
        super().__init__({id(processor): fresh})

    def copied(self, value: Any) -> Any:
        """A copy of a value; what fails leaves no halves that others would get."""
        before = len(self)
        try:
            return copy.deepcopy(value, self)
        except BaseException:
            for added in list(self)[before:]:
                del self[added]
            raise


def fresh_copy(processor: Kind) -> Kind:
    """A processor that shares nothing with this one but what cannot be copied where it is: an attribute that has a
    module in it, or a broadcast variable, of which Spark's workers may read the value and no more.

    Raises
    ------
    InvalidRequest
        An attribute that can be copied, and fails to be.
    """
    fresh = object.__new__(type(processor))
    memo = _Memo(processor, fresh)
    for name, value in vars(processor).items():
        fresh.__dict__[name] = _attribute(processor, name, value, memo)
    for slot in _slots(type(processor)):
        try:
            value = slot.__get__(processor)
        except AttributeError:  # it was never set
            continue
        slot.__set__(fresh, _attribute(processor, slot.__name__, value, memo))
    return fresh


def _attribute(processor: Processor, name: str, value: Any, memo: _Memo) -> Any:
    try:
        return memo.copied(value)
    except Exception as error:
        if _says_uncopyable(error):
            return value
        raise InvalidRequest(
            f"{type(processor).__name__}.{name}: each slot and batch has its own copy of the processor, and a copy of "
            f"this {type(value).__name__} fails ({type(error).__name__}: {error}); make it in open(), or give its "
            "class a __deepcopy__"
        ) from error


def _says_uncopyable(error: Exception) -> bool:
    """Of locks, files, modules; and of what may not be pickled, as Spark's broadcast variables."""
    if isinstance(error, (TypeError, RuntimeError, copy.Error)):
        return not isinstance(error, RecursionError)
    return any(one.__name__ == "PickleError" for one in type(error).__mro__)


def _slots(cls: type) -> Iterator[MemberDescriptorType]:
    """What ``__slots__`` of a class and its bases has made."""
    for base in cls.__mro__:
        yield from (member for member in vars(base).values() if isinstance(member, MemberDescriptorType))
