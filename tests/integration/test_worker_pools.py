"""Slots run in Python workers of their own, and the garbage collector does not look at what modules hold."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.processors import Process, with_pid
from tests.streams import FileStream, rows

import holdfast as hf

pytestmark = pytest.mark.spark
_FEW_OBJECTS = 20_000  # pandas, pyarrow and pyspark alone hold some 80,000


def test_slots_have_workers_of_their_own_that_collect_no_modules(stream: FileStream) -> None:
    stream.write(*(pa.table({"k": list(range(50))}) for _ in range(6)))
    operator = hf.keyed("k", Process(), "map_pid long, slot_pid long, objects long", name="processes")
    environment = dict(stream.spark.sparkContext.environment)
    output = stream.run(lambda events: events.mapInArrow(with_pid, "k long, pid long").transform(operator))
    found = rows(output)
    assert stream.spark.sparkContext.environment == environment
    assert len(found) == 12
    slot_pids, others = {row["slot_pid"] for row in found}, {row["map_pid"] for row in found}
    assert slot_pids.isdisjoint(others)
    assert len(slot_pids) <= 2  # local[2]: no more than run at once
    assert max(row["objects"] for row in found) < _FEW_OBJECTS
