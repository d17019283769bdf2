"""Where the harness could say one thing and Spark another: what `hf.keyed` and its tasks refuse, and what a processor
is told before anything has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Harness

UTC = timezone.utc
IN = "user string, amount long"
ADA = {"user": "ada", "amount": 1}


class Echo(hf.BatchProcessor):
    """Has no state."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield batch


def test_before_the_first_watermark_it_is_0_as_in_spark_and_none_without_a_column_that_it_goes_by() -> None:
    class Marks(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
            yield {"mark": ctx.watermark_ms, "told": ctx.watermark is not None}

    timed, marks = IN + ", at timestamp", "mark long, told boolean"
    event = [{"user": "ada", "amount": 1, "at": datetime.fromtimestamp(9, UTC)}]
    with Harness(Marks(), "user", timed, marks, event_time="at", late="drop") as harness:
        assert harness.watermark_ms == 0
        assert harness.process(event).to_pylist() == [{"mark": 0, "told": False}]
        harness.watermark_ms = 5
        assert harness.process(event).to_pylist() == [{"mark": 5, "told": True}]
        assert harness.replay().to_pylist() == [{"mark": 5, "told": True}]
    with Harness(Marks(), "user", IN, marks) as harness:
        assert harness.watermark_ms is None
        assert harness.process([ADA]).to_pylist() == [{"mark": None, "told": False}]


def test_timers_that_a_query_refuses_are_refused() -> None:
    class Alarm(hf.KeyedProcessor):
        due = hf.Timers("event")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            return None

        def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> None:
            return None

    class BatchAlarm(hf.BatchProcessor):
        due = hf.Timers("processing")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            return None

        def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            return None

    with pytest.raises(hf.InvalidRequest, match="timers 'due' go by event time, and there is no watermark.*event_time"):
        Harness(Alarm(), "user", IN, IN)
    with pytest.raises(hf.InvalidRequest, match="key column 'time' has the name of a column that on_timers"):
        Harness(BatchAlarm(), "time", "time timestamp", IN)
    Harness(Alarm(), "time", "time timestamp", IN, event_time="time").close()
    with (
        Harness(Echo(), "user", IN, IN) as harness,
        pytest.raises(hf.InvalidRequest, match="timers 'due' go by event time"),
    ):
        harness.restart(Alarm())


def test_a_null_key_is_refused_as_a_query_refuses_it_also_where_no_state_is_asked() -> None:
    class EchoTwo(hf.BatchProcessor):
        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            return None

        process_payments = process_orders

    nobody = [{"user": None, "amount": 1}]
    with Harness(Echo(), "user", IN, IN) as harness:
        with pytest.raises(hf.InvalidRequest, match=r"key column 'user' is null at row 1.*null_keys=True"):
            harness.process([ADA, *nobody])
        assert harness.process([ADA]).num_rows == 1
        assert harness.replay().num_rows == 1
    with Harness(Echo(), "user", IN, IN, null_keys=True) as harness:
        assert harness.process(nobody).to_pylist() == nobody
    with Harness(EchoTwo(), {"orders": "id", "payments": "of"}, {"orders": "id long", "payments": "of long"}, IN) as h:
        with pytest.raises(hf.InvalidRequest, match="is null at row 0"):
            h.process(orders=[{"id": 1}], payments=[{"of": None}])


def test_a_name_that_a_query_refuses_is_refused() -> None:
    with pytest.raises(hf.InvalidRequest, match="expected a printable name for the operator"):
        Harness(Echo(), "user", IN, IN, name=" ")


def test_nan_is_one_key_of_those_that_came_in() -> None:
    class Total(hf.BatchProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.total.add_only(batch, batch["amount"])

    with Harness(Total(), "at", "at double, amount long", IN) as harness:
        for _ in range(2):
            harness.process([{"at": float("nan"), "amount": 1}, {"at": float("nan"), "amount": 2}])
        assert list(harness.state("total").values()) == [6]


def test_times_are_whole_milliseconds_whoever_counts_them() -> None:
    """A float came as far as the core, and an integer of numpy's as far as a handle, which is JSON."""

    class Seen(Echo):
        seen = hf.ValueState(pa.int64(), ttl=hf.TTL("1 h", time="event"))

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            self.seen.put(batch, 1)
            yield batch

    schema, noon_ms = "user string, at timestamp", 1_800_014_400_000
    with Harness(Seen(), "user", schema, schema, event_time="at") as harness:
        before = (harness.watermark_ms, harness.timestamp_ms)
        wrong: tuple[Any, ...] = (float(noon_ms), np.float64(noon_ms), str(noon_ms), None, datetime.now(UTC))
        for value in wrong:
            with pytest.raises(hf.InvalidRequest, match=r"watermark_ms: expected whole milliseconds, an int, found"):
                harness.watermark_ms = value
            with pytest.raises(hf.InvalidRequest, match=r"timestamp_ms: expected whole milliseconds, an int, found"):
                harness.timestamp_ms = value
            with pytest.raises(hf.InvalidRequest, match=r"advance: expected whole milliseconds, an int, found"):
                harness.advance(value)
        assert (harness.watermark_ms, harness.timestamp_ms) == before
        counted: Any = np.int64(noon_ms)
        harness.watermark_ms = harness.timestamp_ms = counted
        harness.advance(np.int32(5))  # type: ignore[arg-type]
        harness.process([{"user": "ada", "at": datetime(2027, 1, 15, 12, tzinfo=UTC)}])
        assert harness.state("seen") == {"ada": 1}
        assert repr((harness.watermark_ms, harness.timestamp_ms)) == repr((noon_ms, noon_ms + 5))


FAR = pa.array([10**15, 3 * 10**17], pa.timestamp("us", "UTC"))  # the second is past the year 9999
TEXT = pa.array([b"ada", b"\xff"], pa.binary()).view(pa.string())


@pytest.mark.parametrize(("key", "keys"), [("at timestamp", FAR), ("user string", TEXT)], ids=["year", "text"])
def test_a_key_that_has_no_python_value_is_one_in_a_batch_processor(key: str, keys: pa.Array) -> None:
    """The batch was committed, and then its output lost: the harness listed the keys that came in."""

    class Total(hf.BatchProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            yield batch.set_column(1, "amount", self.total.add(batch, batch["amount"]))

    name = key.split()[0]
    batch = pa.record_batch({name: keys, "amount": pa.array([1, 2])})
    with Harness(Total(), name, f"{key}, amount long", f"{key}, amount long") as harness:
        for n in (1, 2):
            found = harness.process(batch)
            assert found["amount"].to_pylist() == [n, 2 * n]
            assert found[name].combine_chunks().equals(keys)
        assert harness.replay()["amount"].to_pylist() == [2, 4]
        assert harness.state("total") == {keys[0].as_py(): 2}


def test_what_pandas_has_no_value_of_is_null() -> None:
    """A column of integers was refused for its NaN, and of doubles a processor got NaN where a query has null."""
    schema = "user string, n long, x double, at timestamp, tags array<string>"
    frame = pd.DataFrame(
        {
            "x": [1.5, None, float("nan")],
            "n": [1, None, 2],
            "user": ["ada", "bob", "eve"],
            "at": pd.to_datetime(["2027-01-15", "NaT", "2027-01-16"], utc=True),
            "tags": [["a"], None, []],
        }
    )
    at = [datetime(2027, 1, 15, tzinfo=UTC), None, datetime(2027, 1, 16, tzinfo=UTC)]
    with Harness(Echo(), "user", schema, schema) as harness:
        found = harness.process(frame, frame[:0])
        assert found["n"].to_pylist() == [1, None, 2]
        assert found["x"].to_pylist() == [1.5, None, None]
        assert found["at"].to_pylist() == at
        assert found["tags"].to_pylist() == [["a"], None, []]
        for wrong, told in (
            (frame.drop(columns="n"), "expected the columns user, n, x, at, tags, found x, user, at, tags"),
            (pd.concat([frame, frame[["n"]]], axis=1), "expected the columns .*, found x, n, user, at, tags, n"),
            (pd.DataFrame(), "found none"),
            (frame.assign(n=[1, 2.5, 3]), "column 'n'"),
            (frame.assign(user=1), "column 'user'"),
        ):
            with pytest.raises(hf.InvalidRequest, match=told):
                harness.process(wrong)
