"""Slots that get no rows, while time goes on for the others: what expires meanwhile is gone for whoever reads the state
as of a later batch, saves it or begins with it; and for the slot itself once rows come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.first_versions import begun, first_versions
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.inspect.earlier import EarlierQuery
from holdfast.storage import StorageOptions
from holdfast.testing.harness import QUERY_ID, Harness

TTL_MS = 60_000
NOON_MS = 1_800_000_000_000
STATE = "seen"
NAME = "under-test"


class OnceByClock(hf.KeyedProcessor):
    seen = hf.ValueState(pa.int64(), ttl=TTL_MS)

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> Iterator[Any]:
        self.seen.update(rows.num_rows)
        yield from ()


class OnceByEvents(OnceByClock):
    seen = hf.ValueState(pa.int64(), ttl=hf.TTL(TTL_MS, time="event"))


@pytest.fixture(params=["processing", "event", "no watermark yet"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A row in batch 0, at noon; none in batch 1, a moment before it expires, nor in batch 2, when it does."""
    by_events = request.param != "processing"
    spark = SparkFiles(tmp_path / "checkpoint", QUERY_ID)
    row = {"user": "ada", "at": datetime.fromtimestamp(NOON_MS / 1000, timezone.utc)}
    with Harness(
        OnceByEvents() if by_events else OnceByClock(),
        "user",
        "user string, at timestamp",
        "user string",
        event_time="at" if by_events else None,
        folder=tmp_path,
    ) as harness:
        harness.timestamp_ms = NOON_MS
        if request.param == "event":
            harness.watermark_ms = NOON_MS - TTL_MS
        harness.process([row])
        handle = harness.snapshot().handle
        assert handle is not None
        for batch_id, passed_ms in enumerate([0, TTL_MS - 1, TTL_MS]):
            began_ms = NOON_MS + passed_ms if by_events and batch_id else 0
            timestamp_ms = NOON_MS + (0 if by_events else passed_ms)
            spark.commit(
                batch_id, [handle.to_text()], timestamp_ms=timestamp_ms, began_ms=began_ms, watermark_ms=NOON_MS * 2
            )
    return tmp_path


def found(source: Any, **batch: int) -> list[str]:
    return list(source.read(NAME, STATE, **batch).read_all()["user"].to_pylist())


def test_readers_go_by_the_time_of_the_batch(query: Path) -> None:
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        # The later one first: what it leaves out must still be there for the earlier one.
        assert [found(checkpoint, batch_id=batch_id) for batch_id in (2, 1, 0)] == [[], ["ada"], ["ada"]]
        changes = checkpoint.diff(NAME, STATE, 1, 2).read_all().to_pylist()
        assert [(row["change"], row["user"]) for row in changes] == [("removed", "ada")]
        assert checkpoint.diff(NAME, STATE, 0, 1).read_all().num_rows == 0


@pytest.mark.parametrize("format", ["canonical", "native"])
def test_savepoints_go_by_the_time_of_the_batch(query: Path, format: Literal["canonical", "native"]) -> None:
    for batch_id, users in [(2, []), (1, ["ada"])]:
        to = query / f"saved-{batch_id}"
        saved = hf.Savepoint.create(checkpoint=query / "checkpoint", to=to, batch_id=batch_id, format=format)
        assert found(saved) == users
        assert found(saved.convert(query / f"converted-{batch_id}")) == users
        with first_versions(begun(to, NAME, slots=2), query / f"next-{batch_id}") as checkpoint:
            assert found(checkpoint) == users


def test_a_query_that_begins_with_the_state_goes_by_the_time_of_the_batch(query: Path) -> None:
    """A longer TTL in the new query brought back what had expired; a deduplication dropped a new row as a repeat."""
    for batch_id, users in [(2, []), (1, ["ada"])]:
        earlier = EarlierQuery(str(query / "checkpoint"), str(query / "state"), batch_id, StorageOptions(), None)
        recorded, origin = earlier.operator(NAME, "here", None)
        declared = replace(recorded, slots=2, labels=(0, 1), inputs=())
        record = continued(recorded, declared, origin, NOTHING_SAID)
        assert OperatorRecord.from_json(record.to_json()) == record
        with first_versions(record, query / f"next-{batch_id}") as checkpoint:
            assert found(checkpoint) == users
