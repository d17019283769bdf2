"""What crash_stream.py should have written and should hold, computed by DuckDB over the same input, and compared row by
row, and key by key. Knows nothing of Holdfast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
from tests.faults.stored_state import States, read_states

# Which file came in which batch is taken from what was found: `batches` (file, batch).
_EXPECTED = """
WITH rows AS (SELECT seq, file, user, kind, amount, batch FROM read_parquet(?) JOIN batches USING (file)),
by_user AS (SELECT user, batch, lag(max_by(amount, seq)) OVER (PARTITION BY user ORDER BY batch) AS before
  FROM rows GROUP BY user, batch),
by_kind AS (SELECT user, kind, batch, lag(max_by(amount, seq)) OVER (PARTITION BY user, kind ORDER BY batch)
  AS kind_before FROM rows GROUP BY user, kind, batch)
SELECT seq, file, user, kind, amount, batch,
  sum(amount) OVER so_far AS total,
  avg(amount) OVER so_far AS average,
  max(amount) OVER so_far AS greatest,
  before,
  count(*) OVER to_batch AS listed,
  kind_before,
  count(DISTINCT kind) OVER to_batch AS kinds,
  count(*) OVER kind_so_far AS seen,
  max(amount) OVER kind_so_far AS best,
  concat_ws(',', lag(amount, 2) OVER kind_so_far, lag(amount, 1) OVER kind_so_far, amount) AS trail
