"""`hf.keyed`: a stateful operator on a streaming DataFrame. Runs on the driver, and starts nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from holdfast.checkpoint import (
    FIRST_OPERATOR_STATE_ID,
    FIRST_TIMERS_ID,
    FieldChange,
    OperatorRecord,
    StateChanges,
    StateRecord,
)
from holdfast.checkpoint.names import encode_operator
from holdfast.clock import new_id
from holdfast.errors import InvalidRequest
from holdfast.settings import PREFIX, Settings
from holdfast.spark import output, pack, schemas, slots, tick_source, worker
from holdfast.spark.beginning import Beginning
from holdfast.spark.declared_operators import declare
from holdfast.spark.held_watermark import warn_of_held_watermark
from holdfast.spark.inputs import InputFrame, check_late, check_watermark, common_key, packed_inputs, plan_input
from holdfast.spark.labels import spread_labels
from holdfast.spark.metrics import observed
from holdfast.spark.packed_output import PackedOutput, note_packed
from holdfast.spark.plan import InputPlan, OperatorPlan
from holdfast.spark.registration import remember_operator
from holdfast.spark.sessions import arrow_rows_max, shuffle_partitions, spark_retained_batches, warn_of_idle_tasks
from holdfast.spark.side_outputs import side_by_side, side_schemas
from holdfast.spark.slot_batch import declared_ttls
from holdfast.spark.ticks import check_timers, interval_ms, wake_function
from holdfast.spark.worker_memory import warn_of_memory
from holdfast.spark.worker_process import check_worker_python, own_worker_pool
from holdfast.state import (
    KEEP,
    MAIN,
    BroadcastState,
    Input,
    Late,
    OperatorState,
    Processor,
    SideOutput,
    Timers,
    check_broadcast,
    check_methods,
    check_side_outputs,
    declared_changes,
    declared_field_marks,
    declared_states,
    declared_timers,
)
from holdfast.storage import StorageOptions, local_path, open_file_store, store_uri, try_out

_NAME_BYTES_MAX, _FILE_NAME_MAX = 128, 255
_OUTPUT_MODES = ("append", "update")


def keyed(
    key: str | Sequence[str],
    processor: Processor,
    output_schema: str | spark.StructType,
    *,
    name: str,
    watermark: tuple[str, str] | None = None,
    late: Late | SideOutput = KEEP,
    side_outputs: Sequence[SideOutput] = (),
    output_mode: Literal["append", "update"] = "append",
    null_keys: bool = False,
    ticks: str | None = None,
    restore: Beginning | None = None,
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
        Event-time column (a timestamp) and how late its rows may be, as for ``withWatermark``:
        ``("ts", "10 minutes")``. The processor is told the watermark as ``ctx.watermark_ms``.
    late
        What becomes of rows whose event time is not after the watermark that the batch began with: "keep" (the
        processor sees them), "drop", or a side output for them. They are counted in any case: :func:`metrics`.
    side_outputs
        Further outputs, to which the processor sends rows by ``ctx.output``; that of ``late`` need not be named again.
        With any, the DataFrame has a struct column for each output, "main" among them, of which one is not null in
        each row: see :func:`select_output` and :func:`write_exactly_once`.
    output_mode
        "append" or "update"; must be the query's.
    null_keys
        Whether null is a key like any other. By default a null key is an error.
    ticks
        For a processor with timers: how long they may wait when no rows come. A duration (``"10 seconds"``) adds a
        source of ticks, which makes a batch that often in a query that has nothing else to do; ``"never"``: timers
        wait for the next batch that has rows. Spark fixes a query's sources at its first batch: what may get timers
        later can have ticks from the beginning, which are silent until then.
    restore
        State to begin with, in a new checkpoint, of an earlier query or a savepoint: :class:`holdfast.Restore`. By
        default the operator begins with nothing.
    settings
        Settings of this operator, over the session's ``spark.holdfast.*``:
        ``{"slots": 8, "memory.batch.max": "64 MiB"}``. All of them: docs/guide/settings.md.

    Returns
    -------
    Callable[[DataFrame], DataFrame]
        Raises InvalidRequest when the DataFrame does not stream, lacks the columns, or the session's settings are
        wrong; with ``restore`` also what is raised below. What contradicts the checkpoint is Incompatible from
        :func:`start` with ``checkpoint=`` and from :func:`write_exactly_once`, before anything runs; of a query that
        they do not start, its first batch fails.

    Raises
    ------
    InvalidRequest
        A wrong name, processor, key, mode, side output or setting; timers without ``ticks``. With ``restore``: there is
        no such operator, or not its state.
    Incompatible
        With ``restore``: what it names contradicts the operator, is not settled, or is not there any more.
    Corrupt
        With ``restore``: what it names is damaged.
    Unavailable
        With ``restore``: the storage does not answer.
    """
    where = f"operator {name!r}"
    tags = check_side_outputs(side_outputs, where)
    options = OperatorOptions(name, output_schema, tags, output_mode, null_keys, ticks, restore, settings)
    check_operator(processor, (Input(),), options)
    check_watermark(watermark, where)
    check_late(late, where)

    def apply(events: DataFrame) -> DataFrame:
        return operator_on([InputFrame(None, events, key, watermark, late)], processor, options)

    return apply


