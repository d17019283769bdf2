"""A batch of which output is visible runs again, and the program that starts then has rows or timers for fewer slots
than the one before. State and output still come from the same run.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.lossy_sink import LossyFileSink
from tests.processors import TOTALS, RunningTotal
from tests.silence_oracle import START
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark
USERS = [f"u{number}" for number in range(16)]
FEW = "user in ('u0', 'u5')"
SLOTS = {"slots": 4, "maxParallelism": 16}


def with_timers() -> hf.KeyedProcessor:
    class Invoices(hf.KeyedProcessor):
        """An hour after a user's last row, the user is sent what is open."""

        open_sum = hf.ReducingState(pa.int64(), "sum")
        due = hf.Timers("event")

        def process(self, key, rows, ctx):
            for amount in rows["amount"].to_pylist():
                self.open_sum.add(amount)
            self.due.register(max(rows["ts"].to_pylist()) + timedelta(hours=1))

        def on_timer(self, key, time, namespace, ctx):
            yield key[0], self.open_sum.get()
            self.open_sum.clear()

    return Invoices()


def without_timers() -> hf.KeyedProcessor:
    class Invoices(hf.KeyedProcessor):
        open_sum = hf.ReducingState(pa.int64(), "sum")
        due = hf.DroppedState()

        def process(self, key, rows, ctx):
            for amount in rows["amount"].to_pylist():
                self.open_sum.add(amount)

    return Invoices()


def in_one_stage(rows: DataFrame) -> DataFrame:
    return rows


def before_a_shuffle(rows: DataFrame) -> DataFrame:
    return rows.repartition(3, "user")


def amounts(users: list[str], amount: int) -> pa.Table:
    return pa.table({"user": users, "amount": [amount] * len(users)})


def run(stream: FileStream, sink: hf.FileSink, placed: Callable[[DataFrame], DataFrame], where: str = "true") -> None:
    operator = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=SLOTS)
    rows = placed(stream.events().where(where).transform(operator))
    query = hf.write_exactly_once(rows, sink, checkpoint=stream.checkpoint, trigger={"availableNow": True})
    query.awaitTermination()


def visible(path: str) -> dict[str, int]:
    """The newest total of each user that a reader of the output sees."""
    newest: dict[str, int] = {}
    for row in hf.FileSink.read(path).to_pylist():
        newest[row["user"]] = max(row["total"], newest.get(row["user"], 0))
    return newest


def kept(stream: FileStream, operator: str, state: str) -> dict[str, int]:
    with hf.Checkpoint(stream.checkpoint, state=stream.spark.conf.get("spark.holdfast.checkpoint.dir")) as checkpoint:
        table = checkpoint.read(operator, state).read_all()
    return dict(zip(table["user"].to_pylist(), table["value"].to_pylist()))


@pytest.mark.parametrize("placed", [in_one_stage, before_a_shuffle])
def test_slots_whose_rows_are_kept_out_now_have_the_state_of_what_is_visible(
    stream: FileStream, tmp_path: Path, placed: Callable[[DataFrame], DataFrame]
) -> None:
    """They were not called: the next batch went on from the state before, and the visible totals were counted anew."""
    stream.write(amounts(USERS, 10), amounts(USERS, 1))
    sink = hf.FileSink(str(tmp_path / "out"))
    run(stream, sink, placed)
    stream.roll_back(1)
    run(stream, sink, placed, FEW)
    assert visible(sink.path) == kept(stream, "totals", "total") == dict.fromkeys(USERS, 11)


@pytest.mark.parametrize("placed", [in_one_stage, before_a_shuffle])
def test_slots_that_a_batch_did_not_call_take_nothing_over_from_the_next_one(
    stream: FileStream, tmp_path: Path, placed: Callable[[DataFrame], DataFrame]
) -> None:
    stream.write(amounts(USERS, 10), amounts(["u0"], 1), amounts(USERS, 1))
    sink = hf.FileSink(str(tmp_path / "out"))
    run(stream, sink, placed)
    files = versions(stream)
    stream.roll_back(2)
    with pytest.raises(hf.Incompatible, match="batch 2 runs again with other offsets"):
        run(stream, sink, placed)
    assert stream.committed() == [0, 1]
    assert kept(stream, "totals", "total") == {**dict.fromkeys(USERS, 10), "u0": 11}
    assert versions(stream) == files != set(), "no slot made a version"


def versions(stream: FileStream) -> set[str]:
    folder = Path(stream.spark.conf.get("spark.holdfast.checkpoint.dir") or "")
    return {str(path) for path in folder.rglob("delta/*.arrow")}


def test_timers_that_fired_visibly_have_fired_though_the_program_has_them_no_more(
    stream: FileStream, tmp_path: Path
) -> None:
    """What had been sent stood open again."""
    path = str(tmp_path / "out")

    def invoices(processor: hf.KeyedProcessor) -> None:
        operator = hf.keyed(
            "user",
            processor,
            "user string, invoice long",
            name="invoices",
            watermark=("ts", "0 seconds"),
            ticks="never",
            settings=SLOTS,
        )
        rows = stream.events().transform(operator)
        query = hf.write_exactly_once(
            rows, hf.FileSink(path), checkpoint=stream.checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()

    def events(users: list[str], hours: float) -> pa.Table:
        times = pa.array([START + timedelta(hours=hours)] * len(users), pa.timestamp("us", "UTC"))
        return pa.table({"user": users, "ts": times, "amount": pa.array([10] * len(users), pa.int64())})

    stream.write(events(USERS, 0), events(["z"], 5))
    invoices(with_timers())
    stream.write(events(["z"], 5.5))
    invoices(with_timers())
    assert hf.FileSink.read(path).num_rows == len(USERS)
    assert kept(stream, "invoices", "open_sum") == {"z": 20}
    stream.roll_back(1)
    invoices(without_timers())
    assert hf.FileSink.read(path).num_rows == len(USERS)
    assert kept(stream, "invoices", "open_sum") == {"z": 20}


@pytest.mark.parametrize("placed", [in_one_stage, before_a_shuffle])
def test_lost_output_is_not_written_without_rows_that_are_kept_out_now(
    stream: FileStream, tmp_path: Path, placed: Callable[[DataFrame], DataFrame]
) -> None:
    stream.write(amounts(USERS, 10), amounts(USERS, 1))
    sink = LossyFileSink(str(tmp_path / "out"), batch_id=1, partitions=(1,))
    with pytest.raises(hf.Unavailable, match="this was lost"):
        run(stream, sink, placed)
    with pytest.raises(hf.Incompatible, match="as it was before once more, until batch 1 is committed"):
        run(stream, sink, placed, FEW)
    run(stream, sink, placed)
    assert visible(sink.path) == kept(stream, "totals", "total") == dict.fromkeys(USERS, 11)
