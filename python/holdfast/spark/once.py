"""Whether each operator stands once in a query. Runs on the driver, before the query starts.

A DataFrame that is used twice (``totals.union(totals)``, a join with itself) has its operator twice in Spark's plan:
two states in Spark's checkpoint, of one operator and over one state folder. What watches an operator's slots
(`metrics.observed`) has a name of its own for each call of `hf.keyed`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from holdfast.clock import new_id
from holdfast.errors import InvalidRequest
from holdfast.spark.declared_operators import is_any_declared
from holdfast.spark.slot_metrics import OBSERVED

_LOGGER = logging.getLogger("holdfast")
_ANALYZED = "== Analyzed Logical Plan =="
#: As Spark shows what observes a DataFrame: its name comes first.
_OBSERVER = re.compile(rf"CollectMetrics {re.escape(OBSERVED)}(.+?)\.([0-9a-f]{{32}}), ")


def check_stands_once(df: DataFrame, call: str) -> None:
    """InvalidRequest where an operator stands twice in what a query shall write. ``call``: for the message.

    Where Spark does not show a plan (an administrator may forbid global views), nothing is refused.
    """
    if not is_any_declared():
        return
    try:
        plan = _analyzed_plan(df)
    except PySparkException as error:
        _LOGGER.info("whether an operator stands twice in the query is not known: %s", error)
        return
    twice = sorted({name for (name, _), count in Counter(_OBSERVER.findall(plan)).items() if count > 1})
    if twice:
        raise InvalidRequest(
            f"{call}: operator {twice[0]!r} stands twice in the query: a DataFrame with it is used twice, as in "
            f"totals.union(totals). Each use would run it, over one state. Call hf.keyed for each, with a name of its "
            f"own; or, for two outputs of one operator, use side outputs or select within foreachBatch "
            f"(docs/guide/operators.md)"
        )


def _analyzed_plan(df: DataFrame) -> str:
    """As Spark shows it: only SQL's EXPLAIN gives a plan as a text. In a session in which a plan that streams is not
    planned any further, whatever the query's says.
    """
    session, view = df.sparkSession.newSession(), f"holdfast_{new_id()}"
    session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "true")
    database = session.conf.get("spark.sql.globalTempDatabase", "global_temp")
    df.createGlobalTempView(view)
    try:
        told: str = session.sql(f"EXPLAIN EXTENDED SELECT * FROM {database}.{view}").collect()[0][0]
    finally:
        session.catalog.dropGlobalTempView(view)
    return told.partition(_ANALYZED)[2].partition("== Optimized Logical Plan ==")[0]
