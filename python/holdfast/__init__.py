"""Holdfast: keyed state and exactly-once that hold fast under PySpark Structured Streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    Corrupt,
    Fenced,
    HoldfastError,
    Incompatible,
    InternalError,
    InvalidRequest,
    Unavailable,
    Undecided,
)
from holdfast.state import (
    TTL,
    AggregateFunction,
    AggregatingState,
    BatchProcessor,
    BroadcastState,
    Context,
    DroppedState,
    KeyedProcessor,
    ListState,
    MapState,
    OperatorState,
    ReducingState,
    SideOutput,
    Timers,
    ValueState,
    broadcast,
    dropped_field,
    renamed_from,
    with_default,
)
from holdfast.storage import StorageOptions

if TYPE_CHECKING:
    from holdfast.commit.timeline import fork_checkpoint
    from holdfast.inspect import Checkpoint, OperatorTables, Savepoint
    from holdfast.inspect.restore import Restore
    from holdfast.sink.files import FileSink
    from holdfast.sink.kafka import KafkaSink
    from holdfast.source import register as register_sources
    from holdfast.spark.connect import connect
    from holdfast.spark.keyed import keyed
    from holdfast.spark.metrics import BatchMetrics, MetricsListener, QueryMetrics, metrics
    from holdfast.spark.operator_metrics import OperatorMetrics
    from holdfast.spark.query import Query, await_termination, start
    from holdfast.spark.side_outputs import select_output
    from holdfast.spark.source_stalls import SourceStall
    from holdfast.spark.terminal_log import terminal_log
    from holdfast.spark.write import write_exactly_once

__version__ = "0.1.0"

__all__ = [
    "TTL",
    "AggregateFunction",
    "AggregatingState",
    "BatchMetrics",
    "BatchProcessor",
    "BroadcastState",
    "Checkpoint",
    "Context",
    "Corrupt",
    "DroppedState",
    "Fenced",
    "FileSink",
    "HoldfastError",
    "Incompatible",
    "InternalError",
    "InvalidRequest",
    "KafkaSink",
    "KeyedProcessor",
    "ListState",
    "MapState",
    "MetricsListener",
    "OperatorMetrics",
    "OperatorState",
    "OperatorTables",
    "Query",
    "QueryMetrics",
    "ReducingState",
    "Restore",
    "Savepoint",
    "SideOutput",
    "SourceStall",
    "StorageOptions",
    "Timers",
    "Unavailable",
    "Undecided",
    "ValueState",
    "__version__",
    "await_termination",
    "broadcast",
    "connect",
    "dropped_field",
    "fork_checkpoint",
    "keyed",
    "metrics",
    "register_sources",
    "renamed_from",
    "select_output",
    "start",
    "terminal_log",
    "with_default",
    "write_exactly_once",
]

# Loaded when asked for: the rest of Holdfast does without pyspark.
_SPARK_EXPORTS = frozenset(
    {
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
    }
)


def __getattr__(name: str) -> Any:
    if name in _SPARK_EXPORTS:
        from holdfast import spark

        return getattr(spark, name)
    if name == "KafkaSink":
        from holdfast.sink.kafka import KafkaSink

        return KafkaSink
    if name in ("Checkpoint", "OperatorTables", "Savepoint"):
        from holdfast import inspect

        return getattr(inspect, name)
    if name == "Restore":
        from holdfast.inspect.restore import Restore

        return Restore
    if name == "fork_checkpoint":
        from holdfast.commit.timeline import fork_checkpoint

        return fork_checkpoint
    if name == "FileSink":
        from holdfast.sink.files import FileSink

        return FileSink
    if name == "register_sources":
        from holdfast.source import register

        return register
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also those that are loaded when asked for: for completion."""
    return sorted({*globals(), *__all__})
