"""The reader of ticks for Spark 4.2 and later, which hands over the start of a batch.

Importing this module fails on older ones; `tick_source.TicksDataSource` falls back.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from holdfast.clock import Clock
from holdfast.spark.tick_source import TicksReader


class AdmissionTicksReader(TicksReader, SupportsTriggerAvailableNow):
    """Ticks that go no further than now with Trigger.AvailableNow."""

    def __init__(self, interval_ms: int, clock: Clock | None = None) -> None:
        super().__init__(interval_ms, clock)
        self._end: dict[str, Any] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark: that there is no limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Spark: where the next batch ends."""
        if self._end is not None:
            if self.interval_ms and start["ms"] - self._end["ms"] > self.interval_ms:
                self._end = {"ms": start["ms"] + 1}  # an earlier run's clock was ahead: one tick a run, as else
            return {"ms": max(start["ms"], self._end["ms"])}
        return self.latest(start["ms"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Spark: read no further than now."""
        self._end = self.latest(0)
