"""A processor under test whose states live by event time, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import Backend

import holdfast as hf
from holdfast.testing import Harness

IN = "user string, amount long"
TTL_MS = 60_000


@pytest.fixture(params=["rocksdb", "hashmap"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


class ByEvents(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum", ttl=hf.TTL("1 min", time="event"))

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        self.total.add_only(batch, batch["amount"])
        yield from ()


def test_event_time_expires_by_the_watermark(backend: Backend) -> None:
    events = "user string, amount long, at timestamp"

    def event(user: str, at_s: int) -> list[dict[str, Any]]:
        return [{"user": user, "amount": 1, "at": datetime.fromtimestamp(at_s, timezone.utc)}]

    with Harness(ByEvents(), "user", events, "user string", event_time="at", backend=backend) as harness:
        harness.watermark_ms = 1_000
        harness.process(event("ada", 100))
        harness.watermark_ms = 159_999
        harness.process(event("bob", 200))
        assert harness.state("total") == {"ada": 1, "bob": 1}, "ada's goes by her event, not by the watermark then"
        harness.advance(10 * TTL_MS)
        harness.process(event("bob", 200))
        assert harness.state("total") == {"ada": 1, "bob": 2}, "event time has not moved"
        harness.watermark_ms = 160_000
        harness.process(event("eve", 200))
        assert harness.state("total") == {"bob": 2, "eve": 1}


def test_rows_of_an_earlier_event_time_make_nothing_older(backend: Backend) -> None:
    """A batch of older rows made what it added to expire by their time, though a later row had been added before."""
    events = "user string, amount long, at timestamp"

    def event(at_s: int) -> list[dict[str, Any]]:
        return [{"user": "ada", "amount": 1, "at": datetime.fromtimestamp(at_s, timezone.utc)}]

    with Harness(ByEvents(), "user", events, "user string", event_time="at", backend=backend) as harness:
        for watermark_s, at_s, total in [(0, 200, 1), (150, 160, 2), (230, 235, 3)]:
            harness.watermark_ms = watermark_s * 1_000
            harness.process(event(at_s))
            assert harness.state("total") == {"ada": total}


def test_a_ttl_by_event_time_needs_a_column() -> None:
    with pytest.raises(hf.InvalidRequest, match="'total' goes by event time.*event_time=column"):
        Harness(ByEvents(), "user", IN, "user string")
    with pytest.raises(hf.InvalidRequest, match="event_time is 'amount'; expected a timestamp"):
        Harness(ByEvents(), "user", IN, "user string", event_time="amount")
    with pytest.raises(hf.InvalidRequest, match=r"event_time 'at' is a timestamp without a zone.*cast it.*timestamp"):
        Harness(ByEvents(), "user", "user string, amount long, at timestamp_ntz", "user string", event_time="at")