@dataclass(frozen=True)
class OperatorOptions:
    """What `keyed` and `connect` are given alike; see there."""

    name: str
    output_schema: str | spark.StructType
    side_outputs: tuple[SideOutput, ...]
    output_mode: str
    null_keys: bool
    ticks: str | None
    restore: Beginning | None
    settings: Mapping[str, Any] | None


def check_operator(processor: Processor, inputs: tuple[Input, ...], options: OperatorOptions) -> None:
    """Checks what can be checked without a DataFrame.

    Raises
    ------
    InvalidRequest
        A wrong name, processor, mode or setting; a method for an input that the processor lacks; timers without ticks.
    """
    check_name(options.name)
    where = f"operator {options.name!r}"
    if not isinstance(processor, Processor):
        raise InvalidRequest(
            f"{where}: expected a BatchProcessor or KeyedProcessor, found {processor!r}; a class needs its ()"
        )
    state_changes(processor)  # what contradicts itself is told here, where it is said
    check_broadcast(processor, inputs, where)
    check_methods(processor, inputs, where)
    if options.output_mode not in _OUTPUT_MODES:
        raise InvalidRequest(
            f"{where}: output_mode is {options.output_mode!r}; expected one of {', '.join(_OUTPUT_MODES)}"
        )
    if options.restore is not None and not isinstance(options.restore, Beginning):
        raise InvalidRequest(f'{where}: restore is {options.restore!r}; expected hf.Restore("/data/checkpoint")')
    interval_ms(options.ticks, declared_timers(processor), where)
    _check_settings(options, where)


def _check_settings(options: OperatorOptions, where: str) -> None:
    """What is wrong by itself; all is read again with the session's settings, once there is a DataFrame."""
    most = {f"{PREFIX}maxParallelism": "32768"}  # of what the session may say
    settings = _local_dir(Settings.from_mapping(most, options.settings), where)
    if settings.checkpoint_dir is not None:
        _checkpoint_uri(settings.checkpoint_dir, where)
    if settings.slots is not None:
        _check_slots(settings.slots, settings.max_parallelism, where)


