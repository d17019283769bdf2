"""An operator's inputs on the driver: each DataFrame with its key, its watermark, and what becomes of its late rows,
checked before anything runs. Then each is packed, and what is packed is one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from holdfast.errors import InvalidRequest
from holdfast.spark import pack, schemas
from holdfast.spark.mapping import map_in_arrow
from holdfast.spark.plan import InputPlan
from holdfast.state import DROP, KEEP, Broadcast, Input, Late, SideOutput

_EVENT_TIME = pa.timestamp("us", "UTC")
_POLICIES = (KEEP, DROP)
_INPUTS_MAX = 16


@dataclass(frozen=True)
class InputFrame:
    """An input as the user declares it; ``name`` is None where it is the only one, ``key`` where it is broadcast."""

    name: str | None
    frame: DataFrame
    key: str | Sequence[str] | None
    watermark: tuple[str, str] | None
    late: Late | SideOutput

    def where(self, operator: str) -> str:
        """For errors."""
        return f"operator {operator!r}" + (f", input {self.name!r}" if self.name is not None else "")


def input_names(inputs: Iterable[Any], where: str) -> list[str]:
    """Names of several inputs, in their order; InvalidRequest where they are too many or no names."""
    names = list(inputs)
    if not 2 <= len(names) <= _INPUTS_MAX:
        raise InvalidRequest(f"{where}: {len(names)} inputs; expected 2 to {_INPUTS_MAX} (one is for hf.keyed)")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequest(
                f"{where}: an input is named {name!r}; "
                "expected a Python identifier, for the processor's method process_<name>"
            )
    return names


def broadcast_first(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs in the order in which a slot reads them: what holds for all keys comes before them."""
    return dict(sorted(inputs.items(), key=lambda named: not isinstance(named[1], Broadcast)))


def by_input(
    argument: str, given: Any, names: Sequence[str], where: str, broadcast: Collection[str] = ()
) -> dict[str, Any]:
    """What an argument says of each input that has a key: a mapping says it of each, anything else is for all. Those
    that are broadcast are told nothing.
    """
    keyed = [name for name in names if name not in broadcast]
    if not isinstance(given, Mapping):
        if argument == "watermark":
            raise InvalidRequest(f'{where}: watermark is {given!r}; expected {{"{keyed[0]}": (column, delay), …}}')
        return dict.fromkeys(keyed, given)
    strangers = [name for name in given if name not in keyed]
    if not strangers:
        return dict(given)
    marked = next((name for name in strangers if name in broadcast), None)
    if marked is not None:
        raise InvalidRequest(
            f"{where}: {argument}= names {marked!r}, which is broadcast: its rows have no key, and are never late; "
            f"leave it out there. Inputs with a key are {', '.join(keyed)}"
        )
    raise InvalidRequest(
        f"{where}: {argument}= names {', '.join(map(repr, strangers))}; the inputs are {', '.join(names)}"
    )


def check_watermark(watermark: object, where: str) -> None:
    """Raises InvalidRequest where this is no declaration of a watermark, nor None."""
    if watermark is not None and not (isinstance(watermark, tuple) and len(watermark) == 2):
        raise InvalidRequest(
            f'{where}: watermark is {watermark!r}; expected (column, delay), such as ("ts", "10 minutes")'
        )


def check_late(late: object, where: str) -> None:
    """Raises InvalidRequest where this says nothing about late rows."""
    if not isinstance(late, SideOutput) and late not in _POLICIES:
        raise InvalidRequest(f'{where}: late is {late!r}; expected "keep", "drop" or an hf.SideOutput')


def plan_input(declared: InputFrame, operator: str) -> InputPlan:
    """Checks an input against its DataFrame.

    Raises
    ------
    InvalidRequest
        It does not stream, lacks a column, has a watermark already, or has none and late rows are to be told; or it is
        broadcast and has one.
    """
    where = declared.where(operator)
    events = declared.frame
    if not events.isStreaming:
        raise InvalidRequest(
            f"{where}: the DataFrame does not stream, so there is no batch after which its state would be kept; read "
            "it with spark.readStream (a folder of files streams with trigger(availableNow=True))"
        )
    inherited = _inherited_watermarks(events.schema)
    if declared.watermark is not None and inherited:
        raise InvalidRequest(
            f"{where}: the DataFrame already has a watermark, which holds here too; leave out watermark="
        )
    what = f"operator {operator!r}, input" + (f" {declared.name!r}" if declared.name is not None else "")
    schema = schemas.arrow_schema(events.schema, what)
    if declared.key is None:
        if inherited:
            raise InvalidRequest(
                f"{where}: the DataFrame has a watermark, which would hold back the operator's whenever no rows come, "
                "and rows of a broadcast input are never late: take withWatermark away from it"
            )
        return InputPlan(Input(declared.name, (), broadcast=True), schema, (), None, None)
    if declared.watermark is not None:
        _check_event_time(schema, declared.watermark[0], where)
    columns = schemas.key_columns(declared.key, schema, operator)
    schemas.refuse_collations(columns, events.schema, operator)
    return InputPlan(
        met=Input(
            declared.name,
            columns,
            _event_time(declared, schema, inherited, where),
            declared.late,
            (declared.watermark[0],) if declared.watermark else _times(schema, inherited),
        ),
        schema=schema,
        key_columns=columns,
        reported_column=declared.watermark and declared.watermark[0],
        inherited_delay_ms=next(iter(inherited.values()), None),
    )


