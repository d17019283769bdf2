"""What the examples share: the stream, and its run in a process of its own that is killed with kill -9."""

import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import holdfast as hf

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FILES = 24  # of two hours each


def stream(folder, schema, operator):
    """Reads FOLDER/events through an operator into FOLDER/out, exactly once, and ends; without the rows of "watch"."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .getOrCreate()
    )
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    given = events.transform(operator)
    hf.write_exactly_once(
        given.where(given[0] != "watch"),
        hf.FileSink(str(folder / "out")),
        checkpoint=str(folder / "spark"),
        trigger={"availableNow": True},
    ).awaitTermination()


def write_files(folder, rows_of, schema):
    """One file for each two hours, and two more in which somebody else moves the watermark past the end.

    ``rows_of(began)`` gives the rows of two hours; the second column is their time.
    """
    folder.mkdir(parents=True)
    for number in range(FILES + 2):
        began = START + number * timedelta(hours=2)
        watch = ("watch", began + timedelta(hours=24), *[0] * (len(schema) - 2))
        rows = rows_of(began) if number < FILES else [watch]
        path = folder / f"{number:03d}.parquet"
        pq.write_table(
            pa.Table.from_arrays([pa.array(*pair) for pair in zip(zip(*rows), schema.types)], schema=schema), path
        )
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files by age


def run(program, folder, kill_after=None):
    """A program's stream, ``PROGRAM FOLDER --stream``, in a process of its own; killed after so many batches."""
    process = subprocess.Popen([sys.executable, program, str(folder), "--stream"], start_new_session=True)
    while process.poll() is None:
        if kill_after is not None and (folder / "spark" / "commits" / str(kill_after)).exists():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"killed after batch {kill_after}", flush=True)
            return
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"the stream ended with {process.returncode}")


def compare(folder, expected):
    """How many rows FOLDER/out has, and those that differ from what DuckDB's query over the table ``events`` gives."""
    out = hf.FileSink.read(str(folder / "out"))
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("CREATE TABLE events AS SELECT * FROM read_parquet(?)", [str(folder / "events" / "*.parquet")])
        db.execute(f"CREATE TABLE expected AS {expected}")
        db.execute("CREATE TABLE given AS SELECT * FROM out")
        both = "(FROM expected EXCEPT ALL FROM given) UNION ALL (FROM given EXCEPT ALL FROM expected)"
        return len(out), db.execute(both).fetchall()


def main(program, write_events, schema, operator, expected, what):
    """Writes events, runs the stream with a kill half-way, and compares; status 1 where anything differs."""
    folder = Path(sys.argv[1])
    if "--stream" in sys.argv:
        stream(folder, schema, operator)
        return
    write_events(folder / "events")
    run(program, folder, kill_after=FILES // 2)
    run(program, folder)
    rows, differences = compare(folder, expected)
    print(f"{rows} {what}, {len(differences)} differences", *differences[:10], sep="\n")
    raise SystemExit(bool(differences))
