"""The job: two stateful operators in one query over a stream of flights. Killed and started again, it goes on.

`demo.py` runs it, kills it half-way and checks every figure. It knows nothing of that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import holdfast as hf

FLIGHTS = (
    "flight long, step int, departure timestamp, carrier string, aircraft string, origin string, dest string, "
    "flown boolean, delay double"
)
FIGURES = (
    "kind string, key string, flight long, step int, flights long, mean_delay double, stddev_delay double, "
    "worst_delay double, destinations long, airport string, moves long, gaps long, longest_gap_hours double"
)
CARRIER = (
    "carrier string, flight long, step int, flights long, mean_delay double, stddev_delay double, worst_delay double, "
    "destinations long"
)
AIRCRAFT = (
    "aircraft string, flight long, step int, flights long, mean_delay double, airport string, moves long, gaps long, "
    "longest_gap_hours double"
)
GAP_HOURS = 48.0


class CarrierDelays(hf.BatchProcessor):
    """Vectorised: a whole Arrow batch of flights of many carriers at a time. One row out for each flight."""

    flights = hf.AggregatingState(pa.int64(), "count")
    mean = hf.AggregatingState(pa.float64(), "avg")
    stddev = hf.AggregatingState(pa.float64(), "stddev")
    worst = hf.ReducingState(pa.float64(), "max")
    destinations = hf.MapState(pa.string(), pa.int64())  # destination → the first flight there
    distinct = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch, ctx):
        seen = self.destinations.contains(batch, batch["dest"])
        again = pd.DataFrame({"carrier": batch["carrier"], "dest": batch["dest"]}).duplicated()
        first = pc.and_(pc.invert(seen), pa.array(~again))
        new = batch.filter(first)
        self.destinations.put(new, new["dest"], new["flight"])
        yield pa.RecordBatch.from_arrays(
            [
                batch["carrier"],
                batch["flight"],
                batch["step"],
                self.flights.add(batch, batch["flight"]),
                self.mean.add(batch, batch["delay"]),
                self.stddev.add(batch, batch["delay"]),
                self.worst.add(batch, batch["delay"]),
                self.distinct.add(batch, first.cast(pa.int64())),
            ],
            names=["carrier", "flight", "step", "flights", "mean_delay", "stddev_delay", "worst_delay", "destinations"],
        )


class AircraftPath(hf.KeyedProcessor):
    """A key at a time: where an aircraft was last, and how long nobody saw it. One row out an aircraft and batch."""

    last = hf.ValueState(pa.struct([("airport", pa.string()), ("departure", pa.timestamp("us", "UTC"))]))
    flights = hf.ReducingState(pa.int64(), "sum")
    moves = hf.ReducingState(pa.int64(), "sum")
    delay = hf.AggregatingState(pa.float64(), "avg")
    gaps = hf.ListState(pa.float64())  # hours, of each gap

    def process(self, key, rows, ctx):
        last = self.last.value()
        for flight in rows.to_pylist():
            if last is not None:
                hours = (flight["departure"] - last["departure"]).total_seconds() / 3600
                if hours > GAP_HOURS:
                    self.gaps.add(hours)
                self.moves.add(int(flight["origin"] != last["airport"]))
            last = {"airport": flight["origin"], "departure": flight["departure"]}
            self.delay.add(flight["delay"])
            self.flights.add(1)
        self.last.update(last)
        gaps = self.gaps.get()
        yield {
            "aircraft": key[0],
            "flight": flight["flight"],
            "step": flight["step"],
            "flights": self.flights.get(),
            "mean_delay": self.delay.get(),
            "airport": last["airport"],
            "moves": self.moves.get() or 0,
            "gaps": len(gaps),
            "longest_gap_hours": max(gaps, default=None),
        }


def figures(flights: DataFrame) -> DataFrame:
    """Both operators over one stream, in one shape."""
    carriers = flights.transform(hf.keyed("carrier", CarrierDelays(), CARRIER, name="carriers"))
    seen = flights.where("flown AND aircraft IS NOT NULL")
    aircraft = seen.transform(hf.keyed("aircraft", AircraftPath(), AIRCRAFT, name="aircraft"))
    return _shaped(carriers, "carrier").unionByName(_shaped(aircraft, "aircraft"))


def _shaped(rows: DataFrame, kind: str) -> DataFrame:
    columns = []
    for column in FIGURES.split(", "):
        name, of_type = column.split(" ")
        if name == "kind":
            columns.append(f"'{kind}' AS kind")
        elif name == "key":
            columns.append(f"{kind} AS key")
        else:
            columns.append(name if name in rows.columns else f"CAST(NULL AS {of_type}) AS {name}")
    return rows.selectExpr(*columns)


def start_session(folder: Path) -> SparkSession:
    """Two cores, state and its local copies below the folder."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("holdfast flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A JVM that lives for a minute does not earn back what its best compiler and collector take from two cores.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Spark allows one operator of this kind a query unless told not to check: see docs/guide/operators.md.
        .config("spark.sql.streaming.unsupportedOperationCheck", "false")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .config("spark.holdfast.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    return spark


def tell_progress(query: StreamingQuery, folder: Path, is_done: Callable[[], bool] = lambda: False) -> None:
    """Writes a line to progress.jsonl for each finished batch, until the query ends or is done: then it is stopped."""
    told = -1
    with open(folder / "progress.jsonl", "a", encoding="utf-8") as progress:
        active = True
        while active:
            active = query.isActive and not is_done()
            for batch in query.recentProgress:
                if batch.batchId > told and "triggerExecution" in batch.durationMs:
                    told = batch.batchId
                    line = {"batch": told, "rows": batch.numInputRows, "ms": batch.durationMs["triggerExecution"]}
                    progress.write(json.dumps(line) + "\n")
            progress.flush()
            time.sleep(0.1)
    if query.isActive:
        query.stop()
    query.awaitTermination()


def run(folder: Path) -> None:
    """Runs until all files are read."""
    spark = start_session(folder)
    flights = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    query = (
        figures(flights)
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    tell_progress(query, folder)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds input/; state, checkpoint and rows go there too")
    run(parser.parse_args().folder.resolve())
