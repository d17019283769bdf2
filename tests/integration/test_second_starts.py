"""A query begins with the state of an earlier one. Its first start comes to nothing, and its second one says something
else of that beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from tests.streams import FileStream

import holdfast as hf

pytestmark = pytest.mark.spark
EVENTS = "user string, amount long"
USERS = [f"u{number}" for number in range(6)]


def sums(name: str, fails: bool = False) -> hf.BatchProcessor:
    """Adds amounts up in a state of this name."""

    def process(self, batch, ctx):
        if fails:
            raise ValueError("a mistake of the program's")
        getattr(self, name).add_only(batch["user"], batch["amount"])
        return batch

    return type("Sums", (hf.BatchProcessor,), {name: hf.ReducingState(pa.int64(), "sum"), "process": process})()


def amounts(amount: int) -> pa.Table:
    return pa.table({"user": USERS, "amount": pa.array([amount] * len(USERS), pa.int64())})


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_is_said_of_states_is_not_corrected_on_the_same_checkpoint(
    streams: Callable[[str], FileStream], tmp_path: Path, exactly_once: bool
) -> None:
    """The correction was ignored without a word: the sums began with nothing."""
    old, new = streams("old"), streams("new")
    old.write(amounts(100))
    old.run(hf.keyed("user", sums("total"), EVENTS, name="sums"))
    new.write(amounts(1))

    def start(checkpoint: Path, fails: bool = False, **said: Any) -> None:
        restore = hf.Restore(old.checkpoint).operator(**said)
        rows = new.events().transform(hf.keyed("user", sums("sum", fails), EVENTS, name="sums", restore=restore))
        if exactly_once:
            sink, trigger = hf.FileSink(str(tmp_path / "out")), {"availableNow": True}
            hf.write_exactly_once(rows, sink, checkpoint=checkpoint, trigger=trigger).awaitTermination()
        else:
            writer = rows.writeStream.format("noop").trigger(availableNow=True)
            hf.start(writer, checkpoint=checkpoint).awaitTermination()

    with pytest.raises(Exception, match="a mistake of the program's"):
        start(new.checkpoint, fails=True, dropped=["total"], added=["sum"])
    with pytest.raises(
        hf.Incompatible, match="state 'total' of the origin: recorded as left behind, declared as going"
    ):
        start(new.checkpoint, renamed={"total": "sum"})
    start(tmp_path / "another", renamed={"total": "sum"})
    with hf.Checkpoint(tmp_path / "another", state=tmp_path / "state") as checkpoint:
        table = checkpoint.read("sums", "sum").read_all()
    assert dict(zip(table["user"].to_pylist(), table["value"].to_pylist())) == dict.fromkeys(USERS, 101)


def decades() -> type[DataSource]:
    class Reader(DataSourceStreamReader):
        """Row n is 10^n of one user; six of them. ``down``: it fails while Spark plans a batch."""

        def __init__(self, options):
            self.options = options

        def initialOffset(self):
            return {"n": int(self.options["start"])}

        def latestOffset(self, *limits):
            if self.options["down"] == "yes":
                raise ConnectionError("the brokers do not answer")
            return {"n": 6}

        def partitions(self, start, end):
            return [InputPartition((start["n"], end["n"]))]

        def read(self, partition):
            for n in range(*partition.value):
                yield "ada", 10**n

        def commit(self, end):
            pass

    class Decades(DataSource):
        @classmethod
        def name(cls):
            return "decades"

        def schema(self):
            return EVENTS

        def streamReader(self, schema):
            return Reader(self.options)

    return Decades


@pytest.mark.parametrize("went_on", [True, False])
def test_offsets_are_planned_after_the_batch_whose_state_was_recorded(
    streams: Callable[[str], FileStream], tmp_path: Path, went_on: bool
) -> None:
    """Rows between the two batches were lost, or counted twice, without a word: the earlier query had gone on between
    two starts, or ``batch_id`` was corrected.
    """
    old = streams("old")
    old.spark.dataSource.register(decades())

    def write(*decade: int) -> None:
        """The earlier query reads decade n in its batch n."""
        old.write(*(pa.table({"user": ["ada"], "amount": pa.array([10**n], pa.int64())}) for n in decade))
        old.run(hf.keyed("user", sums("total"), EVENTS, name="sums"))

    def start(checkpoint: Path, restore: hf.Restore, at: int, down: str = "no") -> None:
        events = old.spark.readStream.format("decades").option("start", at).option("down", down).load()
        rows = events.transform(hf.keyed("user", sums("total"), EVENTS, name="sums", restore=restore))
        sink, trigger = hf.FileSink(str(tmp_path / f"{checkpoint.name}-out")), {"availableNow": True}
        hf.write_exactly_once(rows, sink, checkpoint=checkpoint, trigger=trigger).awaitTermination()

    def total(checkpoint: Path) -> list[int]:
        with hf.Checkpoint(checkpoint, state=tmp_path / "state") as found:
            return found.read("sums", "total").read_all()["value"].to_pylist()

    write(*range(2 if went_on else 4))
    new, another = tmp_path / "new", tmp_path / "another"
    with pytest.raises(Exception, match="the brokers do not answer"):
        start(new, hf.Restore(old.checkpoint), 2 if went_on else 4, down="yes")
    if went_on:
        write(2, 3)
        restore, at = hf.Restore(old.checkpoint), 4
    else:
        restore, at = hf.Restore(old.checkpoint, batch_id=1), 2
    with pytest.raises(hf.Incompatible, match="the query has planned no offsets yet"):
        start(new, restore, at)
    start(another, restore, at)
    assert total(another) == [111111]
    first = hf.Restore(old.checkpoint, batch_id=1 if went_on else 3)
    start(new, first, 2 if went_on else 4)
    assert total(new) == [111111]