FROM rows JOIN by_user USING (user, batch) JOIN by_kind USING (user, kind, batch)
WINDOW so_far AS (PARTITION BY user ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
       to_batch AS (PARTITION BY user ORDER BY batch RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
       kind_so_far AS (PARTITION BY user, kind ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""
_DIFFERENT = """
SELECT coalesce(e.seq, f.seq) AS seq, e AS expected, f AS found
FROM expected e FULL JOIN found f USING (seq)
WHERE e.seq IS NULL OR f.seq IS NULL OR abs(e.average - f.average) > 1e-9
   OR (e.average IS NULL) <> (f.average IS NULL)
   OR (e.file, e.user, e.kind, e.amount, e.total, e.greatest, e.before, e.listed, e.kind_before, e.kinds, e.seen,
   e.best, e.trail)
      IS DISTINCT FROM
      (f.file, f.user, f.kind, f.amount, f.total, f.greatest, f.before, f.listed, f.kind_before, f.kinds, f.seen,
      f.best, f.trail)
ORDER BY seq
"""


def committed_files(output: Path) -> list[str]:
    """The files of the batches that Spark's file sink has committed, by its log."""
    log = output / "_spark_metadata"
    entries = (
        {path.name: path for path in log.iterdir() if path.name.removesuffix(".compact").isdigit()}
        if log.exists()
        else {}
    )
    compact = max((int(name.removesuffix(".compact")) for name in entries if name.endswith(".compact")), default=-1)
    read = [
        path
        for name, path in entries.items()
        if name == f"{compact}.compact" or (name.isdigit() and int(name) > compact)
    ]
    lines = [json.loads(line) for path in read for line in path.read_text().splitlines()[1:]]
    return [unquote(urlparse(line["path"]).path) for line in lines if line["action"] == "add"]


def output_differences(folder: Path, *, complete: bool) -> list[str]:
    """How the committed output differs from what it should be;
    unless ``complete``, only over the files that it has reached.
    """
    with duckdb.connect() as db:
        if not _read_found(db, folder):
            return ["no output at all"] if complete else []
        reached = db.execute("SELECT max(file) FROM batches").fetchone()
        assert reached is not None
        sources = _sources(folder) if complete else _sources(folder)[: reached[0] + 1]
        wrong = _misplaced_files(db, len(sources))
        db.execute(f"CREATE TABLE expected AS {_EXPECTED}", [sources])
        twice = db.execute("SELECT seq, count(*) FROM found GROUP BY seq HAVING count(*) > 1 ORDER BY seq").fetchall()
        different = db.execute(_DIFFERENT).fetchall()
    wrong += [f"row {seq} stands {count} times" for seq, count in twice]
    return wrong + [f"row {seq}: expected {expected}, found {found}" for seq, expected, found in different]


def state_differences(folder: Path) -> list[str]:
    """How the state that Spark's last handles name differs from what it should be: every state, every key, from storage
    alone; keys that should not be there too.
    """
    found = read_states(folder / "state", json.loads((folder / "handles.json").read_text()))
    wanted = _wanted_states(folder)
    if found.keys() != wanted.keys():
        return [f"operators: expected {sorted(wanted)}, found {sorted(found)}"]
    return [told for operator in wanted for told in _different_states(operator, wanted[operator], found[operator])]


def _wanted_states(folder: Path) -> States:
    with duckdb.connect() as db:
        _read_found(db, folder)
        db.execute(f"CREATE TABLE expected AS {_EXPECTED}", [_sources(folder)])
        users = db.execute(
            "SELECT user, max_by(total, seq), max_by(average, seq), max(amount), max_by(amount, seq), "
            "list(amount ORDER BY seq) FROM expected GROUP BY user"
        ).fetchall()
        kinds = db.execute(
            "SELECT user, kind, count(*), max(amount), max_by(trail, seq), max_by(amount, seq) "
            "FROM expected GROUP BY user, kind"
        ).fetchall()
    accounts = ("total", "average", "greatest", "last", "amounts")
    wanted: States = {
        "accounts": {name: {(row[0],): row[place] for row in users} for place, name in enumerate(accounts, 1)},
        "audit": {
            name: {row[:2]: row[place] for row in kinds} for place, name in enumerate(("seen", "best", "trail"), 2)
        },
    }
    by_kind = wanted["accounts"].setdefault("last_by_kind", {})
    for user, kind, *_, last in kinds:
        by_kind.setdefault((user,), {})[kind] = last
    trails = wanted["audit"]["trail"]
    trails.update({key: [int(number) for number in text.split(",")] for key, text in trails.items()})
    return wanted


def _different_states(
    operator: str, wanted: dict[str, dict[tuple[str, ...], Any]], found: dict[str, dict[tuple[str, ...], Any]]
) -> Iterator[str]:
    if found.keys() != wanted.keys():
        yield f"{operator}: expected the states {sorted(wanted)}, found {sorted(found)}"
        return
    for name, values in wanted.items():
        for key in sorted(values.keys() | found[name].keys()):
            a, b = values.get(key), found[name].get(key)
            if a != b and not (isinstance(a, float) and isinstance(b, float) and abs(a - b) < 1e-9):
                yield f"{operator}, {key}, state {name}: expected {a}, found {b}"


def _sources(folder: Path) -> list[str]:
    return sorted(map(str, (folder / "source").glob("*.parquet")))


def _read_found(db: duckdb.DuckDBPyConnection, folder: Path) -> bool:
    """The tables ``found`` and ``batches``; False when there is no output yet."""
    files = committed_files(folder / "output")
    if files:
        db.execute("CREATE TABLE found AS SELECT * FROM read_parquet(?)", [files])
        db.execute("CREATE TABLE batches AS SELECT file, max(batch) AS batch FROM found GROUP BY file")
    return bool(files)


def _misplaced_files(db: duckdb.DuckDBPyConnection, expected: int) -> list[str]:
    """Every file came whole in one batch, in the order of files."""
    rows = db.execute(
        "SELECT n.file, min(f.batch), max(f.batch), max(max(f.batch)) OVER (ORDER BY n.file ROWS UNBOUNDED PRECEDING) "
        "FROM range(?) n(file) LEFT JOIN found f ON f.file = n.file GROUP BY n.file ORDER BY n.file",
        [expected],
    ).fetchall()
    return [
        f"file {file}: expected in one batch, not before batch {latest}, found in batches {first} to {last}"
        for file, first, last, latest in rows
        if first is None or first != last or last < latest
    ]
