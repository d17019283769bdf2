"""Who had no event for an hour? An alert by timer, killed with kill -9 half-way, every alert checked against DuckDB.

    python examples/silent_users.py /tmp/silent-users

Writes two days of events (one file a batch), reads them as a stream, and writes alerts exactly once to files. A user is
silent when an hour has passed since his last event: by a timer, when the watermark says so, or by his next event, when
both come in one batch. Ends with status 1 if any alert differs from DuckDB's.
"""

import os
import random
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
HOUR = timedelta(hours=1)
USERS, FILES, ROWS = 50, 24, 40
EVENTS = "user string, ts timestamp"
ALERTS = "user string, silent_since timestamp"


class Silence(hf.KeyedProcessor):
    last = hf.ValueState(pa.timestamp("us", "UTC"))
    alarm = hf.Timers("event")

    def process(self, key, rows, ctx):
        last = self.last.value()
        for ts in sorted(rows["ts"].to_pylist()):
            if last is not None and ts - last >= HOUR:
                yield key[0], last
            if last is not None:
                self.alarm.delete(last + HOUR)
            last = ts
        self.last.update(last)
        self.alarm.register(last + HOUR)

    def on_timer(self, key, time, namespace, ctx):
        yield key[0], self.last.value()
        self.last.clear()


def write_events(folder):
    """Two days in files of two hours; in the end somebody else moves the watermark."""
    draw = random.Random(7)
    folder.mkdir(parents=True)
    for number in range(FILES + 2):
        begin = START + number * 2 * HOUR
        rows = [(f"user-{draw.randrange(USERS)}", begin + timedelta(seconds=draw.randrange(7200))) for _ in range(ROWS)]
        if number >= FILES:
            rows = [("watch", begin + 24 * HOUR)]
        users, times = zip(*sorted(rows, key=lambda row: row[1]))
        path = folder / f"{number:03d}.parquet"
        pq.write_table(pa.table({"user": users, "ts": pa.array(times, pa.timestamp("us", "UTC"))}), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files by age


def stream(folder):
    """Reads all there is, and ends."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .getOrCreate()
    )
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    alerts = events.transform(
        hf.keyed("user", Silence(), ALERTS, name="silence", watermark=("ts", "0 seconds"), ticks="never")
    )
    hf.write_exactly_once(
        alerts,
        hf.FileSink(str(folder / "alerts")),
        checkpoint=str(folder / "spark"),
        trigger={"availableNow": True},
    ).awaitTermination()


def run(folder, kill_after=None):
    """The stream in a process of its own; killed after so many batches."""
    command = [sys.executable, __file__, str(folder), "--stream"]
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None:
        if kill_after is not None and (folder / "spark" / "commits" / str(kill_after)).exists():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"killed after batch {kill_after}", flush=True)
            return
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"the stream ended with {process.returncode}")


def check(folder):
    """How many alerts there are, and those that differ."""
    found = hf.FileSink.read(str(folder / "alerts"))
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("CREATE TABLE events AS SELECT * FROM read_parquet(?)", [str(folder / "events" / "*.parquet")])
        db.execute(
            """CREATE TABLE expected AS SELECT "user", ts AS silent_since FROM (
                 SELECT *, lead(ts) OVER (PARTITION BY "user" ORDER BY ts) AS next FROM events WHERE "user" <> 'watch')
               WHERE next IS NULL OR next - ts >= INTERVAL 1 HOUR"""
        )
        db.execute("CREATE TABLE given AS SELECT * FROM found WHERE \"user\" <> 'watch'")
        differences = db.execute(
            "(FROM expected EXCEPT ALL FROM given) UNION ALL (FROM given EXCEPT ALL FROM expected)"
        )
        return len(found), differences.fetchall()


def main():
    folder = Path(sys.argv[1])
    if "--stream" in sys.argv:
        stream(folder)
        return
    write_events(folder / "events")
    run(folder, kill_after=FILES // 2)
    run(folder)
    alerts, differences = check(folder)
    print(f"{alerts} alerts, {len(differences)} differences", *differences[:10], sep="\n")
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