def operator_on(inputs: Sequence[InputFrame], processor: Processor, options: OperatorOptions) -> DataFrame:
    """The operator on its inputs. All of them are of one session."""
    session = inputs[0].frame.sparkSession
    planned = tuple(plan_input(one, options.name) for one in inputs)
    check_ttls(processor, any(one.met.time_columns for one in planned), f"operator {options.name!r}")
    check_worker_python(session)
    warn_of_idle_tasks(session, options.name)
    warn_of_held_watermark(session, zip(inputs, planned), options.name)
    produced = schemas.parse_schema(options.output_schema, f"operator {options.name!r}, output schema")
    sides = side_schemas(_tags(inputs, options), inputs, options.name)
    plan = _plan(dict(session.conf.getAll), planned, processor, produced, sides, options)
    warn_of_memory(session, plan.name, plan.settings)
    check_timers(processor, plan.key_columns, plan.watermarked, f"operator {options.name!r}")
    if options.restore is not None:
        plan = replace(plan, declared=options.restore.begin(session, plan))
    remember_operator(plan)
    declare(plan)
    packed = packed_inputs(inputs, lambda number: _pack_plan(plan, number))
    ticks_ms = interval_ms(options.ticks, declared_timers(processor), f"operator {options.name!r}")
    if ticks_ms is not None:
        # Behind the events, whose partitions so keep their numbers, which order the rows of a slot.
        ticks = tick_source.ticks(session, ticks_ms, plan.name)
        wake = wake_function(lambda: recorded_labels(plan))
        packed = packed.union(ticks.mapInArrow(wake, pack.PACKED_SCHEMA))
    with own_worker_pool(session, "slots"):
        slotted = (
            pack.for_slots(packed, plan.watermarked)
            .groupBy("slot")
            .applyInPandasWithState(
                slots.slot_function(plan, processor),
                output.OUTPUT_SCHEMA,
                slots.STATE_SCHEMA,
                options.output_mode,
                "NoTimeout",
            )
        )
    slotted = observed(slotted, plan.name, plan.instance)
    unpacking = output.Unpacking(options.name, ((MAIN, plan.output_schema), *plan.side_outputs))
    unpacked = slotted.mapInArrow(output.unpack_function(unpacking), side_by_side(produced, sides))
    note_packed(unpacked, PackedOutput(slotted, unpacking))
    return unpacked


def _tags(inputs: Sequence[InputFrame], options: OperatorOptions) -> tuple[SideOutput, ...]:
    """All side outputs: those that are declared, and those for late rows."""
    tags = list(options.side_outputs)
    for one in inputs:
        if isinstance(one.late, SideOutput) and one.late not in tags:
            tags.append(one.late)
    return check_side_outputs(tags, f"operator {options.name!r}")


def _plan(
    conf: Mapping[str, str],
    inputs: tuple[InputPlan, ...],
    processor: Processor,
    produced: spark.StructType,
    sides: Mapping[str, spark.StructType],
    options: OperatorOptions,
) -> OperatorPlan:
    where = f"operator {options.name!r}"
    settings = _local_dir(Settings.from_mapping(conf, options.settings), where)
    partitions = shuffle_partitions(conf.get("spark.sql.shuffle.partitions"), where)
    slot_count = settings.slots or min(partitions, settings.max_parallelism)
    _check_slots(slot_count, settings.max_parallelism, where)
    return OperatorPlan(
        declared=OperatorRecord(
            name=options.name,
            max_parallelism=settings.max_parallelism,
            slots=slot_count,
            labels=spread_labels(slot_count, partitions),
            key_schema=common_key(inputs, options.name),
            null_keys=options.null_keys,
            states=state_records(processor),
            inputs=tuple(sorted((one.met.name, one.key_columns) for one in inputs if one.met.name is not None)),
            changes=state_changes(processor),
        ),
        slots_given=settings.slots is not None,
        instance=new_id(),
        checkpoint_dir=_checkpoint_dir(settings, where),
        settings=_with_retained_batches(settings, conf),
        inputs=inputs,
        output_schema=schemas.arrow_schema(produced, f"{where}, output schema"),
        side_outputs=tuple(
            (name, schemas.arrow_schema(kind, f"{where}, side output {name!r}")) for name, kind in sides.items()
        ),
        arrow_rows_max=arrow_rows_max(conf),
        ttls=declared_ttls(processor),
    )


def recorded_labels(plan: OperatorPlan) -> tuple[int, ...]:
    """The slots' labels in the query whose task asks."""
    return worker.operator(plan, worker.BatchIdentity.of_task()).record.labels


def wakes_all(plan: OperatorPlan) -> bool:
    """Whether the batch whose task asks calls the slots without rows too. In a replay all may have something to take
    over: the program before had timers that were due there, or let more rows through.
    """
    identity = worker.BatchIdentity.of_task()
    if plan.timers or identity.replay is not None:
        return True
    return worker.operator(plan, identity).opening.calls_all(identity.batch_id)


