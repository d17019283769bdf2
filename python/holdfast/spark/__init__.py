"""The plug into Spark: packs rows by slot, runs processors on slots, keeps handles in Spark's state. The only room that
knows pyspark.
"""

from __future__ import annotations

from holdfast.spark.keyed import keyed
from holdfast.spark.query import Query, await_termination, start
from holdfast.spark.write import write_exactly_once

__all__ = ["Query", "await_termination", "keyed", "start", "write_exactly_once"]
