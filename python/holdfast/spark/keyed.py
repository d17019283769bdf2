"""`hf.keyed`: a stateful operator on a streaming DataFrame. Runs on the driver, and starts nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from holdfast.checkpoint import FIRST_TIMERS_ID, OperatorRecord, StateRecord
from holdfast.clock import new_id
from holdfast.errors import InvalidRequest
from holdfast.settings import PREFIX, Settings
from holdfast.spark import output, pack, schemas, slots, tick_source, worker
from holdfast.spark.declared_operators import declare
from holdfast.spark.labels import spread_labels
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.ticks import check_timers, interval_ms, wake_function
from holdfast.spark.worker_process import check_worker_python, own_worker_pool
from holdfast.state import Processor, Timers, declared_states, declared_timers
from holdfast.storage import local_path

_NAME_BYTES_MAX = 128
_OUTPUT_MODES = ("append", "update")


def keyed(
    key: str | Sequence[str],
    processor: Processor,
    output_schema: str | spark.StructType,
    *,
    name: str,
    watermark: tuple[str, str] | None = None,
    output_mode: Literal["append", "update"] = "append",
    null_keys: bool = False,
    ticks: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """A stateful operator, for ``DataFrame.transform``.

    ``events.transform(hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals"))``

    Parameters
    ----------
    key
        Key column, or several.
    processor
        A BatchProcessor or KeyedProcessor. A copy of it runs in each slot and batch.
    output_schema
        Of the rows that the processor gives, as DDL text or a StructType.
    name
        Names the operator in the checkpoint, for its whole life; one of a kind in its query.
    watermark
        Event-time column (a timestamp) and how late its rows may be, as for ``withWatermark``: ``("ts", "10
        minutes")``. Rows behind the watermark are not dropped: the processor sees them, and ``ctx.watermark_ms``.
    output_mode
        "append" or "update"; must be the query's.
    null_keys
        Whether null is a key like any other. By default a null key is an error.
    ticks
        For a processor with timers: how long they may wait when no rows come. A duration (``"10 seconds"``) adds a
        source of ticks, which makes a batch that often in a query that has nothing else to do; ``"never"``: timers
        wait for the next batch that has rows. Spark fixes a query's sources at its first batch: what may get timers
        later can have ticks from the beginning, which are silent until then.
    settings
        Settings of this operator, over the session's ``spark.holdfast.*``: ``{"slots": 8, "memory.batch.max": "64
        MiB"}``. All of them: docs/guide/settings.md.

    Returns
    -------
    Callable[[DataFrame], DataFrame]
        Raises InvalidRequest when the DataFrame does not stream, lacks the columns, or settings are wrong. What
        contradicts the checkpoint is found when the query runs: the query fails with Incompatible.

    Raises
    ------
    InvalidRequest
        A wrong name, processor, key or mode; timers without ``ticks``.
    """
    _check_name(name)
    where = f"operator {name!r}"
    if not isinstance(processor, Processor):
        raise InvalidRequest(
            f"{where}: expected a BatchProcessor or KeyedProcessor, found {processor!r}; a class needs its ()"
        )
    if output_mode not in _OUTPUT_MODES:
        raise InvalidRequest(f"{where}: output_mode is {output_mode!r}; expected one of {', '.join(_OUTPUT_MODES)}")
    if watermark is not None and not (isinstance(watermark, tuple) and len(watermark) == 2):
        raise InvalidRequest(
            f'{where}: watermark is {watermark!r}; expected (column, delay), such as ("ts", "10 minutes")'
        )
    timers = declared_timers(processor)
    ticks_ms = interval_ms(ticks, timers, where)

    def apply(events: DataFrame) -> DataFrame:
        if not events.isStreaming:
            raise InvalidRequest(
                f"{where}: the DataFrame does not stream, so there is no batch after which its state would be kept; "
                "read it with "
                "spark.readStream (a folder of files streams with trigger(availableNow=True))"
            )
        check_worker_python(events.sparkSession)
        produced = schemas.parse_schema(output_schema, f"{where}, output schema")
        inherited_ms = _inherited_delay_ms(events.schema)
        if watermark is not None and inherited_ms is not None:
            raise InvalidRequest(
                f"{where}: the DataFrame already has a watermark, which holds here too; leave out watermark="
            )
        plan = _plan(events, key, processor, produced, name, watermark, null_keys, settings)
        check_timers(timers, processor, plan)
        declare(plan)
        packing, packed_schema = _pack_plan(plan), pack.packed_schema(inherited_ms)
        packed = events.mapInArrow(pack.pack_function(packing), packed_schema)
        if ticks_ms is not None:
            # Behind the events, whose partitions so keep their numbers, which order the rows of a slot.
            source = tick_source.ticks(events.sparkSession, ticks_ms)
            packed = packed.union(source.mapInArrow(wake_function(packing.labels), packed_schema))
        if watermark is not None:
            packed = packed.withWatermark("event_time", watermark[1])
        with own_worker_pool(events.sparkSession, "slots"):
            slotted = packed.groupBy("slot").applyInPandasWithState(
                slots.slot_function(plan, processor), output.OUTPUT_SCHEMA, slots.STATE_SCHEMA, output_mode, "NoTimeout"
            )
        return slotted.mapInArrow(output.unpack_function(plan.output_schema, name), produced)

    return apply


def _plan(
    events: DataFrame,
    key: str | Sequence[str],
    processor: Processor,
    produced: spark.StructType,
    name: str,
    watermark: tuple[str, str] | None,
    null_keys: bool,
    overrides: Mapping[str, Any] | None,
) -> OperatorPlan:
    where = f"operator {name!r}"
    conf = dict(events.sparkSession.conf.getAll)
    settings = _local_dir(Settings.from_mapping(conf, overrides), where)
    partitions = int(conf.get("spark.sql.shuffle.partitions", "200"))
    slot_count = settings.slots or min(partitions, settings.max_parallelism)
    if slot_count > settings.max_parallelism:
        raise InvalidRequest(
            f"{where}: {slot_count} slots need at least as many key groups; {PREFIX}maxParallelism is "
            f"{settings.max_parallelism}"
        )
    input_schema = schemas.arrow_schema(events.schema, f"{where}, input")
    columns = schemas.key_columns(key, input_schema, name)
    if watermark is not None:
        _check_event_time(input_schema, watermark[0], where)
    return OperatorPlan(
        declared=OperatorRecord(
            name=name,
            max_parallelism=settings.max_parallelism,
            slots=slot_count,
            labels=spread_labels(slot_count, partitions),
            key_schema=schemas.key_schema(input_schema, columns),
            null_keys=null_keys,
            states=state_records(processor),
        ),
        slots_given=settings.slots is not None,
        instance=new_id(),
        checkpoint_dir=_checkpoint_dir(settings, where),
        settings=_with_retained_batches(settings, conf),
        input_schema=input_schema,
        output_schema=schemas.arrow_schema(produced, f"{where}, output schema"),
        event_time_column=watermark and watermark[0],
        watermarked=watermark is not None or _inherited_delay_ms(events.schema) is not None,
        arrow_rows_max=_arrow_rows_max(conf),
    )


def _pack_plan(plan: OperatorPlan) -> pack.PackPlan:
    def recorded_labels() -> tuple[int, ...]:
        return worker.operator(plan, worker.BatchIdentity.of_task()).record.labels

    return pack.PackPlan(
        operator=plan.name,
        schema=plan.input_schema,
        key_schema=plan.declared.key_schema,
        null_keys=plan.declared.null_keys,
        max_parallelism=plan.declared.max_parallelism,
        labels=recorded_labels,
        event_time_column=plan.event_time_column,
        memory_max_bytes=plan.settings.pack_memory_max_bytes,
        blob_max_bytes=plan.settings.blob_max_bytes,
        arrow_rows_max=plan.arrow_rows_max,
        wakes=plan.timers,
    )


def state_records(processor: Processor) -> tuple[StateRecord, ...]:
    """The states of a processor as they are recorded."""
    numbers, timers_numbers = itertools.count(1), itertools.count(FIRST_TIMERS_ID)
    return tuple(
        StateRecord(
            id=next(timers_numbers if isinstance(declaration, Timers) else numbers),
            name=state_name,
            kind=declaration.kind,
            schema=pa.schema([pa.field(role, kind) for role, kind in declaration.types.items()]),
            function=declaration.function_name,
        )
        for state_name, declaration in declared_states(processor)
    )


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidRequest(f"name is {name!r}; expected a printable name for the operator, such as 'totals'")
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise InvalidRequest(
            f"name {name!r} has {len(name.encode())} bytes; at most {_NAME_BYTES_MAX} fit into a file name"
        )


def _checkpoint_dir(settings: Settings, where: str) -> str:
    uri = settings.checkpoint_dir
    if uri is None:
        raise InvalidRequest(
            f"{where} has nowhere to keep its state: set {PREFIX}checkpoint.dir to a folder that the driver and all "
            'executors reach, or give settings={"checkpoint.dir": …}'
        )
    try:
        return local_path(uri)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {PREFIX}checkpoint.dir: {error}") from None


def _local_dir(settings: Settings, where: str) -> Settings:
    """Refuses what is no folder. One that is relative stays so: to where the executors run."""
    given = settings.local_dir
    if given is None:
        return settings
    try:
        path = local_path(given)
        return replace(settings, local_dir=path) if given.startswith("file:") else settings
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {PREFIX}local.dir: {error}") from None


def _with_retained_batches(settings: Settings, conf: Mapping[str, str]) -> Settings:
    if settings.retained_batches is not None:
        return settings
    return Settings(
        **{**vars(settings), "retained_batches": max(2, int(conf.get("spark.sql.streaming.minBatchesToRetain", "100")))}
    )


def _arrow_rows_max(conf: Mapping[str, str]) -> int:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    rows = int(conf.get(setting, "10000"))
    if rows <= 0:
        raise InvalidRequest(
            f"{setting} is {rows}, no limit; Holdfast's memory would have none either. Set it to 10000, its default"
        )
    return rows


def _check_event_time(schema: pa.Schema, column: str, where: str) -> None:
    if column not in schema.names:
        raise InvalidRequest(
            f"{where}: watermark column {column!r} is not in the input, which has {', '.join(schema.names)}"
        )
    if schema.field(column).type != pa.timestamp("us", "UTC"):
        raise InvalidRequest(
            f"{where}: watermark column {column!r} is {schema.field(column).type}; expected a timestamp"
        )


def _inherited_delay_ms(schema: spark.StructType) -> int | None:
    """The delay of the watermark that the DataFrame already has: Spark keeps it in the column's metadata."""
    for field in schema.fields:
        delay_ms = (field.metadata or {}).get(pack.WATERMARK_DELAY)
        if delay_ms is not None:
            return int(delay_ms)
    return None
