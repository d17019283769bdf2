"""Several outputs of one operator in real Spark: late rows and refused ones beside the main output, all of them exactly
once, also when batches are run again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.lossy_sink import LossyFileSink
from tests.processors import LATE, REFUSED, TOTALS, Passing, Sorted, SortedByKey, TotalsOfTimed
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DELAY_S = 60
BATCHES = 5
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def events(number: int, rows: int = 300) -> pa.Table:
    """Most are of this batch's minutes, some of long before, a few below 0, a few without a time."""
    chance = random.Random(number)
    found = []
    for _ in range(rows):
        minutes = number * 5 + chance.random() * 5 if chance.random() < 0.8 else chance.random() * number * 5
        ts = None if chance.random() < 0.02 else START + timedelta(minutes=minutes)
        found.append({"user": f"u{chance.randrange(20)}", "amount": chance.randrange(-10, 100), "ts": ts})
    return pa.Table.from_pylist(found, schema=SCHEMA)


def expected(batches: list[pa.Table]) -> dict[str, list[tuple[Any, ...]]]:
    """What each output holds, by plain Python: nothing of Holdfast is asked."""
    found: dict[str, list[tuple[Any, ...]]] = {"main": [], "late": [], "refused": []}
    totals: dict[str, int] = defaultdict(int)
    latest = watermark = None
    for batch in batches:
        for row in batch.to_pylist():
            user, amount, ts = row["user"], row["amount"], row["ts"]
            if watermark is not None and ts is not None and ts <= watermark:
                found["late"].append((user, amount, ts))
            elif amount < 0:
                found["refused"].append((user, "below 0"))
            else:
                totals[user] += amount
                found["main"].append((user, amount, totals[user]))
        times = [ts for ts in batch["ts"].to_pylist() if ts is not None]
        latest = max(times if latest is None else [latest, *times])
        milliseconds = int(latest.timestamp() * 1000) - 1000 * DELAY_S  # Spark's watermarks are whole milliseconds
        watermark = datetime.fromtimestamp(milliseconds // 1000, timezone.utc)
        watermark += timedelta(milliseconds=milliseconds % 1000)
    return {name: sorted(rows) for name, rows in found.items()}


class Outputs:
    """A query with three outputs, each in a folder of its own."""

    def __init__(self, stream: FileStream, folder: Path) -> None:
        self.stream = stream
        self.paths = {name: str(folder / name) for name in ("main", "late", "refused")}

    def frame(self, processor: Any = None, **options: Any) -> DataFrame:
        given = {"name": "totals", "watermark": ("ts", f"{DELAY_S} seconds"), "late": LATE, "side_outputs": [REFUSED]}
        return self.stream.events().transform(hf.keyed("user", processor or Sorted(), TOTALS, **{**given, **options}))

    def run(self, frame: DataFrame, **sinks: Any) -> None:
        by_name = {name: sinks.get(name, hf.FileSink(path, name=name)) for name, path in self.paths.items()}
        routes = {None: by_name["main"], LATE: by_name["late"], REFUSED: [by_name["refused"]]}
        query = hf.write_exactly_once(frame, routes, checkpoint=self.stream.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()

    def found(self) -> dict[str, list[tuple[Any, ...]]]:
        return {
            name: sorted(tuple(row.values()) for row in hf.FileSink.read(path).to_pylist())
            for name, path in self.paths.items()
        }


@pytest.fixture
def outputs(stream: FileStream, tmp_path: Path) -> Outputs:
    return Outputs(stream, tmp_path)


@pytest.mark.parametrize("processor", [Sorted(), SortedByKey()], ids=["batch", "keyed"])
def test_each_row_is_in_one_output_once_over_restarts_and_replays(outputs: Outputs, processor: Any) -> None:
    batches = [events(number) for number in range(BATCHES)]
    wanted = expected(batches)
    assert all(len(rows) > 20 for rows in wanted.values())
    outputs.stream.write(*batches[:3])
    outputs.run(outputs.frame(processor))
    assert outputs.found() == expected(batches[:3])
    commits = outputs.stream.checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()  # killed after the commit record: the batch runs again
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    outputs.stream.write(*batches[3:])
    outputs.run(outputs.frame(processor))
    assert outputs.found() == wanted
    schemas = {name: hf.FileSink.read(path).schema for name, path in outputs.paths.items()}
    assert schemas["late"].remove_metadata().equals(SCHEMA)
    assert not schemas["refused"].field("why").nullable


@pytest.mark.parametrize("lossy", ["main", "late"])
def test_one_output_that_was_lost_is_written_again_and_the_others_are_not(outputs: Outputs, lossy: str) -> None:
    batches = [events(number) for number in range(BATCHES)]
    outputs.stream.write(*batches)
    sink = LossyFileSink(outputs.paths[lossy], name=lossy, batch_id=2, partitions=(0,))
    with pytest.raises(hf.Unavailable, match=f"this was lost .* of sink '{lossy}'"):
        outputs.run(outputs.frame(), **{lossy: sink})
    outputs.run(outputs.frame(), **{lossy: sink})
    assert outputs.found() == expected(batches)


def test_an_output_that_nobody_shall_see_is_named(outputs: Outputs) -> None:
    outputs.stream.write(events(0), events(1))
    main = hf.FileSink(outputs.paths["main"], name="main")
    query = hf.write_exactly_once(
        outputs.frame(),
        {None: main, LATE: (), REFUSED: ()},
        checkpoint=outputs.stream.checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    found = sorted(tuple(row.values()) for row in hf.FileSink.read(main.path).to_pylist())
    assert found == expected([events(0), events(1)])["main"]


def test_one_foreach_batch_takes_each_output_of_a_persisted_batch(outputs: Outputs) -> None:
    batches = [events(number) for number in range(3)]
    outputs.stream.write(*batches)
    found: dict[str, list[tuple[Any, ...]]] = {"main": [], "late": [], "refused": []}

    def keep(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        for name, tag in (("main", None), ("late", LATE), ("refused", REFUSED)):
            found[name] += [tuple(row.values()) for row in hf.select_output(batch, tag).toArrow().to_pylist()]
        batch.unpersist()

    query = (
        outputs.frame()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(outputs.stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert {name: sorted(rows) for name, rows in found.items()} == expected(batches)


def test_late_rows_that_are_dropped_change_no_columns(outputs: Outputs) -> None:
    batches = [events(number) for number in range(3)]
    outputs.stream.write(*batches)
    good = [batch.filter(pa.compute.greater_equal(batch["amount"], 0)) for batch in batches]
    frame = outputs.stream.events().where("amount >= 0")
    totals = hf.keyed("user", TotalsOfTimed(), TOTALS, name="t", watermark=("ts", f"{DELAY_S} seconds"), late="drop")
    query = outputs.stream.start(frame.transform(totals))
    query.awaitTermination()
    found = [tuple(row.values()) for table in outputs.stream.output.values() for row in table.to_pylist()]
    assert sorted(found) == expected(good)["main"]
    assert len(found) < sum(map(len, good))


def test_an_inherited_watermark_tells_late_rows_too(outputs: Outputs) -> None:
    batches = [events(number) for number in range(3)]
    outputs.stream.write(*batches)
    frame = outputs.stream.events().withWatermark("ts", f"{DELAY_S} seconds")
    sorting = hf.keyed("user", Sorted(), TOTALS, name="totals", late=LATE, side_outputs=[REFUSED])
    outputs.run(frame.transform(sorting))
    assert outputs.found() == expected(batches)


WATERMARK: dict[str, Any] = {"watermark": ("ts", "1 minute")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"late": "drop"}, r"late rows are told by the watermark's column, and the DataFrame has no watermark"),
        ({"late": "ignore", **WATERMARK}, r"late is 'ignore'; expected \"keep\", \"drop\" or an hf\.SideOutput"),
        ({"late": hf.SideOutput("late", "a int"), **WATERMARK}, r"its columns are a int32; late rows have user string"),
        ({"side_outputs": REFUSED}, r"expected a list of hf\.SideOutput"),
        ({"late": hf.SideOutput("refused"), "side_outputs": [REFUSED], **WATERMARK}, "two side outputs are named"),
        ({"side_outputs": [hf.SideOutput("x", "no schema at all")]}, r"side output 'x': .* is not a schema"),
    ],
)
def test_what_contradicts_itself_is_refused_on_the_driver(
    stream: FileStream, options: dict[str, Any], message: str
) -> None:
    stream.write(events(0))
    with pytest.raises(hf.InvalidRequest, match=message):
        stream.events().transform(hf.keyed("user", Sorted(), TOTALS, name="totals", **options))


def test_outputs_without_a_sink_and_sinks_without_an_output_are_refused(outputs: Outputs, spark: SparkSession) -> None:
    outputs.stream.write(events(0))
    frame, sink = outputs.frame(), hf.FileSink(outputs.paths["main"])
    plain = outputs.stream.events()
    checkpoint = outputs.stream.checkpoint
    given: Any
    for given, frame_given, message in (
        (sink, frame, r"has the outputs main, refused, late, and a sink takes rows of one"),
        ({None: sink}, frame, r"rows of output 'refused', 'late' have no sink and would be lost"),
        ({None: sink}, plain, r"sinks are given by output, but the DataFrame has the columns user, amount, ts"),
        ({None: (), LATE: (), REFUSED: ()}, frame, "no sink is given"),
        ({None: sink, LATE: sink, REFUSED: ()}, frame, "two sinks are named 'files'"),
        ({"late": sink}, frame, r"sinks are given for 'late'; expected an hf\.SideOutput"),
        ({None: "files", LATE: (), REFUSED: ()}, frame, "is no sink"),
        ({hf.SideOutput("other"): sink}, frame, "'other' is none of the DataFrame's outputs"),
    ):
        with pytest.raises(hf.InvalidRequest, match=message):
            hf.write_exactly_once(frame_given, given, checkpoint=checkpoint)
    with pytest.raises(hf.InvalidRequest, match="only its columns"):
        hf.select_output(plain, LATE)
    with pytest.raises(hf.InvalidRequest, match="'other' is not one of them"):
        hf.select_output(frame, hf.SideOutput("other"))
    assert hf.select_output(frame).columns == ["user", "amount", "total"]
    assert not checkpoint.exists()


def test_a_processor_without_its_method_is_refused_on_the_driver() -> None:
    class Nothing(hf.BatchProcessor):
        pass

    with pytest.raises(hf.InvalidRequest, match=r"Nothing lacks the method process\(self, batch, ctx\)"):
        hf.keyed("user", Nothing(), TOTALS, name="totals")
    hf.keyed("user", Passing(), TOTALS, name="totals")
