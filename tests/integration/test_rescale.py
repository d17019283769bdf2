"""An operator in a new checkpoint, with another number of slots, that begins with the state of an earlier query."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import TOTALS, CountsByKey, LastSeen, RunningTotal
from tests.silence_oracle import START, silent_users
from tests.spark_sessions import lose_local_folder
from tests.streams import FileStream
from tests.timer_processors import ALERTS, SilentUsers
from tests.timer_processors import EVENTS as TIMED

import holdfast as hf
from holdfast.inspect import settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = pa.schema([("user", pa.string()), ("amount", pa.int64())])
Streams = Callable[[str], FileStream]


def some(seed: int, batches: int, rows: int = 25) -> list[pa.Table]:
    draw = random.Random(seed)
    return [
        pa.Table.from_pylist(
            [{"user": f"u{draw.randrange(30)}", "amount": draw.randrange(100)} for _ in range(rows)], EVENTS
        )
        for _ in range(batches)
    ]


def expected(batches: list[pa.Table]) -> list[list[tuple[str, int, int]]]:
    totals: dict[str, int] = defaultdict(int)
    found = []
    for batch in batches:
        said = []
        for row in batch.to_pylist():
            totals[row["user"]] += row["amount"]
            said.append((row["user"], row["amount"], totals[row["user"]]))
        found.append(sorted(said))
    return found


def told(tables: list[pa.Table]) -> list[list[tuple[Any, ...]]]:
    return [sorted(tuple(row.values()) for row in table.to_pylist()) for table in tables]


def totals(slots: int | None = None, processor: Any = None, **options: Any) -> Callable[[DataFrame], DataFrame]:
    settings = {"maxParallelism": 32, **({"slots": slots} if slots else {}), **options.pop("settings", {})}
    options = {"name": "totals", **options}
    return hf.keyed("user", processor or RunningTotal(), TOTALS, settings=settings, **options)


def test_rescaled_2_3_8_1_gives_the_rows_of_a_query_that_never_was(streams: Streams, tmp_path: Path) -> None:
    """Other slots, backends and folders; of the earlier query nothing is left after the first batch of the next."""
    batches = some(1, 12)
    found: list[Any] = []
    earlier: FileStream | None = None
    for number, slots in enumerate((2, 3, 8, 1)):
        stream, folder = streams(f"generation-{number}"), tmp_path / f"state-{number}"
        first, *others = batches[3 * number : 3 * number + 3]
        settings = {"checkpoint.dir": str(folder), "state.backend": "hashmap" if number == 2 else "rocksdb"}
        restore = hf.Restore(earlier.checkpoint, state_dir=tmp_path / f"state-{number - 1}") if earlier else None
        stream.write(first)
        found += told(stream.run(totals(slots, restore=restore, settings=settings)))
        if earlier is not None:
            shutil.rmtree(earlier.checkpoint)
            shutil.rmtree(tmp_path / f"state-{number - 1}")
            lose_local_folder(tmp_path)
        stream.write(*others)
        found += told(stream.run(totals(settings=settings)))  # restore left out, and the number of slots too
        earlier = stream
    assert found == expected(batches)


def test_a_slot_without_rows_in_the_first_batches_has_its_state(streams: Streams, spark: SparkSession) -> None:
    batches = some(2, 3, rows=60)
    alone = pa.Table.from_pylist([{"user": "u1", "amount": 0}], EVENTS)
    old, new = streams("old"), streams("new")
    old.write(*batches)
    old.run(totals(2))
    new.write(alone)
    new.run(totals(6, restore=hf.Restore(old.checkpoint)))
    handles = spark.read.format("statestore").load(str(new.checkpoint))
    assert handles.count() == 6
    shutil.rmtree(old.checkpoint)
    new.write(alone, batches[0])
    assert told(new.run(totals(6))) == expected([*batches, alone, alone, batches[0]])[-2:]


def test_a_restart_stays_in_its_generation_though_the_earlier_query_went_on(streams: Streams) -> None:
    batches = some(3, 6)
    old, new = streams("old"), streams("new")
    old.write(*batches[:2])
    old.run(totals(2))
    new.write(batches[2])
    found = told(new.run(totals(3, restore=hf.Restore(old.checkpoint))))
    old.write(batches[5])
    old.run(totals(2))
    for batch in batches[3:5]:
        new.write(batch)
        found += told(new.run(totals(3, restore=hf.Restore(old.checkpoint))))
    assert found == expected(batches[:5])[2:]


def test_a_first_batch_that_is_rolled_back_runs_again_from_the_same_state(streams: Streams) -> None:
    batches = some(4, 4)
    old, new = streams("old"), streams("new")
    old.write(*batches[:2])
    old.run(totals(3))
    new.write(batches[2])
    new.run(totals(2, restore=hf.Restore(old.checkpoint)))
    new.roll_back(1)
    new.write(batches[3])
    found = told(new.run(totals(2, restore=hf.Restore(old.checkpoint))))
    assert found == expected(batches)[2:]


def test_timers_fire_after_a_rescale_in_slots_without_rows(streams: Streams) -> None:
    def silent(slots: int, **options: Any) -> Callable[[DataFrame], DataFrame]:
        given: dict[str, Any] = {"watermark": ("ts", "0 seconds"), "ticks": "never", "settings": {"slots": slots}}
        return hf.keyed("user", SilentUsers(), ALERTS, name="silent", **given, **options)

    crowd = [(f"user{number}", START + timedelta(seconds=number)) for number in range(20)]
    later = [[("user0", START + timedelta(hours=hours))] for hours in (2, 4, 5)]
    old, new = streams("old"), streams("new")
    old.write(*(pa.Table.from_arrays([*map(pa.array, zip(*rows))], schema=TIMED) for rows in [crowd]))
    old.run(silent(2))
    new.write(*(pa.Table.from_arrays([*map(pa.array, zip(*rows))], schema=TIMED) for rows in later))
    found = [row for batch in told(new.run(silent(5, restore=hf.Restore(old.checkpoint)))) for row in batch]
    # A new checkpoint has no watermark as it begins, and batches of its own.
    alerts = {(user, since, time) for user, _, _, since, time in silent_users([crowd, *later])}
    assert {(user, since, time) for user, _, _, since, time in found} == alerts
    assert len(found) == len(alerts) > 40


@pytest.mark.parametrize("format", ["canonical", "native"])
def test_a_query_begins_with_a_savepoint_of_one_that_is_gone(streams: Streams, tmp_path: Path, format: Any) -> None:
    """Other slots, another name of the operator and of its state; nothing of the savepoint is left after a batch."""

    class Renamed(hf.BatchProcessor):
        amounts = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            return batch.append_column("total", self.amounts.add(batch["user"], batch["amount"]))

    batches = some(13, 6)
    old, new = streams("old"), streams("new")
    old.write(*batches[:3])
    found = told(old.run(totals(2, settings={"checkpoint.dir": str(tmp_path / "old-state")})))
    hf.Savepoint.create(checkpoint=old.checkpoint, state=tmp_path / "old-state", to=tmp_path / "saved", format=format)
    for folder in (old.checkpoint, tmp_path / "old-state", tmp_path / "local"):
        shutil.rmtree(folder)
    restore = hf.Restore(savepoint=tmp_path / "saved").operator("totals", renamed={"total": "amounts"})
    new.write(batches[3])
    found += told(new.run(totals(5, Renamed(), name="sums", restore=restore)))
    assert hf.Savepoint.dispose(tmp_path / "saved", apply=True).deleted
    new.write(*batches[4:])
    found += told(new.run(totals(5, Renamed(), name="sums")))
    assert found == expected(batches)


def test_a_query_begins_at_an_earlier_batch(streams: Streams) -> None:
    batches = some(14, 4)
    old, new = streams("old"), streams("new")
    old.write(*batches)
    old.run(totals(2))
    new.write(*batches[2:])
    assert told(new.run(totals(3, restore=hf.Restore(old.checkpoint, batch_id=1)))) == expected(batches)[2:]


@pytest.mark.parametrize(
    "provider", ["HDFSBackedStateStoreProvider", pytest.param("RocksDBStateStoreProvider", marks=pytest.mark.slow)]
)
def test_several_operators_go_on_from_one_batch(streams: Streams, spark: SparkSession, provider: str) -> None:
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass", f"org.apache.spark.sql.execution.streaming.state.{provider}"
    )
    batches = some(5, 4)

    def both(slots: int, restore: hf.Restore | None = None) -> Callable[[DataFrame], DataFrame]:
        settings = {"slots": slots, "maxParallelism": 32}
        options: dict[str, Any] = {"settings": settings, "restore": restore}
        first = hf.keyed("user", RunningTotal(), TOTALS, name="first", **options)
        second = hf.keyed("user", RunningTotal(), TOTALS, name="second", **options)
        return lambda events: events.transform(first).selectExpr("user", "total AS amount").transform(second)

    old, new, whole = streams("old"), streams("new"), streams("whole")
    whole.write(*batches)
    expected = told(whole.run(both(2)))
    old.write(*batches[:2])
    found = told(old.run(both(2)))
    new.write(*batches[2:])
    found += told(new.run(both(3, hf.Restore(old.checkpoint))))
    assert found == expected


def test_what_cannot_be_restored_is_refused_before_anything_runs(streams: Streams, tmp_path: Path) -> None:
    old, new = streams("old"), streams("new")
    old.write(*some(6, 2))
    new.write(*some(7, 1))
    with pytest.raises(hf.InvalidRequest, match="no checkpoint of a streaming query.*goes on without restore="):
        new.run(totals(3, restore=hf.Restore(old.checkpoint)))
    old.run(totals(2))
    restore = hf.Restore(old.checkpoint)
    for options, error, says in (
        ({"name": "other"}, hf.InvalidRequest, "no state of an operator 'other'.*there is some of: 'totals'"),
        ({"settings": {"checkpoint.dir": str(tmp_path / "elsewhere")}}, hf.InvalidRequest, "elsewhere has no state of"),
        ({"settings": {"maxParallelism": 64}}, hf.Incompatible, "max parallelism: recorded 32, declared 64"),
        ({"null_keys": True}, hf.Incompatible, "null keys: recorded False, declared True"),
        (
            {"processor": LastSeen()},
            hf.Incompatible,
            r"state 'total': recorded reducing.*sum, declared .*max \(declare it as it was",
        ),
        ({"processor": CountsByKey()}, hf.Incompatible, "state 'total'"),
    ):
        with pytest.raises(error, match=says):
            new.run(totals(3, restore=restore, **options))
    with pytest.raises(hf.InvalidRequest, match="restore is '/old'"):
        totals(3, restore="/old")
    with pytest.raises(hf.InvalidRequest, match="source 0: expected offsets of Kafka, found .*logOffset"):
        restore.kafka_offsets()
    with pytest.raises(hf.InvalidRequest, match="source 1: expected 0 to 0"):
        restore.kafka_offsets(1)
    assert not new.checkpoint.exists()


def test_a_restore_that_contradicts_how_the_query_began_is_refused(streams: Streams) -> None:
    old, new = streams("old"), streams("new")
    old.write(*some(8, 1))
    old.run(totals(2))
    new.write(*some(9, 1))
    new.run(totals(2))
    new.write(*some(10, 1))
    writer = new.events().transform(totals(2, restore=hf.Restore(old.checkpoint))).writeStream.format("noop")
    with pytest.raises(hf.Incompatible, match="origin: recorded the empty state, declared operator 'totals' of query"):
        hf.start(writer, checkpoint=str(new.checkpoint)).awaitTermination()


def test_output_that_is_visible_beyond_the_last_committed_batch_refuses_a_restore_and_a_savepoint(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be written again: the batch was killed between the commit record and Spark's own commit."""
    old, new = streams("old"), streams("new")
    old.write(*some(11, 3))
    frame = old.events().transform(totals(2))
    sink = hf.FileSink(str(tmp_path / "output"))
    hf.write_exactly_once(frame, sink, checkpoint=old.checkpoint, trigger={"availableNow": True}).awaitTermination()
    new.write(*some(12, 1))
    old.roll_back(1)
    with pytest.raises(hf.Incompatible, match="committed .* up to batch 1, and output is visible of batch 2"):
        new.run(totals(3, restore=hf.Restore(old.checkpoint)))
    monkeypatch.setattr(settled, "_WAIT_MAX_MS", 300)
    state = frame.sparkSession.conf.get("spark.holdfast.checkpoint.dir")
    source: dict[str, Any] = {"checkpoint": old.checkpoint, "state": state}
    with pytest.raises(hf.Incompatible, match="committed .* up to batch 1, and output is visible of batch 2"):
        hf.Savepoint.create(**source, to=tmp_path / "newest")
    saved = hf.Savepoint.create(**source, to=tmp_path / "meant", batch_id=1)
    assert saved.manifest.batch_id == 1
