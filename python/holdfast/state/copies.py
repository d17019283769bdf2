"""A copy of a processor for each slot and batch: what one leaves in it is not the next one's.

``copy.deepcopy`` takes functions as they are. One that was made in ``__init__`` and uses ``self`` would be at work on
the processor that was copied, so here such functions are made anew, around the copy.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, TypeVar

from holdfast.errors import InvalidRequest
from holdfast.state.processor import Processor

Kind = TypeVar("Kind", bound=Processor)


def _own_copier() -> Any:
    """The module ``copy`` once more, for its table of types: the one that everybody has stays as it is."""
    spec = importlib.util.find_spec("copy")
    assert spec is not None and spec.loader is not None
    copier: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copier)
    copier.Error = copy.Error  # of a class of the user's that says it cannot be copied
    copier._deepcopy_dispatch[FunctionType] = _copied_function
    copier._atomic_types = getattr(copier, "_atomic_types", frozenset()) - {FunctionType}  # since Python 3.14
    return copier


class _Memo(dict[int, Any]):
    """What ``deepcopy`` made so far, by the id of what it was made of. One for all attributes: ``deepcopy`` keeps alive
    what it has ids of, by this dictionary's own id, which must not become another object's.
    """

    def __init__(self, processor: Processor, fresh: Processor) -> None:
        super().__init__({id(processor): fresh})
        self._processor = processor
        self._apart: dict[int, Any] = {}  # what does not hold the processor, by its id

    def copied(self, value: Any) -> Any:
        """A copy of a value; what fails leaves no halves that others would get."""
        before = len(self)
        try:
            return _copier.deepcopy(value, self)
        except BaseException:
            for added in list(self)[before:]:
                del self[added]
            raise

    def around_fresh(self, value: Any) -> Any:
        """A copy of what holds the processor; other values are shared."""
        return _copier.deepcopy(value, self) if self.holds_processor(value) else value

    def holds_processor(self, value: Any) -> bool:
        """Whether a function, or what it is in, leads to the processor by what functions close over, by their defaults,
        by lists, dicts, tuples and sets that are not large.
        """
        waiting, seen = [value], dict[int, Any]()
        while waiting:
            one = waiting.pop()
            if one is self._processor:
                return True
            if id(one) not in seen and id(one) not in self._apart:
                seen[id(one)] = one
                waiting.extend(part for part in _parts(one) if type(part) not in _PLAIN)
        self._apart.update(seen)
        return False


def fresh_copy(processor: Kind) -> Kind:
    """A processor that shares nothing with this one but what cannot be copied where it is: an attribute that has a
    module in it, or a broadcast variable, of which Spark's workers may read the value and no more. Functions are
    shared, but those that use the processor itself.

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
    except MemoryError:
        raise
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


def _copied_function(function: FunctionType, memo: _Memo) -> FunctionType:
    """The function itself, or, where it uses the processor, one that uses the copy."""
    if not memo.holds_processor(function):
        return function
    cells = function.__closure__ or ()
    made = [cell for cell in cells if id(cell) not in memo and memo.holds_processor(cell)]
    memo.update({id(cell): CellType() for cell in made})  # other functions that share a cell share the new one
    closure = tuple(memo.get(id(cell), cell) for cell in cells)
    fresh = FunctionType(function.__code__, function.__globals__, function.__name__, None, closure)
    memo[id(function)] = fresh  # before what it closes over, in which it may be
    for cell in made:
        memo[id(cell)].cell_contents = memo.around_fresh(cell.cell_contents)
    defaults, named = function.__defaults__, function.__kwdefaults__
    fresh.__defaults__ = None if defaults is None else tuple(map(memo.around_fresh, defaults))
    fresh.__kwdefaults__ = named and {name: memo.around_fresh(value) for name, value in named.items()}
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(function, name):
            setattr(fresh, name, getattr(function, name))
    fresh.__dict__.update({name: memo.around_fresh(value) for name, value in vars(function).items()})
    return fresh


def _parts(value: Any) -> Iterable[Any]:
    """What a value is made of, as far as functions are looked for in it."""
    if isinstance(value, CellType):
        try:
            return (value.cell_contents,)
        except ValueError:  # of a variable that has no value yet
            return ()
    if isinstance(value, FunctionType):
        named = (value.__kwdefaults__ or {}).values()
        return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *named, *vars(value).values())
    if isinstance(value, MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if not isinstance(value, (dict, list, tuple, set, frozenset)) or len(value) > _SEARCHED_MAX:
        return ()
    return value.values() if isinstance(value, dict) else value


#: Entries of a list or the like in which functions are looked for: tables that a function closes over have more.
_SEARCHED_MAX = 1000
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_copier = _own_copier()
