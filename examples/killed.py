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
#: Of two hours each: two days, or as many as are asked for.
FILES = int(sys.argv[sys.argv.index("--files") + 1]) if "--files" in sys.argv else 24


def session(folder):
    """A local Spark whose state is kept below the folder."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .getOrCreate()
    )


def stream(folder, schema, operator):
    """Reads FOLDER/events through an operator into FOLDER/out, exactly once, and ends; without the rows of "watch"."""
    spark = session(folder)
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


def run(program, folder, until=None, *arguments):
    """A program's stream, ``PROGRAM FOLDER --stream``, in a process of its own, to its end or until it is killed: where
    ``until`` holds, and still holds while the process stands still.
    """
    command = [sys.executable, program, str(folder), "--stream", *arguments]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while process.poll() is None:
            if until is not None and until():
                os.killpg(process.pid, signal.SIGSTOP)
                if until():
                    print("killed after batch", newest(folder), flush=True)
                    return
                os.killpg(process.pid, signal.SIGCONT)
            time.sleep(0.1)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode or until is not None:
        raise SystemExit(f"the stream ended by itself, with {process.returncode}")


def newest(folder, log="commits"):
    """The last batch in one of Spark's logs, by default that of what is committed, or -1."""
    return max((int(file.name) for file in (folder / "spark" / log).glob("[0-9]*")), default=-1)


def differences(db, expected, given):
    """Rows that only one of two queries gives, or more often."""
    db.execute("SET TimeZone = 'UTC'")
    db.execute(f"CREATE TABLE expected AS {expected}")
    db.execute(f"CREATE TABLE given AS {given}")
    both = "(FROM expected EXCEPT ALL FROM given) UNION ALL (FROM given EXCEPT ALL FROM expected)"
    return db.execute(both).fetchall()


def tell(rows, what, differences):
    """Says how many rows there were and which differ; ends with status 1 where any does."""
    print(f"{rows} {what}, {len(differences)} differences", *differences[:10], sep="\n")
    raise SystemExit(bool(differences))


def main(program, write_events, schema, operator, expected, what):
    """Writes events, runs the stream with a kill half-way, and compares with DuckDB's query over ``events``.

    The kill comes in the midst of a batch. Between two, Spark may have noted a next file of one input and not of the
    other; it would go on with two files of the one in one batch, and what was side by side no longer were.
    """
    folder = Path(sys.argv[1])
    if "--stream" in sys.argv:
        stream(folder, schema, operator)
        return
    write_events(folder / "events")
    run(program, folder, lambda: FILES // 2 <= newest(folder) < newest(folder, "offsets"))
    run(program, folder)
    out = hf.FileSink.read(str(folder / "out"))
    with duckdb.connect() as db:
        db.register("given_rows", out)
        db.read_parquet(str(folder / "events" / "*.parquet")).create_view("events")
        found = differences(db, expected, "SELECT * FROM given_rows")
    tell(len(out), what, found)
