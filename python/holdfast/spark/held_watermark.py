"""What is said of an operator whose watermark another one's may wait for. Runs on the driver, before a query starts.

A query has one watermark: the least of all that are declared in it, and 0 for one that has had no row. Declared behind
an operator it waits for that one's rows; and where these come by timers of event time, they wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.sql import SparkSession

from holdfast.spark.inputs import InputFrame
from holdfast.spark.operators_within import operators_within
from holdfast.spark.plan import InputPlan

_LOGGER = logging.getLogger("holdfast.spark")
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def warn_of_held_watermark(
    session: SparkSession, inputs: Iterable[tuple[InputFrame, InputPlan]], operator: str
) -> None:
    """Says what stands still, and the way out, where an input with a watermark has an operator before it."""
    if str(session.conf.get(_POLICY, "min")).lower() == "max":
        return
    for declared, planned in inputs:
        before = operators_within(declared.frame) if planned.watermarked else []
        if before:
            _LOGGER.warning(
                "%s: it has a watermark behind operator %r. A query has one watermark, the least of all that are "
                "declared in it: here it waits for the rows of %r, and for ever where those are given by timers of "
                "event time, which wait for it. Set %s to max before the query's first batch (docs/guide/operators.md "
                "says what becomes of late rows then)",
                declared.where(operator),
                before[0][0],
                before[0][0],
                _POLICY,
            )
