"""Under a limit of the address space, as spark.executor.pyspark.memory sets one: mapped files counted against it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import rocksdb_library
from holdfast._core import BaseOptions, BaseWriter, Store

pytestmark = pytest.mark.long
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


CONVERTS_ALL = """
import resource
import numpy as np, pandas, pyarrow as pa
import holdfast as hf
from holdfast.state.arrays import to_array
from holdfast.state.casts import cast
from holdfast.state.python_leaves import by_arrow, python_of
from holdfast.state.python_values import arrow_of
from holdfast.testing import Harness

large, numbers = b"x" * (200 << 20), np.zeros(25 << 20, np.int64)
array, scalar = pa.array(numbers), pa.scalar(large)


class Keeps(hf.KeyedProcessor):
    value = hf.ValueState(pa.binary())

    def process(self, key, rows, ctx):
        self.value.update(large)


def keep():
    with Harness(Keeps(), "k", "k string", "k string") as harness:
        harness.process([{"k": "a"}])


conversions = {
    "of a list": lambda: arrow_of([large], pa.binary(), "here"),
    "of an array": lambda: cast(array, pa.float64(), "here"),
    "of numpy": lambda: to_array(numbers[::2], pa.int64(), "here"),
    "of a scalar": lambda: by_arrow(pa.binary())(scalar),
    "to a list": lambda: python_of(array.view(pa.time64("ns")), "here"),
    "of a state": keep,
}
pa.set_memory_pool(pa.system_memory_pool())  # another may have taken address space that it does not use
for name, convert in conversions.items():
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (40 << 20), resource.RLIM_INFINITY))
    try:
        convert()
    except Exception as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        print(name, isinstance(error, MemoryError), str(error).replace("\\n", " "))
"""


def test_memory_that_a_conversion_cannot_have_is_told_as_memory_and_not_as_a_wrong_value() -> None:
    """It was an InvalidRequest: "expected values of binary: malloc of size 209715200 failed"."""
    ran = subprocess.run([sys.executable, "-c", CONVERTS_ALL], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    told = [line.partition(" True ") for line in ran.stdout.splitlines()]
    assert [name for name, _, _ in told] == [
        "of a list", "of an array", "of numpy", "of a scalar", "to a list", "of a state"
    ], ran.stdout  # fmt: skip
    assert all("malloc of size" in error for _, _, error in told)