def common_key(inputs: Sequence[InputPlan], operator: str) -> pa.Schema:
    """The key of all inputs that have one, under the names of that which comes first by name: it is recorded, and
    inputs may change their order.

    Raises
    ------
    InvalidRequest
        Inputs whose keys have other types: equal values would be different keys.
    """
    keyed = [one for one in inputs if not one.met.broadcast]
    named, *others = sorted(keyed, key=lambda one: one.met.name or "")
    first = schemas.key_schema(named.schema, named.key_columns)
    for one in others:
        other = schemas.key_schema(one.schema, one.key_columns)
        if other.types != first.types:
            raise InvalidRequest(
                f"operator {operator!r}: the key of input {named.met.name!r} is {_text(first)}, that of input "
                f"{one.met.name!r} is {_text(other)}; expected the same types. Cast one of them"
            )
    return first


def packed_inputs(
    declared: Sequence[InputFrame],
    packed_by: Callable[[int], pack.PackPlan],
) -> DataFrame:
    """All inputs, packed, as one stream; ``packed_by`` gives the plan of each by its number.

    Spark's checkpoint knows a query's sources by their place in the plan, so the union goes by name: if it went by the
    order of inputs, a program that gives them in another order would read each from where the other was.
    """
    packed: DataFrame | None = None
    for number in sorted(range(len(declared)), key=lambda at: declared[at].name or ""):
        one = declared[number]
        rows = map_in_arrow(one.frame, pack.pack_function(packed_by(number)), pack.PACKED_SCHEMA)
        if one.watermark is not None:
            rows = rows.withWatermark("event_time", one.watermark[1])
        packed = rows if packed is None else packed.union(rows)
    assert packed is not None, "an operator has an input"
    return packed


def _event_time(declared: InputFrame, schema: pa.Schema, inherited: dict[str, int], where: str) -> str | None:
    """The column by which rows are late; None where that is not known, and nothing is asked of it."""
    named = [declared.watermark[0]] if declared.watermark is not None else list(inherited)
    if len(named) == 1 and schema.field(named[0]).type == _EVENT_TIME:
        return named[0]
    if declared.late == KEEP:
        return None
    if not named:
        found = "the DataFrame has no watermark: declare one by watermark= or withWatermark"
    elif len(named) > 1:
        found = f"the columns {', '.join(named)} have one each: keep one of them by withWatermark after a select"
    else:
        found = f"its column {no_event_time(schema, named[0])}"
    raise InvalidRequest(f"{where}: late rows are told by the watermark's column, and {found}, or leave out late=")


def _times(schema: pa.Schema, watermarked: Iterable[str]) -> tuple[str, ...]:
    return tuple(column for column in watermarked if pa.types.is_timestamp(schema.field(column).type))


def _check_event_time(schema: pa.Schema, column: str, where: str) -> None:
    if column not in schema.names:
        raise InvalidRequest(
            f"{where}: watermark column {column!r} is not in the input, which has {', '.join(schema.names)}"
        )
    if schema.field(column).type != _EVENT_TIME:
        raise InvalidRequest(f"{where}: watermark column {no_event_time(schema, column)}")


def no_event_time(schema: pa.Schema, column: str) -> str:
    """What a column is that cannot say when a row happened, and what to do."""
    found = schema.field(column).type
    if pa.types.is_timestamp(found) and found.tz is None:
        return (
            f"{column!r} is a timestamp without a zone (timestamp_ntz); cast it: "
            f'events.withColumn("{column}", events["{column}"].cast("timestamp"))'
        )
    return f"{column!r} is {found}; expected a timestamp"


def _inherited_watermarks(schema: spark.StructType) -> dict[str, int]:
    """By column, the delay of the watermark that the DataFrame already has: Spark keeps it in the column's metadata."""
    found = {}
    for field in schema.fields:
        delay_ms = (field.metadata or {}).get(schemas.WATERMARK_DELAY)
        if delay_ms is not None:
            found[field.name] = int(delay_ms)
    return found


def _text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
