"""``format("holdfast-state")``: the data source that Spark looks up by name. Reads a state as it was after one batch,
a task a slot. The batch is settled when Spark plans the query; each task opens the checkpoint by itself, read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from holdfast.checkpoint.saved_operator import columns_of
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.inspect.checkpoint import Checkpoint
from holdfast.inspect.versions import state_of
from holdfast.source.state.columns import as_spark_has_it, table_schema
from holdfast.spark.worker_process import prepare_worker_process
from holdfast.spark_files.logs import committed_batch, committed_batches
from holdfast.spark_files.state import unreadable
from holdfast.storage import open_checkpoint

FORMAT = "holdfast-state"
_OPTIONS = ("checkpoint", "operator", "state", "batch", "folder", "columns", "pushdown")
#: Comparisons that Arrow and Spark make alike, by the name of Spark's filter. Spark before 4.1 pushes none.
_COMPARED = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


@dataclass(frozen=True)
class StateOptions:
    """What is read."""

    checkpoint: str
    operator: str
    state: str
    batch: int | None
    folder: str | None
    columns: tuple[str, ...] | None
    pushdown: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StateOptions:
        """From the options of a reader; InvalidRequest for one that is missing, unknown or no number."""
        found = {name.lower(): value for name, value in given.items()}
        unknown = sorted(found.keys() - set(_OPTIONS))
        missing = [name for name in ("checkpoint", "operator", "state") if not found.get(name)]
        if unknown or missing:
            what = f"unknown option {unknown[0]!r}" if unknown else f"option {missing[0]!r} is missing"
            raise InvalidRequest(f"format({FORMAT!r}): {what}; there are {', '.join(_OPTIONS)}")
        batch = found.get("batch")
        if batch is not None and not (batch.isascii() and batch.isdecimal()):
            raise InvalidRequest(f"format({FORMAT!r}): batch is the number of a batch, found {batch!r}")
        columns = tuple(name.strip() for name in found["columns"].split(",")) if found.get("columns") else None
        number = None if batch is None else int(batch)
        pushdown = found.get("pushdown", "false").strip().lower()
        if pushdown not in ("true", "false"):
            raise InvalidRequest(f"format({FORMAT!r}): pushdown is true or false, found {pushdown!r}")
        names = (found["checkpoint"], found["operator"], found["state"])
        return cls(*names, number, found.get("folder"), columns, pushdown == "true")

    def open(self) -> Checkpoint:
        """The checkpoint; InvalidRequest where only Spark can read its handles, which no task can ask."""
        store = open_checkpoint(self.checkpoint)
        batches = committed_batches(store)
        batch = self.batch if self.batch in batches else batches[-1] if batches else None
        reason = None if batch is None else unreadable(committed_batch(store, batch).conf)
        if reason is not None:
            raise InvalidRequest(
                f"format({FORMAT!r}) reads state under Spark's default provider, and here {reason}: read it with "
                "hf.Checkpoint(…, spark=spark)"
            )
        return Checkpoint(self.checkpoint, state=self.folder)

    def columns_of(self, opened: Checkpoint) -> pa.Schema:
        """The state's columns, those that are wanted."""
        return opened.read(self.operator, self.state, batch_id=self.batch, slots=(), columns=self.columns).schema


class SlotPartition(InputPartition):
    """One slot at the end of one batch; None: a broadcast state, which all slots have alike."""

    def __init__(self, batch_id: int, slot: int | None) -> None:
        super().__init__((batch_id, slot))


class StateReader(DataSourceReader):
    """Behind ``spark.read``. ``schema``: the columns that Spark goes by."""

    def __init__(self, options: StateOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pushed: list[tuple[str, str, Any]] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Spark: a task a slot."""
        options = self.options
        with options.open() as opened:
            kind = state_of(opened.record(options.operator), options.state).kind
            found = opened.at(options.batch)
            slots = sorted(found.handles.get(options.operator, {}))
        batch_id = found.batch.batch_id
        if kind == "broadcast":
            return [SlotPartition(batch_id, None)]
        return [SlotPartition(batch_id, slot) for slot in slots] or [SlotPartition(batch_id, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark, in a task: the rows of a slot."""
        prepare_worker_process()
        batch_id, slot = partition.value
        options = self.options
        with options.open() as opened:
            record = opened.record(options.operator)
            expiry = columns_of(record, state_of(record, options.state)).names.get("expiry")
            rows = opened.read(
                options.operator,
                options.state,
                batch_id=batch_id,
                slots=None if slot is None else [slot],
                columns=options.columns,
                filter=_condition(record.key_schema, self.pushed),
            )
            schema, found = table_schema(rows.schema)
            if found != self.schema:  # Spark would take fields of structs by their places
                raise Incompatible(
                    f"state {options.state!r} of operator {options.operator!r}: expected {self.schema.simpleString()}, "
                    f"found {found.simpleString()}: a new program has changed its types since Spark planned to read "
                    "it; load it anew"
                )
            for batch in rows:
                yield as_spark_has_it(batch, schema, expiry)


class PushedStateReader(StateReader):
    """Behind ``spark.read`` with the option pushdown. Apart, since Spark refuses to plan a reader that takes filters
    unless ``spark.sql.python.filterPushdown.enabled`` is set, which it is not by default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Spark, from 4.1 on: takes comparisons of key columns, and gives the others back."""
        with self.options.open() as opened:
            keys = opened.record(self.options.operator).key_schema
        for one in filters:
            name = type(one).__name__
            path: tuple[str, ...] = getattr(one, "attribute", ())
            if name in _COMPARED and len(path) == 1 and path[0] in keys.names and _is_exact(keys.field(path[0]).type):
                self.pushed.append((name, path[0], one.value))
            else:
                yield one


class StateDataSource(DataSource):
    """Reads a state as a table. docs/guide/checkpoints.md has the options."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Spark: the columns."""
        options = StateOptions.parse(self.options)
        with options.open() as opened:
            return table_schema(options.columns_of(opened))[1]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark: for ``spark.read``."""
        fixed = self.schema()
        if schema != fixed:
            raise InvalidRequest(
                f"A state has fixed columns, {fixed.simpleString()}; found {schema.simpleString()}. Remove "
                "schema(...), or load it anew where a new program has changed the state's types since load()"
            )
        options = StateOptions.parse(self.options)
        return PushedStateReader(options, fixed) if options.pushdown else StateReader(options, fixed)


def _is_exact(kind: pa.DataType) -> bool:
    """Whether Spark and Arrow order values of a type alike, so that Spark need not compare again."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind))


def _condition(keys: pa.Schema, pushed: Sequence[tuple[str, str, Any]]) -> pc.Expression | None:
    wanted: pc.Expression | None = None
    for name, column, value in pushed:
        one = _comparison(name, pc.field(column), keys.field(column).type, value)
        wanted = one if wanted is None else wanted & one
    return wanted


def _comparison(name: str, field: pc.Expression, kind: pa.DataType, value: Any) -> pc.Expression:
    if name == "In":
        return field.isin(pa.array([one for one in value if one is not None], kind))
    scalar = pa.scalar(value, kind)
    compared = {
        "EqualTo": field == scalar,
        "GreaterThan": field > scalar,
        "GreaterThanOrEqual": field >= scalar,
        "LessThan": field < scalar,
        "LessThanOrEqual": field <= scalar,
    }
    return compared[name]
