"""What a processor says of states that were declared before and are no more, or have another name: without it a restart
is refused, since a line that is missing may be a mistake. docs/rfcs/0017
"""

from __future__ import annotations

from typing import Any, TypeVar, cast, overload

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.state.declarations import StateDeclaration, declared_in
from holdfast.state.fields import FieldMark, renamed_field
from holdfast.state.processor import Processor

Declared = TypeVar("Declared", bound=StateDeclaration[Any, Any])


class DroppedState:
    """In the place of a declaration: the state of this name is not needed any more, with all that it holds.

    ``seen = hf.DroppedState()``

    From the first batch on it is gone, for good, and neither its name nor what it held can be had again in this
    checkpoint. The line may stay, or go at a later restart. Where there is no such state it says nothing.
    """

    def __init__(self) -> None:
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, processor: Any, owner: type | None = None) -> DroppedState:
        if processor is None:
            return self
        raise InvalidRequest(f"state {self._name!r} of {type(processor).__name__} is dropped: there is nothing to call")

    def __repr__(self) -> str:
        return "DroppedState()"


@overload
def renamed_from(name: str, state: Declared) -> Declared: ...
@overload
def renamed_from(name: str, state: pa.Field) -> pa.Field: ...
def renamed_from(name: str, state: Declared | pa.Field) -> Declared | pa.Field:
    """A state that was declared under another name, or a field of a struct in its values, goes on with what it holds.

    ``total = hf.renamed_from("amount", hf.ReducingState(pa.int64(), "sum"))``,
    ``hf.ValueState(pa.struct([hf.renamed_from("zip", pa.field("postcode", pa.string()))]))``

    Parameters
    ----------
    name
        Its name in the program before. In a checkpoint that has run there must be such a state or field, or one of the
        new name, as there is when the line stays for later restarts. In a new checkpoint it says nothing.
    state
        The declaration, or the field. A state has the kind and function that it had; types may change as they may
        without another name.

    Returns
    -------
    StateDeclaration or pyarrow.Field
        The same.

    Raises
    ------
    InvalidRequest
        No name; neither a declaration nor a field.
    """
    is_field = isinstance(state, pa.Field)
    if not is_field and not isinstance(state, StateDeclaration):
        raise InvalidRequest(
            f"renamed_from({name!r}, …): expected a state such as hf.ValueState(…), or a pyarrow.field(…), "
            f"found {state!r}"
        )
    if not isinstance(name, str) or not (is_field or name.isidentifier()):
        raise InvalidRequest(f"renamed_from: name is {name!r}; expected that of the attribute in the program before")
    if is_field:
        return renamed_field(name, state)
    declaration = cast(Declared, state)
    declaration.earlier_name = name
    return declaration


def declared_field_marks(processor: Processor | type[Processor]) -> tuple[tuple[str, FieldMark], ...]:
    """What a processor says of fields of its states' values, each with the state's name."""
    states = declared_in(_class_of(processor))
    return tuple((name, mark) for name, state in states for mark in state.field_marks)


def declared_changes(
    processor: Processor | type[Processor],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The names of states that were dropped, and of those that were renamed: (now, before).

    Raises
    ------
    InvalidRequest
        A state is renamed from one that is declared, or dropped, or that another is renamed from.
    """
    own = _class_of(processor)
    dropped: dict[str, None] = {}
    for cls in reversed(own.__mro__):
        for name, value in vars(cls).items():
            if isinstance(value, DroppedState):
                dropped[name] = None
            else:
                dropped.pop(name, None)
    states = dict(declared_in(own))
    renamed = [(name, state.earlier_name) for name, state in states.items() if state.earlier_name is not None]
    for name, earlier in renamed:
        others = [other for other, before in renamed if before == earlier and other != name]
        found = "declared" if earlier in states else "dropped" if earlier in dropped else None
        if others or found is not None:
            raise InvalidRequest(
                f"{own.__name__}: state {name!r} is renamed from {earlier!r}, "
                f"{f'and so is {others[0]!r}' if others else f'which is {found} too'}; one state goes on from one"
            )
    return tuple(dropped), tuple(renamed)


def _class_of(processor: Processor | type[Processor]) -> type[Processor]:
    return processor if isinstance(processor, type) else type(processor)
