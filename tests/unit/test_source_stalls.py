"""`hf.metrics` says which partitions wait for an open transaction: what a source tells, out of Spark's progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

import holdfast as hf
from holdfast.source.kafka.cluster import Topics
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.subscription import Partition
from holdfast.spark.source_stalls import stalls_in

TOPIC, WAITS, FLOWS = "clicks-of-2", ("clicks-of-2", 3), ("clicks-of-2", 4)
NOW_MS = 1_800_000_000_000


class StalledCluster:
    """Two partitions that stand still; records wait in one of them."""

    reads_committed = True
    high = 12

    def available(self) -> tuple[Topics, dict[Partition, int]]:
        return Topics([WAITS, FLOWS], {TOPIC: "id"}), {WAITS: 5, FLOWS: 9}

    def high_watermarks(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {key: {WAITS: self.high, FLOWS: 9}[key] for key in partitions}


class Moving:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return NOW_MS + int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms


def newest(seconds: int, cluster: Any) -> dict[str, Any]:
    """What a source tells that was asked once a second."""
    options = SourceOptions.parse({"kafka.bootstrap.servers": "b:9092", "subscribe": TOPIC}, streaming=True)
    clock = Moving()
    planner = StreamPlanner(options, cluster, clock)
    told = planner.newest()
    for _ in range(seconds):
        clock.ms += 1000
        told = planner.newest()
    return told


def progress(*latest: Any, end: str = "null") -> Any:
    """Of a query with these sources, as Spark 4.2 and later have it where no batch ran."""
    sources = [
        SimpleNamespace(endOffset=end, latestOffset=one if isinstance(one, str) else json.dumps(one)) for one in latest
    ]
    return SimpleNamespace(sources=sources, observedMetrics={}, batchId=3, runId="of-this-run")


class Idle(StreamingQuery):
    """A query with no batch to run."""

    def __init__(self, last: Any) -> None:
        self.last = last

    @property
    def lastProgress(self) -> Any:
        return self.last

    @property
    def recentProgress(self) -> Any:
        return [self.last]


def test_a_query_that_waits_for_somebodys_transaction_says_so() -> None:
    """Lag was 0, no batch came, and `hf.metrics` had nothing to say."""
    other = '{"source": "another", "waiting": "for nobody"}'
    found = hf.metrics(Idle(progress(other, newest(40, StalledCluster()))))
    assert found == {}
    assert found.stalls == (hf.SourceStall(1, TOPIC, 3, 5, 12, NOW_MS + 5_000, 35_000),)
    assert found.stalls[0].records_waiting == 7
    assert "clicks-of-2" in repr(found)
    assert json.loads(json.dumps(found.to_dict())) == {
        "operators": {},
        "stalls": [
            {
                "source": 1,
                "topic": TOPIC,
                "partition": 3,
                "last_stable_offset": 5,
                "high_watermark": 12,
                "since_ms": NOW_MS + 5_000,
                "waiting_ms": 35_000,
                "records_waiting": 7,
            }
        ],
    }


def test_where_nothing_waits_that_is_said() -> None:
    cluster = StalledCluster()
    cluster.high = 5
    assert hf.metrics(Idle(progress(newest(40, cluster)))).stalls == ()
    assert hf.metrics(Idle(progress())).stalls == (), "no source of Kafka"
    assert hf.metrics(Idle(progress("-1", "null", "None", "[7]", '{"a": {"0": 4}}'))).stalls == ()


def test_a_source_that_cannot_say_is_not_said_to_flow() -> None:
    """Spark 4.0 and 4.1 report where a batch ends, and ask for nothing newer; and before the first progress."""
    content = newest(40, StalledCluster())
    waiting = content.pop("waiting")
    assert hf.metrics(Idle(progress({**content, "source": "5f0c"}))).stalls is None
    for end in (json.dumps(content), str(content)):  # PySpark 4.0 has the second
        assert hf.metrics(Idle(progress("None", end=end))).stalls is None
    assert hf.metrics(Idle(None)).stalls is None
    found = stalls_in(progress(content, {**content, "waiting": waiting}))
    assert found is not None
    assert len(found) == 1


@pytest.mark.parametrize("figures", [7, {}, {"high_watermark": 3}, {"last_stable_offset": "1"}])
def test_what_a_later_holdfast_tells_otherwise_is_left_out(figures: Any) -> None:
    content = newest(40, StalledCluster())
    content["waiting"] |= {"t-1": figures, "t": content["waiting"][f"{TOPIC}-3"]}
    found = stalls_in(progress(content))
    assert found is not None
    assert [one.topic for one in found] == [TOPIC]


_LONG = json.dumps({"format": 1, "offsets": {}, "topic_ids": {}, "waiting": {"t-" + "1" * 9000: {}}})


@pytest.mark.parametrize("offset", ["[" * 100_000, _LONG])
def test_an_offset_that_nobody_can_read_is_another_sources(offset: str) -> None:
    assert len(stalls_in(progress(newest(40, StalledCluster()), offset)) or ()) == 1


def test_what_is_told_can_be_copied_as_other_dicts_are() -> None:
    @dataclass
    class Report:
        of_query: hf.QueryMetrics

    assert asdict(Report(hf.metrics(Idle(None)))) == {"of_query": {}}


def test_a_listener_is_told_with_each_batch() -> None:
    told: list[hf.BatchMetrics] = []
    batch = progress(newest(40, StalledCluster()))
    batch.observedMetrics = {"holdfast.a.1": {"slots": ['{"slot": 0}']}}
    batch.id, batch.runId, batch.name = "q", "r", None
    hf.MetricsListener(told.append).onQueryProgress(SimpleNamespace(progress=batch))  # type: ignore[arg-type]
    assert told[0].stalls is not None
    assert told[0].stalls[0].high_watermark == 12
    assert told[0].to_dict()["stalls"][0]["records_waiting"] == 7
