"""The plug into Spark: packs rows by slot, runs processors on slots, keeps handles in Spark's state.
The only room that knows pyspark.
"""

from __future__ import annotations

from holdfast.spark.connect import connect
from holdfast.spark.keyed import keyed
from holdfast.spark.metrics import BatchMetrics, MetricsListener, QueryMetrics, metrics
from holdfast.spark.operator_metrics import OperatorMetrics
from holdfast.spark.query import Query, await_termination, start
from holdfast.spark.side_outputs import select_output
from holdfast.spark.source_stalls import SourceStall
from holdfast.spark.terminal_log import terminal_log
from holdfast.spark.write import write_exactly_once

__all__ = [
    "BatchMetrics",
    "MetricsListener",
    "OperatorMetrics",
    "Query",
    "QueryMetrics",
    "SourceStall",
    "await_termination",
    "connect",
    "keyed",
    "metrics",
    "select_output",
    "start",
    "terminal_log",
    "write_exactly_once",
]
