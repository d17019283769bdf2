"""A running total is what it should be:
over batches, restarts, output modes, backends, settings, retries and rollbacks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.processors import TOTALS, CountsByKey, FailingOnce, LastSeen, RunningTotal
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def events(seed: int, rows: int = 500, users: int = 40) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "user": [f"user{draw.randrange(users)}" for _ in range(rows)],
            "amount": [draw.randrange(-100, 1000) for _ in range(rows)],
        }
    )


@pytest.mark.parametrize("zone", ["GMT+08:00", "Z", "+08"])
def test_a_session_may_have_a_time_zone_that_arrow_does_not_know(stream: FileStream, zone: str) -> None:
    """Also an operator without any timestamp ended with pyarrow's error."""
    stream.spark.conf.set("spark.sql.session.timeZone", zone)
    batches = [events(seed) for seed in range(2)]
    stream.write(*batches)
    found = stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
    assert [by_user(batch) for batch in found] == expected(batches)


def by_user(table: pa.Table) -> dict[str, list[tuple[int, int]]]:
    """Each user's (amount, total), in order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["user"], []).append((row["amount"], row["total"]))
    return found


def expected(batches: list[pa.Table]) -> list[dict[str, list[tuple[int, int]]]]:
    """Each batch's output by user, for a running total."""
    totals: dict[str, int] = {}
    found = []
    for batch in batches:
        output: dict[str, list[tuple[int, int]]] = {}
        for row in batch.to_pylist():
            totals[row["user"]] = totals.get(row["user"], 0) + row["amount"]
            output.setdefault(row["user"], []).append((row["amount"], totals[row["user"]]))
        found.append(output)
    return found


def assert_totals(output: list[pa.Table], batches: list[pa.Table], after: int = 0) -> None:
    assert [by_user(table) for table in output] == expected(batches)[after:]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_running_totals_over_batches_and_restarts(stream: FileStream, spark: SparkSession, backend: str) -> None:
    spark.conf.set("spark.holdfast.state.backend", backend)
    batches = [events(seed) for seed in range(5)]
    stream.write(*batches[:3])
    assert_totals(stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals")), batches[:3])
    stream.write(*batches[3:])
    assert_totals(stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals")), batches, after=3)


def test_a_change_of_backend_keeps_the_state(stream: FileStream) -> None:
    batches = [events(seed) for seed in range(4)]
    for index, backend in enumerate(["rocksdb", "hashmap", "rocksdb", "hashmap"]):
        stream.write(batches[index])
        operator = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings={"state.backend": backend})
        assert_totals(stream.run(operator), batches[: index + 1], after=index)


def test_update_mode(stream: FileStream) -> None:
    batches = [events(seed) for seed in range(2)]
    stream.write(*batches)
    operator = hf.keyed("user", RunningTotal(), TOTALS, name="totals", output_mode="update")
    assert_totals(stream.run(operator, output_mode="update"), batches)


def test_batches_without_rows_change_nothing(stream: FileStream) -> None:
    batches = [events(1), events(2, rows=0), events(3, rows=1), events(4)]
    stream.write(*batches)
    output = stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
    assert_totals(output, batches)


def test_a_key_at_a_time(stream: FileStream) -> None:
    batches = [events(seed) for seed in range(3)]
    stream.write(*batches)
    output = stream.run(hf.keyed("user", CountsByKey(), TOTALS, name="counts"))
    assert len(output) == len(batches)
    seen: dict[str, int] = {}
    for batch, table in zip(batches, output):
        found = {row["user"]: (row["amount"], row["total"]) for row in table.to_pylist()}
        assert len(found) == len(table), "each key once"
        wanted: dict[str, tuple[int, int]] = {}
        for row in batch.to_pylist():
            seen[row["user"]] = seen.get(row["user"], 0) + 1
            wanted[row["user"]] = (wanted.get(row["user"], (0, 0))[0] + row["amount"], seen[row["user"]])
        assert found == wanted


def test_several_operators_in_one_query_do_not_meet(stream: FileStream, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")  # see docs/guide/operators.md
    batches = [events(seed) for seed in range(3)]
    stream.write(*batches)

    def both(frame: DataFrame) -> DataFrame:
        totals = frame.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
        # Same state name, same types, same keys: only the operator's name keeps the two apart.
        return totals.drop("amount").withColumnRenamed("total", "amount").transform(
            hf.keyed("user", LastSeen(), TOTALS, name="greatest total")
        )  # fmt: skip

    output = stream.run(both)
    assert len(output) == len(batches)
    greatest: dict[str, int] = {}
    for table, totals in zip(output, expected(batches)):
        found = by_user(table)
        assert found.keys() == totals.keys()
        for user, rows in found.items():
            assert [amount for amount, _ in rows] == [total for _, total in totals[user]]
            for amount, total in rows:
                greatest[user] = max(greatest.get(user, amount), amount)
                assert total == greatest[user]


def test_one_processor_in_two_queries_does_not_meet_itself(streams: Callable[[str], FileStream]) -> None:
    processor = RunningTotal()
    first, second = streams("first"), streams("second")
    first_batches, second_batches = [events(1), events(2)], [events(3), events(4)]
    first.write(*first_batches)
    second.write(*second_batches)
    operator = hf.keyed("user", processor, TOTALS, name="totals")
    assert_totals(first.run(operator), first_batches)
    assert_totals(second.run(operator), second_batches)


def test_a_task_that_fails_is_run_again_from_the_old_version(stream: FileStream, tmp_path: Path) -> None:
    batches = [events(seed) for seed in range(4)]
    stream.write(*batches)
    marker = tmp_path / "failed"
    output = stream.run(hf.keyed("user", FailingOnce(2, str(marker)), TOTALS, name="totals"))
    assert marker.exists()
    assert_totals(output, batches)


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_spark_rolled_back_to_an_earlier_batch(stream: FileStream, backend: str) -> None:
    batches = [events(seed) for seed in range(5)]
    stream.write(*batches)
    settings = {"state.backend": backend}
    stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=settings))
    stream.roll_back(3)
    assert stream.committed() == [0, 1]
    # It might be an older copy: what is given up has to be named, as the error names it.
    with pytest.raises(StreamingQueryException) as caught:
        stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=settings))
    named = re.search(r"Incompatible: .*set\s+spark\.holdfast\.abandonedRuns=([0-9a-f-]{36})", str(caught.value))
    assert named, caught.value
    settings["abandonedRuns"] = named.group(1)
    stream.output.pop(2, None)
    again = stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=settings))
    # The offsets of batch 2 stood: it is the same batch. The files after it come in one or several batches.
    assert by_user(again[0]) == expected(batches)[2]
    last = {user: rows[-1][1] for table in again for user, rows in by_user(table).items()}
    totals = {user: rows[-1][1] for table in expected(batches)[2:] for user, rows in table.items()}
    assert last == totals


