"""Every figure that the stream gave, against the same computed at once by DuckDB from the same flights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

# What the job must have said, one row for each flight, with plain window functions over the whole year.
CARRIERS = """
SELECT 'carrier' AS kind, carrier AS key, flight, step,
       count(*) OVER w AS flights, avg(delay) OVER w AS mean_delay, stddev_samp(delay) OVER w AS stddev_delay,
       max(delay) OVER w AS worst_delay, CAST(sum(is_new) OVER w AS BIGINT) AS destinations
FROM (SELECT *, CAST(row_number() OVER v = 1 AS INTEGER) AS is_new FROM flights
      WINDOW v AS (PARTITION BY carrier, dest ORDER BY flight))
WINDOW w AS (PARTITION BY carrier ORDER BY flight)
"""
# One row for each aircraft and step.
AIRCRAFT = """
SELECT 'aircraft' AS kind, aircraft AS key, flight, step,
       count(*) OVER w AS flights, avg(delay) OVER w AS mean_delay, origin AS airport,
       CAST(coalesce(sum(moved) OVER w, 0) AS BIGINT) AS moves,
       CAST(coalesce(sum(CAST(hours > 48 AS INTEGER)) OVER w, 0) AS BIGINT) AS gaps,
       max(CASE WHEN hours > 48 THEN hours END) OVER w AS longest_gap_hours
FROM (SELECT *, CAST(origin <> lag(origin) OVER v AS INTEGER) AS moved,
             epoch(departure - lag(departure) OVER v) / 3600 AS hours
      FROM flights WHERE flown AND aircraft IS NOT NULL WINDOW v AS (PARTITION BY aircraft ORDER BY flight))
WINDOW w AS (PARTITION BY aircraft ORDER BY flight)
QUALIFY flight = max(flight) OVER (PARTITION BY aircraft, step)
"""
EXPECTED = {"carrier": CARRIERS, "aircraft": AIRCRAFT}
EXACT = {"carrier": ["step", "flights", "destinations"], "aircraft": ["step", "flights", "airport", "moves", "gaps"]}
NEAR = {"carrier": ["mean_delay", "stddev_delay", "worst_delay"], "aircraft": ["mean_delay", "longest_gap_hours"]}
RELATIVE_ERROR_MAX = 1e-9


@dataclass(frozen=True)
class Verdict:
    """The outcome for one operator."""

    kind: str
    keys: int
    rows: int
    figures: int
    missing: int
    extra: int
    repeated: int
    wrong: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether there is no difference at all."""
        return not (self.missing or self.extra or self.repeated or any(self.wrong.values()))


def check(flights: pa.Table, rows: pa.Table, kinds: Sequence[str] = ("carrier", "aircraft")) -> list[Verdict]:
    """Compares row by row, the operators of these kinds. `rows` is what the stream wrote."""
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("flights", flights)
    db.register("given", rows)
    return [_check_kind(db, kind, EXPECTED[kind]) for kind in kinds]


def _check_kind(db: duckdb.DuckDBPyConnection, kind: str, expected: str) -> Verdict:
    db.execute(f"CREATE TABLE expected_{kind} AS {expected}")
    db.execute(f"CREATE TABLE given_{kind} AS SELECT * FROM given WHERE kind = '{kind}'")

    def count(query: str) -> int:
        found = db.execute(query.format(e=f"expected_{kind}", g=f"given_{kind}")).fetchone()
        return int(found[0]) if found else 0

    wrong = {}
    for name in EXACT[kind]:
        wrong[name] = count(
            f"SELECT count(*) FROM {{e}} e JOIN {{g}} g USING (key, flight) WHERE e.{name} IS DISTINCT FROM g.{name}"
        )
    for name in NEAR[kind]:
        far = f"abs(e.{name} - g.{name}) > {RELATIVE_ERROR_MAX} * greatest(1, abs(e.{name}))"
        nulls = f"(e.{name} IS NULL) <> (g.{name} IS NULL)"
        wrong[name] = count(f"SELECT count(*) FROM {{e}} e JOIN {{g}} g USING (key, flight) WHERE {nulls} OR {far}")
    rows = count("SELECT count(*) FROM {g}")
    return Verdict(
        kind=kind,
        keys=count("SELECT count(DISTINCT key) FROM {g}"),
        rows=rows,
        figures=rows * len(wrong),
        missing=count("SELECT count(*) FROM {e} ANTI JOIN {g} USING (key, flight)"),
        extra=count("SELECT count(*) FROM {g} ANTI JOIN {e} USING (key, flight)"),
        repeated=rows - count("SELECT count(*) FROM (SELECT DISTINCT key, flight FROM {g})"),
        wrong=wrong,
    )
