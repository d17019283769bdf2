"""A query whose state folder was lost, or that names another one, is refused before it starts: it began with nothing,
without a word, where it had another number of slots too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.processors import TOTALS, RunningTotal
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = pa.table({"user": ["a", "b", "a"], "amount": [1, 2, 3]})
PROVIDERS = "org.apache.spark.sql.execution.streaming.state."


class Program:
    """The query, as a program that is started anew each time."""

    def __init__(self, stream: FileStream, forget: Callable[[], None]) -> None:
        self.stream, self._forget = stream, forget

    def frame(self, name: str = "totals") -> DataFrame:
        self._forget()
        return self.stream.events().transform(hf.keyed("user", RunningTotal(), TOTALS, name=name))

    def run(self, name: str = "totals") -> None:
        writer = self.frame(name).writeStream.format("noop").trigger(availableNow=True)
        hf.start(writer, checkpoint=self.stream.checkpoint).awaitTermination()

    def run_exactly_once(self, out: Path) -> None:
        sink, checkpoint = hf.FileSink(str(out)), self.stream.checkpoint
        hf.write_exactly_once(
            self.frame(), sink, checkpoint=checkpoint, trigger={"availableNow": True}
        ).awaitTermination()


@pytest.fixture
def program(stream: FileStream, monkeypatch: pytest.MonkeyPatch) -> Program:
    stream.write(EVENTS, EVENTS)
    return Program(stream, lambda: monkeypatch.setattr(declared_operators, "_declared", {}))


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_a_state_folder_that_was_lost_is_told_whatever_the_number_of_slots(
    program: Program, spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS + provider)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    program.run()
    program.stream.write(EVENTS)
    (tmp_path / "state").rename(tmp_path / "not mounted")
    for slots in ("8", "2"):
        spark.conf.set("spark.sql.shuffle.partitions", slots)
        with pytest.raises(hf.Incompatible, match=r"operator 'totals': .* and .*/state has nothing of it"):
            program.run()
        with pytest.raises(hf.Incompatible, match=r"operator 'totals': .* and .*/state has nothing of it"):
            program.run_exactly_once(tmp_path / "out")
    assert program.stream.committed() == [0, 1]
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    (tmp_path / "not mounted").rename(tmp_path / "state")
    program.run()
    assert program.stream.committed() == [0, 1, 2]


def test_an_operator_of_another_name_and_number_of_slots_is_told(program: Program, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    program.run()
    program.stream.write(EVENTS)
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    with pytest.raises(hf.Incompatible, match="declares no operator of that name, but 'sums'"):
        program.run("sums")


def test_so_it_is_in_the_session_that_declared_it_under_its_first_name(
    program: Program, spark: SparkSession, tmp_path: Path
) -> None:
    """A notebook whose cell was edited: the first name has a record, and the query has no such operator any more."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    program.run_exactly_once(tmp_path / "out")
    program.stream.write(EVENTS)
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    renamed = program.stream.events().transform(hf.keyed("user", RunningTotal(), TOTALS, name="sums"))
    with pytest.raises(hf.Incompatible, match="'totals': .*declares no operator of that name, but 'sums'"):
        hf.write_exactly_once(renamed, hf.FileSink(str(tmp_path / "out")), checkpoint=program.stream.checkpoint)


def test_workers_tell_a_folder_that_has_nothing_from_a_damaged_one(program: Program, tmp_path: Path) -> None:
    """Of a query that Spark's own start() has started."""
    program.run()
    program.stream.write(EVENTS)
    shutil.rmtree(tmp_path / "state")
    query = program.stream.start(program.frame())
    with pytest.raises(hf.Incompatible, match="has nothing of any slot of the operator"):
        hf.await_termination(query)
