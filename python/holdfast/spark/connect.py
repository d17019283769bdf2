"""`hf.connect`: a stateful operator on several streaming DataFrames that share a key.
Runs on the driver, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from holdfast.errors import InvalidRequest
from holdfast.spark.beginning import Beginning
from holdfast.spark.inputs import InputFrame, broadcast_first, by_input, check_late, check_watermark, input_names
from holdfast.spark.keyed import OperatorOptions, check_operator, operator_on
from holdfast.state import KEEP, Broadcast, Input, Late, Processor, SideOutput, check_side_outputs


def connect(
    inputs: Mapping[str, DataFrame | Broadcast],
    key: str | Sequence[str] | Mapping[str, str | Sequence[str]],
    processor: Processor,
    output_schema: str | spark.StructType,
    *,
    name: str,
    watermark: Mapping[str, tuple[str, str]] | None = None,
    late: Late | SideOutput | Mapping[str, Late | SideOutput] = KEEP,
    side_outputs: Sequence[SideOutput] = (),
    output_mode: Literal["append", "update"] = "append",
    null_keys: bool = False,
    ticks: str | None = None,
    restore: Beginning | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A stateful operator on several inputs: rows of one key meet in one slot, whichever input they come from.

    ``hf.connect({"orders": orders, "payments": payments}, "order_id", Match(), "order_id long, …", name="match")``

    The processor has a method for each input, ``process_orders`` and ``process_payments``, in place of ``process``;
    they share its states. Within a batch a slot's rows come input by input, in the order of ``inputs``; rows of one key
    from one source partition of an input keep their order, as with :func:`keyed`.

    Parameters
    ----------
    inputs
        Streaming DataFrames of one session by name: a Python identifier, up to 16 of them. Columns may differ. One that
        is marked by :func:`broadcast` reaches every slot whole, before the others' rows.
    key
        Key column, or several; or by input, where its name differs: ``{"orders": "id", "payments": "order_id"}``. Types
        must be the same. Inputs that are broadcast have none.
    processor, output_schema, name, side_outputs, output_mode, null_keys, ticks, restore, settings
        As for :func:`keyed`. A side output without a schema must be one for late rows. ``on_timer`` and ``on_timers``
        have the key under the names of the input that comes first by name.
    watermark
        By input, as for :func:`keyed`: ``{"orders": ("ts", "10 minutes")}``. The query's watermark is the earliest of
        its inputs' (``spark.sql.streaming.multipleWatermarkPolicy``); an input without one does not hold it back, and
        one that is broadcast has none. After a restart it stands until each that has one has had rows.
    late
        As for :func:`keyed`, for all inputs or by input.

    Returns
    -------
    DataFrame
        As :func:`keyed` gives.

    Raises
    ------
    InvalidRequest
        As for :func:`keyed`; key columns of different types; a method that the processor lacks, by name; an input that
        is not there; nothing but broadcast inputs, or broadcast states without any.
    Incompatible, Corrupt, Unavailable
        With ``restore``, as for :func:`keyed`.
    """
    where = f"operator {name!r}"
    names = _input_names(inputs, where)
    marked = [one for one in names if isinstance(inputs[one], Broadcast)]
    tags = check_side_outputs(side_outputs, where)
    options = OperatorOptions(name, output_schema, tags, output_mode, null_keys, ticks, restore, settings)
    check_operator(processor, tuple(Input(one, broadcast=one in marked) for one in names), options)
    keys = by_input("key", key, names, where, marked)
    watermarks = by_input("watermark", {} if watermark is None else watermark, names, where, marked)
    lates = by_input("late", late, names, where, marked)
    declared = []
    for one, given in broadcast_first(inputs).items():
        at = f"{where}, input {one!r}"
        if isinstance(given, Broadcast):
            declared.append(InputFrame(one, given.marked, None, None, KEEP))
            continue
        if one not in keys:
            raise InvalidRequest(
                f"{at}: key= names no key columns of it; all inputs need them, but those marked by hf.broadcast"
            )
        check_watermark(watermarks.get(one), at)
        check_late(lates.get(one, KEEP), at)
        declared.append(InputFrame(one, given, keys[one], watermarks.get(one), lates.get(one, KEEP)))
    return operator_on(declared, processor, options)


def _input_names(inputs: Any, where: str) -> list[str]:
    frames = inputs.values() if isinstance(inputs, Mapping) else [None]
    if not all(isinstance(one.marked if isinstance(one, Broadcast) else one, DataFrame) for one in frames):
        raise InvalidRequest(f'{where}: inputs is {inputs!r}; expected DataFrames by name, {{"orders": orders, …}}')
    return input_names(inputs, where)
