"""The streaming reader for Spark 4.2 and later, which hands over the start of a batch and a limit.

Importing this module fails on older ones; `stream.stream_reader` falls back.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from holdfast.source.kafka.stream import KafkaStreamReader


class AdmissionStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
    """Limits, Trigger.AvailableNow, and the newest offsets in progress reports."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark: that there is a limit; the planner applies what the options say."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Spark: where the next batch ends."""
        return self.planner.latest(start, limit=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Spark: the newest offsets, for its progress reports."""
        return self.planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Spark: read no further than now."""
        self.planner.fix_end()
