"""What the demo leaves: a table of the final figures (Parquet), a plot (PNG), and a page that says what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import matplotlib
import pyarrow as pa
import pyarrow.parquet as pq
from check import Verdict

matplotlib.use("Agg")

LATEST = """
SELECT * FROM rows QUALIFY flight = max(flight) OVER (PARTITION BY kind, key) ORDER BY kind DESC, flights DESC, key
"""
LARGEST = "SELECT key FROM latest WHERE kind = 'carrier' ORDER BY flights DESC LIMIT 6"
THROUGH_THE_YEAR = """
SELECT CAST(departure AS TIMESTAMP) AS departure, mean_delay FROM rows JOIN flights USING (flight)
WHERE kind = 'carrier' AND key = ? AND rows.flights > 500
QUALIFY flight = max(flight) OVER (PARTITION BY date_trunc('day', departure)) ORDER BY flight
"""
KILLED_AT = "SELECT CAST(min(departure) AS TIMESTAMP) FROM flights WHERE step = ?"
ABSENCES = "SELECT longest_gap_hours / 24 AS days FROM latest WHERE longest_gap_hours IS NOT NULL"
CARRIERS = """
SELECT key, flights, mean_delay, stddev_delay, worst_delay, destinations FROM latest WHERE kind = 'carrier'
ORDER BY flights DESC LIMIT 8
"""
MOVED = """
SELECT key, flights, moves, gaps, airport FROM latest WHERE kind = 'aircraft' ORDER BY moves DESC, key LIMIT 5
"""
PAGE = """\
# A year of flights, with a kill -9 in the middle

{flights:,} flights left New York in 2013. They were replayed in order of time, {files} files, one file a batch, through
one streaming query with two stateful operators: delays by carrier, and the path of each aircraft.

After {killed_after} committed batches, {during}, every process of the job ({killed} of them: driver,
JVM, Python workers) got SIGKILL. Started again, it committed its next batch after {resume:.1f} s, the start of Spark
included, and went on to the end.

## Checked against DuckDB

Each row that the stream wrote, against window functions over the whole year. Averages may differ by 1e-9 of their
value.

| operator | keys | rows | figures | missing | extra | repeated | wrong |
| --- | --- | --- | --- | --- | --- | --- | --- |
{verdicts}

{outcome}

## How long it took

Until the kill {first:.1f} s, after it {second:.1f} s. Of {told} batches: median {median} ms, slowest {slowest} ms.

## Carriers at the end of the year

Delays in minutes, at arrival.

| carrier | flights | mean delay | standard deviation | worst | destinations |
| --- | --- | --- | --- | --- | --- |
{carriers}

## Aircraft that changed most often between New York's airports

The data hold departures from New York only: an aircraft comes back unseen, sometimes to another airport. A gap is more
than 48 hours without a departure.

| aircraft | flights | moves | gaps | last seen at |
| --- | --- | --- | --- | --- |
{moved}

![Delays and absences](flights.png)

The final figures of all keys: `flights.parquet`. Every row that the stream wrote: `rows/`.
"""


@dataclass
class Story:
    """What happened, as the supervisor saw it."""

    flights: int = 0
    files: int = 0
    killed_after_batches: int = 0
    killed_in_batch: bool = False
    killed_processes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    batches: list[dict[str, Any]] = field(default_factory=list)


def write_table(rows: pa.Table, path: Path) -> pa.Table:
    """The last row of each key: its state at the end of the year."""
    db = duckdb.connect()
    db.register("rows", rows)
    latest = db.sql(LATEST).to_arrow_table()
    pq.write_table(latest, path)
    return latest


def draw(flights: pa.Table, rows: pa.Table, latest: pa.Table, story: Story, path: Path) -> None:
    """Left: each carrier's mean delay as it went through the year. Right: aircraft by their longest absence."""
    from matplotlib import pyplot

    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for name, table in (("flights", flights), ("rows", rows), ("latest", latest)):
        db.register(name, table)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5), gridspec_kw={"width_ratios": [2, 1]})
    for (carrier,) in db.execute(LARGEST).fetchall():
        line = db.execute(THROUGH_THE_YEAR, [carrier]).fetchnumpy()
        left.plot(line["departure"], line["mean_delay"], label=carrier, linewidth=1.3)
    killed = db.execute(
        "SELECT CAST(min(departure) AS TIMESTAMP) FROM flights WHERE step = ?", [story.killed_after_batches]
    ).fetchone()
    if killed and killed[0] is not None:
        left.axvline(killed[0], color="black", linestyle="--", linewidth=1)
        left.annotate(" kill -9", (killed[0], left.get_ylim()[1]), va="top")
    left.set(title="Mean delay at arrival so far in the year, minutes", xlabel="flights of 2013, in order of time")
    left.legend(ncols=3, frameon=False)
    gaps = db.execute(ABSENCES).fetchnumpy()
    right.hist(gaps["days"], bins=40, color="#4878a8")
    right.set(
        title="Aircraft by their longest absence", xlabel="days not seen in New York", ylabel="aircraft", yscale="log"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_report(story: Story, verdicts: list[Verdict], latest: pa.Table, path: Path) -> None:
    """The page that says what happened."""
    db = duckdb.connect()
    db.register("latest", latest)
    ms = sorted(batch["ms"] for batch in story.batches)
    page = PAGE.format(
        flights=story.flights,
        files=story.files,
        killed_after=story.killed_after_batches,
        during="while it worked on the next" if story.killed_in_batch else "between two batches",
        killed=story.killed_processes,
        **story.seconds,
        verdicts=verdict_lines(verdicts),
        outcome="No figure differs." if all(v.ok for v in verdicts) else "**There are differences.**",
        told=len(ms),
        median=ms[len(ms) // 2],
        slowest=ms[-1],
        carriers=carrier_lines(db),
        moved="\n".join(
            f"| {aircraft} | {n:,} | {moves} | {gaps} | {airport} |"
            for aircraft, n, moves, gaps, airport in db.execute(MOVED).fetchall()
        ),
    )
    path.write_text(page, encoding="utf-8")


def verdict_lines(verdicts: list[Verdict]) -> str:
    """A line of a table for each operator."""
    return "\n".join(
        f"| {v.kind} | {v.keys:,} | {v.rows:,} | {v.figures:,} | {v.missing} | {v.extra} | {v.repeated} "
        f"| {sum(v.wrong.values())} |"
        for v in verdicts
    )


def carrier_lines(db: duckdb.DuckDBPyConnection) -> str:
    """A line of a table for each of the largest carriers; `db` has the last row of each key as `latest`."""
    return "\n".join(
        f"| {carrier} | {n:,} | {mean:.2f} | {stddev:.2f} | {worst:.0f} | {places} |"
        for carrier, n, mean, stddev, worst, places in db.execute(CARRIERS).fetchall()
    )
