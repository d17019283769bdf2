"""What crash_stream.py should have written and should hold, computed by DuckDB over the same input, and compared key by
key.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow as pa

from holdfast import _core
from holdfast.checkpoint import CheckpointSettings, Handle, OperatorRecord, SlotState
from holdfast.storage import open_file_store

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
    """How the committed output differs from what it should be; unless ``complete``, only over the files that it has
    reached.
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
    """How the state that Spark's last handles name differs from what it should be. Restores every slot from storage
    alone.
    """
    handles = [Handle.from_text(text) for text in json.loads((folder / "handles.json").read_text())]
    with duckdb.connect() as db:
        _read_found(db, folder)
        db.execute(f"CREATE TABLE expected AS {_EXPECTED}", [_sources(folder)])
        users = db.sql(
            "SELECT user, max_by(total, seq) AS total, max_by(average, seq) AS average, max(amount) AS greatest, "
            "max_by(amount, seq) AS last, list(amount ORDER BY seq) AS amounts FROM expected GROUP BY user"
        ).to_arrow_table()
        kinds = db.sql(
            "SELECT user, kind, count(*) AS seen, max(amount) AS best, max_by(trail, seq) AS trail, "
            "max_by(amount, seq) AS last FROM expected GROUP BY user, kind"
        ).to_arrow_table()
    found: list[str] = []
    for operator, keys, expected in (("accounts", ["user"], users), ("audit", ["user", "kind"], kinds)):
        mine = {handle.slot: handle for handle in handles if handle.operator == operator}
        found += _operator_differences(folder, operator, expected.combine_chunks(), keys, mine)
    return found


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


def _operator_differences(
    folder: Path, operator: str, expected: pa.Table, key_columns: list[str], handles: dict[int, Handle]
) -> list[str]:
    (query,) = [path for path in (folder / "state").iterdir() if (path / operator).is_dir()]
    record = OperatorRecord.from_json((query / operator / "operator.json").read_bytes())
    rows = expected.to_batches()[0]
    keys = pa.RecordBatch.from_arrays([rows[name].cast(pa.string()) for name in key_columns], schema=record.key_schema)
    order, offsets = _core.KeyCodec(record.key_schema).partition(keys, record.max_parallelism, record.slots)
    places, bounds = pa.array(order), pa.array(offsets).to_pylist()
    found: list[str] = []
    for slot in range(record.slots):
        mine = places.slice(bounds[slot], bounds[slot + 1] - bounds[slot])
        state = SlotState(
            record=record,
            slot=slot,
            file_store=open_file_store(str(folder / "state")),
            prefix=f"{query.name}/{operator}",
            local_dir=str(folder / "another host"),
            settings=CheckpointSettings(),
        )
        store = state.open(handles.get(slot))
        held = _held(store, record, keys.take(mine))
        for name, wanted in _wanted(operator, rows.take(mine)).items():
            for place, (a, b) in enumerate(zip(wanted.to_pylist(), held[name].to_pylist())):
                if a != b and not (isinstance(a, float) and isinstance(b, float) and abs(a - b) < 1e-9):
                    found.append(
                        f"{operator}, slot {slot}, {keys.take(mine).slice(place, 1).to_pylist()}, state {name}: "
                        f"expected {a}, found {b}"
                    )
        state.release_memory()
    return found


def _wanted(operator: str, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    if operator == "accounts":
        return {name: rows[name] for name in ("total", "average", "last", "amounts")}
    trail = [list(map(int, text.split(","))) for text in rows["trail"].to_pylist()]
    return {"seen": rows["seen"], "best": rows["best"], "trail": pa.array(trail, pa.list_(pa.int64()))}


def _held(store: _core.Store, record: OperatorRecord, keys: pa.RecordBatch) -> dict[str, pa.Array]:
    """The states' values of some keys. States folded in Python are left to the output's comparison."""
    found = {}
    for state in record.states:
        types = [field.type for field in state.schema]
        if state.kind == "reducing" and state.function in ("sum", "max"):
            table = store.reducing_state(state.id, types[0], state.function)
        elif state.kind == "aggregating" and state.function == "avg":
            table = store.aggregating_state(state.id, types[0], "avg")
        elif state.kind == "value":
            table = store.value_state(state.id, types[0])
        elif state.kind == "list":
            table = store.list_state(state.id, types[0])
        else:
            continue
        found[state.name] = pa.array(table.get(keys))
    return found
