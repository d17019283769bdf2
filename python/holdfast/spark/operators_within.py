"""Which operators a DataFrame has in it, and whether its rows stay where they were read, by Spark's plan. Runs on the
driver.

What watches an operator's slots (`metrics.observed`) has a name of its own for each call of `hf.keyed`.
"""

from __future__ import annotations

import logging
import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from holdfast.clock import new_id
from holdfast.spark.declared_operators import is_any_declared
from holdfast.spark.slot_metrics import OBSERVED

_LOGGER = logging.getLogger("holdfast")
_ANALYZED = "== Analyzed Logical Plan =="
#: As Spark shows what observes a DataFrame: its name comes first.
_OBSERVER = re.compile(rf"CollectMetrics {re.escape(OBSERVED)}(.+?)\.([0-9a-f]{{32}}), ")

#: A node of a plan that leaves each row in the task that read it. Of others that is not known.
_NARROW = re.compile(
    r"[ :]*(?:[+:]- )?~?(?:Project|Filter|SubqueryAlias|View|Generate|Union|CollectMetrics|MapInArrow|MapInPandas|"
    r"EventTimeWatermark|StreamingRelation|StreamingRelationV2)\b.*"
)


def operators_within(df: DataFrame) -> list[tuple[str, str]]:
    """Name and instance of each, as often as it stands there; none where that is not known."""
    return known_operators_within(df) or []


def known_operators_within(df: DataFrame) -> list[tuple[str, str]] | None:
    """The same; None where Spark does not show a plan: an administrator may forbid global views."""
    if not is_any_declared():
        return []
    try:
        found: list[tuple[str, str]] = _OBSERVER.findall(_analyzed_plan(df))
    except PySparkException as error:
        _LOGGER.info("which operators a DataFrame has in it is not known: %s", error)
        return None
    return found


def rows_stay(df: DataFrame) -> bool:
    """Whether what is made of a row of the input stays in the task that read it; False where that is not known. Behind
    a shuffle it may go by which other rows there are: `repartition(n)` deals rows out by turns.
    """
    try:
        lines = _analyzed_plan(df).strip().splitlines()[1:]  # the first one is the schema
    except PySparkException as error:
        _LOGGER.info("whether rows of a DataFrame stay in their tasks is not known: %s", error)
        return False
    return bool(lines) and all(_NARROW.fullmatch(line) for line in lines)


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
