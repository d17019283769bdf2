"""What a user of the wheel does first: a stateful stream, stopped and started again. Runs outside the tree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf


class RunningTotal(hf.BatchProcessor):
    """The sum so far of each user's amounts."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch, ctx):
        """One row out a row in."""
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


def run(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Reads all files that the stream has not read yet; returns the largest total of each user so far."""
    events = spark.readStream.schema("user string, amount long").json(str(folder / "input"))
    totals = events.transform(hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals"))
    query = (
        totals.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(folder / "rows")).groupBy("user").max("total").collect()
    return {row[0]: row[1] for row in rows}


def main(folder: Path) -> None:
    """Stops with an AssertionError when a total is not exact."""
    package = Path(hf.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} is not the installed package"
    assert (package / "py.typed").exists()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .config("spark.holdfast.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    expected: dict[str, int] = {}
    for part in range(2):
        events: list[dict[str, Any]] = [{"user": f"user-{i % 7}", "amount": i * (part + 1)} for i in range(1000)]
        for event in events:
            expected[event["user"]] = expected.get(event["user"], 0) + event["amount"]
        (folder / "input").mkdir(exist_ok=True)
        (folder / "input" / f"{part}.json").write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
        found = run(spark, folder)
        assert found == expected, f"expected {expected}, found {found}"
    spark.stop()
    print(f"{package}: two runs, {len(expected)} exact totals")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
