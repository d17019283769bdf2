"""Which rows of a query go to which sinks: all of them, or each output of an operator to its own.

Built on the driver, used in the sinks' tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from holdfast.commit.sink import Sink
from holdfast.errors import InvalidRequest
from holdfast.spark import schemas
from holdfast.spark.side_outputs import has_all_outputs, output_columns
from holdfast.state import MAIN, SideOutput

_CALL = "write_exactly_once"


@dataclass(frozen=True)
class Route:
    """Rows, and the sinks that take them.

    Attributes
    ----------
    output
        The struct column that has the rows; None: they are the DataFrame's own.
    schema
        Of the rows as the sinks are given them.
    """

    output: str | None
    schema: pa.Schema
    sinks: tuple[Sink, ...]

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch of the DataFrame that go this way."""
        if self.output is None:
            return batch
        column = batch.column(self.output)
        held = column.drop_null()
        return pa.RecordBatch.from_arrays(held.flatten(), schema=self.schema)


def plan_routes(schema: spark.StructType, given: Sequence[Any]) -> tuple[Route, ...]:
    """The routes of a query: `given` is sinks, or one mapping from outputs to sinks.

    Raises
    ------
    InvalidRequest
        No sink, two of one name, or outputs that have nowhere to go or are not there.
    """
    outputs = output_columns(schema)
    mapping = given[0] if len(given) == 1 and isinstance(given[0], Mapping) else None
    if mapping is None:
        if outputs:
            raise InvalidRequest(
                f"{_CALL}: the DataFrame has the outputs {', '.join(outputs)}, and a sink takes rows of one. Give a "
                "mapping: {None: sink, late: sink}, where None is the main output and late an hf.SideOutput; or take "
                "one of them by hf.select_output"
            )
        routes: tuple[Route, ...] = (Route(None, schemas.sink_schema(schema, _CALL), _sinks_of(given)),)
    else:
        routes = _by_output(schema, outputs, mapping)
    _check_names([sink for route in routes for sink in route.sinks])
    return routes


def _by_output(schema: spark.StructType, outputs: list[str], mapping: Mapping[Any, Any]) -> tuple[Route, ...]:
    if not has_all_outputs(schema):
        raise InvalidRequest(
            f"{_CALL}: sinks are given by output, but the DataFrame has the columns {', '.join(schema.names)}; "
            "expected what an operator with side_outputs= or late= gives, as it gives it"
        )
    sinks: dict[str, tuple[Sink, ...]] = {}
    for output, given in mapping.items():
        if output is not None and not isinstance(output, SideOutput):
            raise InvalidRequest(f"{_CALL}: sinks are given for {output!r}; expected an hf.SideOutput, or None")
        name = MAIN if output is None else output.name
        if name not in outputs:
            raise InvalidRequest(f"{_CALL}: {name!r} is none of the DataFrame's outputs {', '.join(outputs)}")
        sinks[name] = _sinks_of(given if isinstance(given, Iterable) else (given,))
    lost = [name for name in outputs if name not in sinks]
    if lost:
        raise InvalidRequest(
            f"{_CALL}: rows of output {', '.join(map(repr, lost))} have no sink and would be lost; "
            "give one, or () if that is meant"
        )
    routes = []
    for field in schema.fields:
        assert isinstance(field.dataType, spark.StructType)  # it is marked as an output
        rows = schemas.sink_schema(field.dataType, f"{_CALL}, output {field.name!r}")
        routes.append(Route(field.name, rows, sinks[field.name]))
    return tuple(routes)


def _sinks_of(given: Iterable[Any]) -> tuple[Sink, ...]:
    sinks = tuple(given)
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise InvalidRequest(f"{_CALL}: {sink!r} is no sink (see holdfast.commit.sink)")
    return sinks


def _check_names(sinks: Sequence[Sink]) -> None:
    if not sinks:
        raise InvalidRequest(f"{_CALL}: no sink is given; hf.FileSink and hf.KafkaSink are sinks")
    names = [sink.name for sink in sinks]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidRequest(f"{_CALL}: two sinks are named {twins[0]!r}; give each its own name=")