def test_settings_by_configuration_alone(stream: FileStream, spark: SparkSession, tmp_path: Path) -> None:
    for key, value in {
        "checkpoint.dir": str(tmp_path / "elsewhere"),
        "local.dir": str(tmp_path / "local elsewhere"),
        "slots": "5",
        "maxParallelism": "64",
        "pack.memory.max": "64 KiB",
        "pack.blob.max": "4 KiB",
        "memory.spool.max": "8 KiB",
        "memory.batch.max": "1 MiB",
        "memory.cache.max": "0 B",
        "fold.deltas.max": "2",
        "snapshot.deltas.max": "2",
        "delta.compression": "zstd",
    }.items():
        spark.conf.set(f"spark.holdfast.{key}", value)
    batches = [events(seed, rows=5000) for seed in range(4)]
    stream.write(*batches)
    assert_totals(stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals")), batches)
    folder = next((tmp_path / "elsewhere").iterdir()) / "totals"
    assert sorted(path.name for path in folder.glob("slot-*")) == [f"slot-{slot:05d}" for slot in range(5)]
    assert any((tmp_path / "local elsewhere").iterdir())
    assert not (tmp_path / "state").exists()


def test_more_slots_than_keys_and_partitions(stream: FileStream) -> None:
    batches = [events(seed, users=3) for seed in range(2)]
    stream.write(*batches)
    output = stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings={"slots": 16}))
    assert_totals(output, batches)


def test_composite_and_nested_keys(stream: FileStream) -> None:
    table = pa.table(
        {
            "region": ["eu", "us", "eu", "eu"],
            "user": [{"id": 1, "kind": "a"}, {"id": 1, "kind": "a"}, {"id": 1, "kind": "b"}, {"id": 1, "kind": "a"}],
            "amount": [1, 10, 100, 1000],
        }
    )
    stream.write(table, table)

    class Total(hf.BatchProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            keys = batch.select(["region", "user"])
            return batch.append_column("total", self.total.add(keys, batch["amount"]))

    schema = "region string, user struct<id: long, kind: string>, amount long, total long"
    output = stream.run(hf.keyed(["region", "user"], Total(), schema, name="totals"))
    totals = [sorted(row["total"] for row in table.to_pylist()) for table in output]
    assert totals == [[1, 10, 100, 1001], [20, 200, 1002, 2002]]


def test_null_keys_where_they_are_allowed(stream: FileStream) -> None:
    table = pa.table({"user": ["a", None, None], "amount": [1, 2, 3]})
    stream.write(table, table)
    output = stream.run(hf.keyed("user", RunningTotal(), TOTALS, name="totals", null_keys=True))
    assert [by_user(table) for table in output] == [
        {"a": [(1, 1)], None: [(2, 2), (3, 5)]},
        {"a": [(1, 2)], None: [(2, 7), (3, 10)]},
    ]
