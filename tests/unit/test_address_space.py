"""Under a limit of the address space, as spark.executor.pyspark.memory sets one: mapped files counted against it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from holdfast import rocksdb_library
from holdfast._core import BaseOptions, BaseWriter, Store

KEYS = pa.schema([("k", pa.int64())])
VALUE_BYTES = 64 << 10
VALUES = 4500  # larger together than what the child may still take
ROOM_BYTES = 192 << 20

READS_ALL = f"""
import resource, sys
import pandas, pyarrow as pa  # as a worker has them before it is limited
from holdfast import rocksdb_library
from holdfast._core import Base, BaseOptions, Store
from holdfast.errors import Unavailable

rocksdb_library.load()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + {ROOM_BYTES}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
store = Store(pa.schema([("k", pa.int64())]), max_parallelism=1, first_key_group=0, end_key_group=1)
store.set_base(Base(sys.argv[1], BaseOptions()), 1)
values = store.value_state(1, pa.binary())
for first in range(0, {VALUES}, 100):
    keys = pa.array(range(first, first + 100))
    assert all(len(value) == {VALUE_BYTES} for value in pa.array(values.get(keys)).to_pylist())
    store.evict_clean()
store.begin(2)
values.put(pa.array([0]), pa.array([b"x" * (16 << 20)]))
try:
    values.get(pa.array([0] * 40))  # more than there is, in one piece
except Unavailable as error:
    print("unavailable:", error)
try:
    store.take_delta()
except Unavailable as error:
    print("refused:", error)
"""


def test_a_base_larger_than_the_limit_is_read_and_memory_that_cannot_be_had_is_unavailable(tmp_path: Path) -> None:
    rocksdb_library.load()
    store = Store(KEYS, max_parallelism=1, first_key_group=0, end_key_group=1)
    values = store.value_state(1, pa.binary())
    writer = BaseWriter(None, str(tmp_path / "base"), BaseOptions())
    store.begin(1)
    for first in range(0, VALUES, 100):
        values.put(pa.array(range(first, first + 100)), pa.array([bytes([first % 251]) * VALUE_BYTES] * 100))
        while store.dirty_bytes:
            writer.add(store.take_delta())
    writer.finish()
    ran = subprocess.run(
        [sys.executable, "-c", READS_ALL, str(tmp_path / "base")], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    unavailable, refused = ran.stdout.splitlines()
    assert unavailable.startswith("unavailable: get() of state 1 could not get the memory")
    assert refused.startswith("refused: the batch must be aborted: get() of state 1 failed")
