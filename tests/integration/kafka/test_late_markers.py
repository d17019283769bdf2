"""A commit is done when a reader sees its rows, and no sooner: Kafka answers when the coordinator has written the end
down, and the markers, which make rows visible, may take seconds more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.faults.eos_cluster_world import LateMarkersWorld
from tests.kafka_reading import read_committed

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Outcome, Scope, SinkTask
from holdfast.sink.kafka import KafkaSink

TOPIC = "by-user"


@pytest.fixture
def late(tmp_path: Path) -> Iterator[LateMarkersWorld]:
    world = LateMarkersWorld(tmp_path)
    world.open()
    yield world
    world.close()


def test_a_commit_is_done_no_sooner_than_a_reader_sees_its_rows(late: LateMarkersWorld) -> None:
    servers = late.cluster.bootstrap_servers
    sink, scope = KafkaSink(servers, TOPIC), Scope("query", "run", 1, "kafka")
    sink.check(pa.schema({"key": pa.string(), "value": pa.string()}), CommitLimits(None, 60_000, 20))
    scope = replace(scope, claim=sink.claim(scope, Driver("run", "localhost", 1, 0), [], lambda traces: None))
    expected: list[bytes] = []
    for batch in range(5):
        prepared = []
        for partition in range(2):
            writer = sink.open(SinkTask(scope, batch, partition, 0, 2 * batch + partition))
            value = f"v{batch}-{partition}"
            writer.write(pa.RecordBatch.from_pydict({"key": [f"k{partition}"], "value": [value]}))
            expected.append(value.encode())
            prepared.append(writer.prepare())
        began = time.monotonic()
        assert sink.commit(scope, [one for one in prepared if one is not None]) == [Outcome.DONE] * 2
        took = time.monotonic() - began
        assert sorted(read_committed(servers, TOPIC)) == expected
        if took > 1.0:
            return
    pytest.fail("expected markers that are late: of five batches none took a second to commit")