def _pack_plan(plan: OperatorPlan, number: int) -> pack.PackPlan:
    packed = plan.inputs[number]
    return pack.PackPlan(
        operator=plan.name,
        schema=packed.schema,
        key_schema=plan.declared.key_schema,
        null_keys=plan.declared.null_keys,
        max_parallelism=plan.declared.max_parallelism,
        labels=lambda: recorded_labels(plan),
        event_time_column=packed.reported_column,
        memory_max_bytes=plan.settings.pack_memory_max_bytes,
        blob_max_bytes=plan.settings.blob_max_bytes,
        arrow_rows_max=plan.arrow_rows_max,
        key_columns=packed.key_columns,
        input_number=number,
        input_name=packed.met.name,
        broadcast=packed.met.broadcast,
        wakes=lambda: wakes_all(plan),
    )


def state_records(processor: Processor | type[Processor]) -> tuple[StateRecord, ...]:
    """The states of a processor as they are recorded."""
    numbers = {Timers.kind: itertools.count(FIRST_TIMERS_ID)}
    numbers[BroadcastState.kind] = numbers[OperatorState.kind] = itertools.count(FIRST_OPERATOR_STATE_ID)
    of_keys = itertools.count(1)
    return tuple(
        StateRecord(
            id=next(numbers.get(declaration.kind, of_keys)),
            name=state_name,
            kind=declaration.kind,
            schema=pa.schema([pa.field(role, kind) for role, kind in declaration.types.items()]),
            function=declaration.function_name,
            ttl_time=declaration.ttl.time if declaration.ttl is not None else None,
        )
        for state_name, declaration in declared_states(processor)
    )


def state_changes(processor: Processor | type[Processor]) -> StateChanges:
    """What a processor says of states, and of fields of their values, that it has no more."""
    fields = (FieldChange(name, *mark) for name, mark in declared_field_marks(processor))
    return StateChanges(*declared_changes(processor), tuple(fields))


def check_name(name: str) -> None:
    """InvalidRequest for what names no operator."""
    if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidRequest(f"name is {name!r}; expected a printable name for the operator, such as 'totals'")
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise InvalidRequest(
            f"name {name!r} has {len(name.encode())} bytes; at most {_NAME_BYTES_MAX} fit into a file name"
        )
    encoded = len(encode_operator(name))
    if encoded > _FILE_NAME_MAX:
        raise InvalidRequest(
            f"name {name!r} takes {encoded} characters as the name of a folder, where all but ASCII letters, digits "
            f"and -._~ take three each byte; at most {_FILE_NAME_MAX} fit: choose a shorter one"
        )


def _checkpoint_dir(settings: Settings, where: str) -> str:
    uri = settings.checkpoint_dir
    if uri is None:
        raise InvalidRequest(
            f"{where} has nowhere to keep its state: set {PREFIX}checkpoint.dir to a folder that the driver and all "
            "executors reach, to s3://bucket/folder or to hdfs://namenode:8020/folder; or give "
            'settings={"checkpoint.dir": …}'
        )
    place = _checkpoint_uri(uri, where)
    try:
        try_out(open_file_store(place, StorageOptions.of(settings)))
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {PREFIX}checkpoint.dir: {error}") from None
    return place


def _checkpoint_uri(given: str, where: str) -> str:
    try:
        return store_uri(given)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {PREFIX}checkpoint.dir: {error}") from None


def _check_slots(slots: int, max_parallelism: int, where: str) -> None:
    if slots > max_parallelism:
        raise InvalidRequest(
            f"{where}: {slots} slots need at least as many key groups; {PREFIX}maxParallelism is {max_parallelism}"
        )


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
    return Settings(**{**vars(settings), "retained_batches": max(2, spark_retained_batches(conf))})


def check_ttls(processor: Processor, has_event_time: bool, where: str) -> None:
    """InvalidRequest where a state's TTL goes by an event time that there is not."""
    for state_name, declaration in declared_states(processor):
        if declaration.ttl is not None and declaration.ttl.time == "event" and not has_event_time:
            raise InvalidRequest(
                f"{where}: the TTL of state {state_name!r} goes by event time, and no input has a watermark over a "
                "column of timestamps: give watermark=(column, delay) or call withWatermark before (a Harness: give "
                'event_time=column), or choose time="processing"'
            )
