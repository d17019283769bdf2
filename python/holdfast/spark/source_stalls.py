"""Which partitions of a query's Kafka sources wait for an open transaction, out of Spark's progress of the query.

The source's reader is a process of Python that Spark's JVM starts: it shares nothing with the user's program but what
Spark carries. Of a Python source that is its newest offset, from Spark 4.2 on (`DataSourceStreamReader.
reportLatestOffset`), which the progress has as ``sources[…].latestOffset``; it is no offset of a batch and lands in no
log, so more can stand in it. `holdfast.source.kafka.planner.StreamPlanner.newest` writes it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

_DIGITS_MAX = 10  # of a partition's number, 32 bits
_FIGURES = ("last_stable_offset", "high_watermark", "since_ms", "waiting_ms")


@dataclass(frozen=True)
class SourceStall:
    """A partition of which a ``holdfast-kafka`` source can read no further, since a transaction is open in it.

    Attributes
    ----------
    source
        Which source of the query it is: its place among them, from 0.
    topic, partition
        Where it waits.
    last_stable_offset
        Where the open transaction begins: the source reads up to here.
    high_watermark
        Where the partition ends.
    since_ms
        When the source first saw it wait, in milliseconds since 1970, by the clock of the driver's machine.
    waiting_ms
        How long it had waited when the source told of it last.
    """

    source: int
    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    since_ms: int
    waiting_ms: int

    @property
    def records_waiting(self) -> int:
        """Records from the open transaction on, its own too; markers of transactions and aborted records count."""
        return self.high_watermark - self.last_stable_offset

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "records_waiting": self.records_waiting}


def stalls_in(progress: StreamingQueryProgress | None) -> tuple[SourceStall, ...] | None:
    """What sources wait for, by what Spark tells of a query; None: one of them could not say.

    That is before the first progress of a query, and with Spark 4.0 and 4.1, of each query with such a source.
    """
    if progress is None:
        return None
    found: list[SourceStall] = []
    is_silent = False
    for number, source in enumerate(progress.sources):
        newest = _content(source.latestOffset)
        if _is_of_kafka(newest) and isinstance(newest.get("waiting"), Mapping):
            told = (_stall(number, place, figures) for place, figures in newest["waiting"].items())
            found += (stall for stall in told if stall is not None)
        elif _is_of_kafka(newest) or _is_of_kafka(_content(source.endOffset)):
            is_silent = True
    return None if is_silent and not found else tuple(found)


def _content(offset: object) -> Mapping[str, Any]:
    """Of an offset as the progress has it: JSON; in PySpark 4.0 and 4.1 the text of the dict that was read from it.

    Another source's is any text.
    """
    if not isinstance(offset, str):
        return {}
    for read in (json.loads, ast.literal_eval):
        try:
            content = read(offset)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return content if isinstance(content, Mapping) else {}
    return {}


def _is_of_kafka(content: Mapping[str, Any]) -> bool:
    """As `holdfast.source.kafka.offsets` writes it."""
    return isinstance(content.get("format"), int) and {"offsets", "topic_ids"} <= content.keys()


def _stall(source: int, place: str, figures: object) -> SourceStall | None:
    topic, _, number = place.rpartition("-")
    if not (topic and number.isdecimal() and len(number) <= _DIGITS_MAX and isinstance(figures, Mapping)):
        return None
    numbers = [one for name in _FIGURES if type(one := figures.get(name)) is int]
    if len(numbers) != len(_FIGURES):
        return None
    return SourceStall(source, topic, int(number), *numbers)
