"""Ticks: when they come, that they never go back, and what is asked of a user with timers."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from tests.spark_sessions import SPARK_RELEASE

import holdfast as hf
from holdfast.spark.tick_source import TicksDataSource, UnlimitedTicksReader
from holdfast.spark.ticks import interval_ms


class HandClock:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def elapsed_ms(self) -> float:
        return float(self.ms)


def test_a_tick_is_the_last_whole_multiple_of_the_interval_and_never_goes_back():
    clock = HandClock(12_345)
    reader = UnlimitedTicksReader(1000, clock)
    assert reader.latestOffset() == {"ms": 12_000}
    clock.ms = 12_999
    assert reader.latestOffset() == {"ms": 12_000}
    reader.partitions({"ms": 0}, {"ms": 12_000})
    clock.ms = 500
    assert reader.latestOffset() == {"ms": 12_000}
    clock.ms = 13_000
    assert reader.latestOffset() == {"ms": 13_000}


def test_a_query_that_is_started_again_goes_on_from_its_last_tick_whatever_the_interval():
    reader = UnlimitedTicksReader(60_000, HandClock(119_000))
    reader.partitions({"ms": 90_000}, {"ms": 90_000})
    assert reader.latestOffset() == {"ms": 90_000}


class TwoClocks(HandClock):
    """The wall clock, and one that never goes back."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms)
        self.passed_ms = 0.0

    def elapsed_ms(self) -> float:
        return self.passed_ms


def test_a_clock_that_was_ahead_stops_no_ticks():
    """The offset stays in Spark's log: without a tick, timers of processing time waited until that day had come."""
    clock = TwoClocks(12_345)
    reader = UnlimitedTicksReader(1000, clock)
    ahead_ms = 12_000 + 86_400_000
    reader.partitions({"ms": ahead_ms}, {"ms": ahead_ms})
    for ticks in range(3):
        assert reader.latestOffset() == {"ms": ahead_ms + ticks}
        clock.passed_ms += 999
        assert reader.latestOffset() == {"ms": ahead_ms + ticks}
        clock.passed_ms += 1
        assert reader.latestOffset() == {"ms": ahead_ms + ticks + 1}
        assert reader.latestOffset() == {"ms": ahead_ms + ticks + 1}, "until it is planned"
        reader.partitions({"ms": ahead_ms + ticks}, {"ms": ahead_ms + ticks + 1})
    clock.ms = ahead_ms + 1_000
    assert reader.latestOffset() == {"ms": ahead_ms + 1_000}


@pytest.mark.skipif(SPARK_RELEASE < (4, 2), reason="Spark asks for a limit from 4.2 on")
def test_available_now_has_one_tick_where_a_clock_was_ahead():
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from holdfast.spark.tick_admission import AdmissionTicksReader

    everything, ahead_ms = ReadAllAvailable(), 5_500 + 86_400_000
    reader = AdmissionTicksReader(1000, HandClock(5_500))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"ms": ahead_ms}, everything) == {"ms": ahead_ms + 1}
    assert reader.latestOffset({"ms": ahead_ms + 1}, everything) == {"ms": ahead_ms + 1}
    silent = AdmissionTicksReader(0, HandClock(5_500))
    silent.prepareForTriggerAvailableNow()
    assert silent.latestOffset({"ms": ahead_ms}, everything) == {"ms": ahead_ms}


def test_silent_ticks_never_come():
    reader = UnlimitedTicksReader(0, HandClock(12_345))
    assert reader.latestOffset() == reader.initialOffset()
    reader.partitions({"ms": 7}, {"ms": 7})
    assert reader.latestOffset() == {"ms": 7}


def test_a_batch_with_a_tick_has_one_row_of_its_time():
    reader = pickle.loads(pickle.dumps(UnlimitedTicksReader(1000)))
    [partition] = reader.partitions({"ms": 0}, {"ms": 12_000})
    [batch] = reader.read(partition)
    assert batch.schema == pa.schema([("tick", pa.timestamp("us", "UTC"))])
    assert batch["tick"].cast(pa.int64()).to_pylist() == [12_000_000]


@pytest.mark.skipif(SPARK_RELEASE < (4, 2), reason="Spark asks for a limit from 4.2 on")
def test_available_now_reads_no_tick_after_its_beginning():
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from holdfast.spark.tick_admission import AdmissionTicksReader

    clock = HandClock(5_500)
    reader = AdmissionTicksReader(1000, clock)
    everything = ReadAllAvailable()
    assert reader.latestOffset({"ms": 2_000}, everything) == {"ms": 5_000}
    assert reader.latestOffset({"ms": 9_000}, everything) == {"ms": 9_000}
    reader.prepareForTriggerAvailableNow()
    clock.ms = 60_000
    assert reader.latestOffset({"ms": 2_000}, everything) == {"ms": 5_000}
    assert reader.latestOffset({"ms": 5_000}, everything) == {"ms": 5_000}


def test_the_source_makes_the_reader_of_the_spark_at_hand():
    source = TicksDataSource({"intervalMs": "250"})
    reader: Any = source.streamReader(source.schema())
    assert reader.interval_ms == 250


def test_timers_need_to_be_told_how_long_they_may_wait():
    timers = (hf.Timers("event"),)
    with pytest.raises(hf.InvalidRequest, match=r"has the timers ''.*ticks=\"10 seconds\" adds a source of ticks"):
        interval_ms(None, timers, "operator 'x'")
    assert interval_ms("10 seconds", timers, "x") == 10_000
    assert interval_ms("never", timers, "x") is None
    assert interval_ms(None, (), "x") is None
    assert interval_ms("never", (), "x") is None
    assert interval_ms("10 seconds", (), "x") == 0, "silent until there are timers"
    with pytest.raises(hf.InvalidRequest, match=r"ticks: .*; or \"never\""):
        interval_ms("soon", timers, "x")
    with pytest.raises(hf.InvalidRequest, match="expected a duration above 0"):
        interval_ms("0 s", timers, "x")
