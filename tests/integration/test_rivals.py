"""The ways that the benchmarks compare do the same: all give the totals that a dictionary gives."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark_sessions import run_module

BATCHES, ROWS, KEYS = 3, 60, 25


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_all_ways_of_the_benchmarks_give_the_same_totals(tmp_path: Path) -> None:
    chance = random.Random(7)
    (tmp_path / "input").mkdir()
    wanted: dict[str, int] = {}
    distinct = []
    for number in range(BATCHES):
        rows = [(chance.randrange(-KEYS, KEYS), chance.randrange(-5, 100)) for _ in range(ROWS)]
        for key, amount in rows:
            wanted[str(key)] = wanted.get(str(key), 0) + amount
        distinct.append(len({key for key, _ in rows}))
        path = tmp_path / "input" / f"{number}.parquet"
        pq.write_table(pa.table({"key": [key for key, _ in rows], "amount": [amount for _, amount in rows]}), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    run_module("tests.rival_totals", str(tmp_path), timeout_s=850)
    found = json.loads((tmp_path / "totals.json").read_text(encoding="utf-8"))
    assert len(found) == 10
    assert {name: one["totals"] for name, one in found.items()} == dict.fromkeys(found, wanted)
    rows_given = {name: one["rows"] for name, one in found.items()}
    assert rows_given.pop("holdfast, a total for each row") == [ROWS] * BATCHES
    assert rows_given == dict.fromkeys(rows_given, distinct)
