"""What the independent reader found in the topics, against the flights and DuckDB: lost, twice, out of order, wrong."""

from __future__ import annotations

import io
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from check import Verdict, check
from pyarrow import json

VALUES = pa.schema(
    [
        ("flight", pa.int64()),
        ("step", pa.int32()),
        ("flights", pa.int64()),
        ("mean_delay", pa.float64()),
        ("stddev_delay", pa.float64()),
        ("worst_delay", pa.float64()),
        ("destinations", pa.int64()),
    ]
)
DISORDER = """
SELECT count(*) FROM (SELECT flight <= lag(flight) OVER (PARTITION BY key ORDER BY "offset") AS back FROM rows)
WHERE back
"""
SCATTERED = "SELECT count(*) FROM (SELECT key FROM rows GROUP BY key HAVING count(DISTINCT partition) > 1)"


@dataclass(frozen=True)
class Findings:
    """What was counted; `hidden` are rows of attempts that were killed, which only read_uncommitted consumers see."""

    flights: int
    fed: int
    visible: int
    hidden: int
    disorder: int
    scattered: int
    figures: Verdict

    @property
    def ok(self) -> bool:
        """Whether each flight is there once, in order, and right."""
        return self.fed == self.flights and not self.disorder and not self.scattered and self.figures.ok


def decoded(messages: pa.Table) -> pa.Table:
    """The rows that messages of the output topic hold, with their places."""
    text = io.BytesIO(b"\n".join(messages["value"].to_pylist()))
    options = json.ParseOptions(explicit_schema=VALUES, unexpected_field_behavior="error")
    rows = json.read_json(text, parse_options=options)
    places = {
        "kind": pa.repeat(pa.scalar("carrier"), messages.num_rows),
        "key": messages["key"].cast(pa.string()),
        "partition": messages["partition"],
        "offset": messages["offset"],
    }
    for name, column in places.items():
        rows = rows.append_column(name, column)
    return rows


def check_topics(flights: pa.Table, fed: pa.Table, rows: pa.Table, uncommitted: pa.Table) -> Findings:
    """Compares the visible rows with the flights, row by row.

    Parameters
    ----------
    fed, uncommitted
        The messages of the topic that was fed, and all of the output topic, visible or not.
    rows
        The visible ones of the output topic, decoded.
    """
    db = duckdb.connect()
    db.register("rows", rows)
    [[disorder]], [[scattered]] = db.execute(DISORDER).fetchall(), db.execute(SCATTERED).fetchall()
    [verdict] = check(flights, rows, ["carrier"])
    return Findings(
        flights=flights.num_rows,
        fed=fed.num_rows,
        visible=rows.num_rows,
        hidden=uncommitted.num_rows - rows.num_rows,
        disorder=disorder,
        scattered=scattered,
        figures=verdict,
    )
