"""What a program says of fields of a state's values, within the Arrow type that it declares: which were renamed or
dropped, and what values from before a field have there. docs/rfcs/0017

It rides in the fields' metadata, and is taken out of the type as the state is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.arrow.types import is_list
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.state.casts import CONVERSION_ERRORS, storage_type
from holdfast.state.python_values import from_python

_RENAMED, _DROPPED, _DEFAULT = b"holdfast.renamed_from", b"holdfast.dropped", b"holdfast.default"
_MARKS = (_RENAMED, _DROPPED, _DEFAULT)

#: Path from the type down to a field, what is said of it, the name that it had, the row of its default.
FieldMark = tuple[tuple[str, ...], str, str, bytes]


def dropped_field(name: str) -> pa.Field:
    """In the place of a field of a struct: the field of this name is not needed any more.

    ``pa.struct([("total", pa.int64()), hf.dropped_field("comment")])``

    Values that are stored go on without it, for good, and nothing else may have its name in this checkpoint. The field
    may stand there at later restarts, or go. Where there is no such field it says nothing.

    Parameters
    ----------
    name
        Of the field in the program before.

    Returns
    -------
    pyarrow.Field
        For ``pyarrow.struct``; the values that the program sees do not have it.

    Raises
    ------
    InvalidRequest
        No name.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"dropped_field: name is {name!r}; expected that of the field in the program before")
    return pa.field(name, pa.null(), metadata={_DROPPED: b""})


def with_default(field: pa.Field, value: Any) -> pa.Field:
    """A field of a struct, with what values have there that were stored before the field was declared.

    ``pa.struct([("total", pa.int64()), hf.with_default(pa.field("visits", pa.int64(), nullable=False), 0)])``

    Without it they have null, which the field must then allow. It is recorded when the field is, and stays as it was
    then; the call may go from the program later. Values that the program writes are as it writes them.

    Parameters
    ----------
    field
        Of a type that is no struct, list or map.
    value
        Not None; of the field's type.

    Returns
    -------
    pyarrow.Field
        The same, for ``pyarrow.struct``.

    Raises
    ------
    InvalidRequest
        No field, a type that has no default, or a value that is none of it.
    """
    if not isinstance(field, pa.Field):
        raise InvalidRequest(f"with_default: expected a pyarrow.field(…), found {field!r}")
    plain = storage_type(field.type)
    if is_type.is_struct(plain) or is_type.is_map(plain) or is_list(plain) or is_type.is_null(plain):
        raise InvalidRequest(
            f"with_default: field {field.name!r} is a {field.type}, which has no default; "
            "let it be null in values from before it"
        )
    try:
        row = pa.array(_core.RowCodec(plain).encode(from_python([value], plain, "the value")))[0].as_py()
    except (HoldfastError, *CONVERSION_ERRORS) as error:
        raise InvalidRequest(f"with_default: {value!r} is no {field.type} for field {field.name!r}: {error}") from None
    if row is None:
        raise InvalidRequest(f"with_default: field {field.name!r}: the value is None; without a default it is null")
    return _marked(field, _DEFAULT, row)


def renamed_field(name: str, field: pa.Field) -> pa.Field:
    """The field, which was called otherwise; see `renamed_from`."""
    return _marked(field, _RENAMED, name.encode())


def without_marks(kind: pa.DataType, where: str) -> tuple[pa.DataType, list[FieldMark]]:
    """The type as values have it, and what the program says of its fields.

    Raises
    ------
    InvalidRequest
        A field is renamed from one that is there, or dropped, or that another is renamed from, or is there and dropped;
        or what is marked is no field of a struct.
    """
    marks: list[FieldMark] = []
    return _without(kind, (), marks, where), marks


def _without(kind: Any, path: tuple[str, ...], marks: list[FieldMark], where: str) -> Any:
    if not isinstance(kind, pa.DataType):
        return kind  # what is no type is told by whoever wants one
    if is_type.is_struct(kind):
        return _struct_without(kind, path, marks, where)
    if is_type.is_map(kind):
        key = _element(kind.key_field, (*path, "{}"), [], where)
        return _unless_same(kind, pa.map_(key, _element(kind.item_field, (*path, "{}"), marks, where)))
    if not is_list(kind):
        return kind
    element = _element(kind.value_field, (*path, "[]"), marks, where)
    if element.equals(kind.value_field, check_metadata=True):
        return kind
    if is_type.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.large_list(element) if is_type.is_large_list(kind) else pa.list_(element)


def _unless_same(kind: pa.DataType, made: pa.DataType) -> pa.DataType:
    return kind if made.equals(kind, check_metadata=True) else made


def _struct_without(kind: pa.DataType, path: tuple[str, ...], marks: list[FieldMark], where: str) -> pa.DataType:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    _check(fields, where)
    kept = []
    for field in fields:
        said = field.metadata or {}
        its_path = (*path, field.name)
        if _DROPPED in said:
            marks.append((its_path, "dropped", "", b""))
            continue
        if _RENAMED in said:
            marks.append((its_path, "renamed", said[_RENAMED].decode(), b""))
        if _DEFAULT in said:
            marks.append((its_path, "default", "", said[_DEFAULT]))
        rest = {key: value for key, value in said.items() if key not in _MARKS}
        inner = field.with_type(_without(field.type, its_path, marks, where))
        kept.append(inner.with_metadata(rest) if rest else inner.remove_metadata())
    return _unless_same(kind, pa.struct(kept))


def _element(field: pa.Field, path: tuple[str, ...], marks: list[FieldMark], where: str) -> pa.Field:
    if any(mark in (field.metadata or {}) for mark in _MARKS):
        raise InvalidRequest(f"{where}: {field.name!r} is an element of a list or map, not a field of a struct")
    before = len(marks)
    kept = field.with_type(_without(field.type, path, marks, where))
    return kept if len(marks) > before or kept != field else field


def _check(fields: Sequence[pa.Field], where: str) -> None:
    names = [field.name for field in fields]
    for field in fields:
        if _has(field, _DROPPED) and names.count(field.name) > 1:
            raise InvalidRequest(f"{where}: field {field.name!r} is dropped, and is there too; say one of both")
    renamed = {field.name: (field.metadata or {})[_RENAMED].decode() for field in fields if _has(field, _RENAMED)}
    for name, earlier in renamed.items():
        others = [other for other, before in renamed.items() if before == earlier and other != name]
        if others or earlier in names:
            dropped = any(field.name == earlier and _has(field, _DROPPED) for field in fields)
            found = f"and so is {others[0]!r}" if others else f"which is {'dropped' if dropped else 'declared'} too"
            raise InvalidRequest(
                f"{where}: field {name!r} is renamed from {earlier!r}, {found}; one field goes on from one"
            )


def _has(field: pa.Field, mark: bytes) -> bool:
    return mark in (field.metadata or {})


def _marked(field: pa.Field, mark: bytes, value: bytes) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), mark: value})
