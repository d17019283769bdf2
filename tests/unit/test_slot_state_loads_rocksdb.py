"""A worker process that nobody prepared folds its deltas: SlotState loads RocksDB by itself.

The demo found it missing: every fold in Spark's workers failed, and the totals were right all the same.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import pyarrow as pa
from holdfast.checkpoint import CheckpointSettings, OperatorRecord, SlotState, StateRecord, process_background
from holdfast.storage import open_file_store

folder = sys.argv[1]
keys = pa.schema([("key", pa.int64())])
total = StateRecord(id=1, name="total", kind="reducing", schema=pa.schema([("value", pa.int64())]), function="sum")
record = OperatorRecord(
    name="sums", max_parallelism=16, slots=1, labels=(0,), key_schema=keys, null_keys=False, states=(total,)
)
state = SlotState(
    record=record,
    slot=0,
    file_store=open_file_store(folder + "/state"),
    prefix="query/sums",
    local_dir=folder + "/local",
    settings=CheckpointSettings(fold_deltas_max=1),
)
handle = None
for batch_id in range(2):
    store = state.open(handle)
    state.begin(batch_id)
    store.reducing_state(1, pa.int64(), "sum").add_only(pa.array([1, 2]), pa.array([1, 1]))
    handle = state.prepare()
    assert process_background().drain(240)
"""


def test_a_process_that_nobody_prepared_folds(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=120)
    assert list((tmp_path / "local").rglob("*.sst")), "no base was made"
