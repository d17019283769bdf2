"""Bases through Python: what is written is read back, in any process, while the next one is made."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import _core, rocksdb_library
from holdfast.errors import Corrupt, Incompatible, InvalidRequest

DELTA = pa.schema([("key_group", pa.uint16()), ("state", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])
OPTIONS = _core.BaseOptions()


@pytest.fixture(autouse=True)
def rocksdb() -> None:
    rocksdb_library.load()


def _delta(rows: list[tuple[int, int, bytes, bytes | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(zip(*rows), DELTA)], schema=DELTA)


def _make(directory: Path, *deltas: pa.RecordBatch, parent: Path | None = None) -> list[str]:
    writer = _core.BaseWriter(None if parent is None else str(parent), str(directory), OPTIONS)
    for delta in deltas:
        writer.add(delta)
    return writer.finish()


def _entries(base: _core.Base, **where: object) -> Iterator[tuple[bytes, bytes]]:
    for batch in base.scan(**where):  # type: ignore[arg-type]
        table = pa.record_batch(batch)
        assert table.schema.names == ["key", "value"]
        yield from zip(table["key"].to_pylist(), table["value"].to_pylist())


def _all(directory: Path) -> dict[bytes, bytes]:
    return dict(_entries(_core.Base(str(directory), OPTIONS)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [(1, 2, b"b", b"second"), (0, 2, b"a", b"first"), (0xFFFE, 1, b"", b""), (3, 3, b"gone", None)]
    files = _make(tmp_path / "base", _delta(rows))
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == files
    assert _all(tmp_path / "base") == {b"\0\0\0\2a": b"first", b"\0\1\0\2b": b"second", b"\xff\xfe\0\1": b""}


def test_later_deltas_win(tmp_path: Path) -> None:
    _make(tmp_path / "first", _delta([(0, 1, b"a", b"1"), (0, 1, b"b", b"1"), (0, 1, b"c", b"1")]))
    older = _delta([(0, 1, b"a", b"2"), (0, 1, b"b", None)])
    newer = _delta([(0, 1, b"a", b"3"), (0, 1, b"d", b"3")])
    _make(tmp_path / "second", older, newer, parent=tmp_path / "first")
    assert _all(tmp_path / "second") == {b"\0\0\0\1a": b"3", b"\0\0\0\1c": b"1", b"\0\0\0\1d": b"3"}


def test_a_writer_holds_the_last_change_of_each_key_only(tmp_path: Path) -> None:
    writer = _core.BaseWriter(None, str(tmp_path / "base"), OPTIONS)
    assert writer.memory_bytes == 0
    held = []
    for number in range(50):
        writer.add(_delta([(i, 1, b"key", b"%08d" % (number * i)) for i in range(1_000)]))
        held.append(writer.memory_bytes)
    # The first came in order, which takes no table to find them in.
    assert held[-1] == held[1] > held[0] > 1_000 * len(b"key00000000")
    writer.finish()
    assert _all(tmp_path / "base") == {i.to_bytes(2, "big") + b"\0\1key": b"%08d" % (49 * i) for i in range(1_000)}


def test_slices_of_deltas_are_their_rows(tmp_path: Path) -> None:
    whole = _delta([(i, 1, b"%d" % i, b"v" if i % 3 else None) for i in range(20)])
    _make(tmp_path / "base", whole.slice(5, 4), whole.slice(17))
    assert [int.from_bytes(key[:2], "big") for key in _all(tmp_path / "base")] == [5, 7, 8, 17, 19]


def test_a_struct_array_slice_is_its_rows(tmp_path: Path) -> None:
    array = pa.StructArray.from_arrays(_delta([(i, 1, b"k", b"v") for i in range(10)]).columns, fields=list(DELTA))
    writer = _core.BaseWriter(None, str(tmp_path / "base"), OPTIONS)
    writer.add(array[3:5])
    writer.finish()
    assert [int.from_bytes(key[:2], "big") for key in _all(tmp_path / "base")] == [3, 4]


def test_an_empty_delta_is_no_change(tmp_path: Path) -> None:
    _make(tmp_path / "base", _delta([(0, 1, b"k", b"v")]).slice(1))
    assert _all(tmp_path / "base") == {}


def test_scans_are_cut_into_batches_and_bounded(tmp_path: Path) -> None:
    _make(tmp_path / "base", _delta([(i, 1, b"k", b"%d" % i) for i in range(10)]))
    base = _core.Base(str(tmp_path / "base"), OPTIONS)
    assert [len(batch) for batch in base.scan(batch_rows=4)] == [4, 4, 2]
    middle = [value for _, value in _entries(base, lower=b"\0\3", upper=b"\0\6")]
    assert middle == [b"3", b"4", b"5"]
    with pytest.raises(InvalidRequest, match="batch_rows: expected 1 or more, found 0"):
        base.scan(batch_rows=0)


def test_a_scan_goes_on_after_its_base_is_closed(tmp_path: Path) -> None:
    _make(tmp_path / "base", _delta([(i, 1, b"k", b"v") for i in range(10)]))
    base = _core.Base(str(tmp_path / "base"), OPTIONS)
    scan = base.scan(batch_rows=1)
    next(scan)
    base.close()
    base.close()
    assert len(list(scan)) == 9
    with pytest.raises(InvalidRequest, match="closed"):
        base.scan()


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (pa.array([1, 2]), Incompatible, "expected an array of struct<key_group: uint16 not null.*, found int64"),
        (
            pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"])}),
            Incompatible,
            "found struct<key: binary, value: binary>",
        ),
        ("not Arrow", InvalidRequest, "expected an Arrow array"),
    ],
)
def test_what_is_no_delta_is_refused(tmp_path: Path, wrong: object, error: type[Exception], said: str) -> None:
    writer = _core.BaseWriter(None, str(tmp_path / "base"), OPTIONS)
    with pytest.raises(error, match=said):
        writer.add(wrong)  # type: ignore[arg-type]


def test_a_null_key_group_is_refused(tmp_path: Path) -> None:
    columns = [pa.array([None], pa.uint16()), *_delta([(0, 1, b"k", b"v")]).columns[1:]]
    writer = _core.BaseWriter(None, str(tmp_path / "base"), OPTIONS)
    with pytest.raises(Corrupt, match="nulls in its column 'key_group', the first in row 0"):
        writer.add(pa.RecordBatch.from_arrays(columns, schema=DELTA))


def test_a_damaged_base_is_corrupt(tmp_path: Path) -> None:
    _make(tmp_path / "base", _delta([(0, 1, b"k", b"v")]))
    manifest = next((tmp_path / "base").glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=manifest.name):
        _core.Base(str(tmp_path / "base"), OPTIONS)
    with pytest.raises(Corrupt, match=manifest.name):
        _core.BaseWriter(str(tmp_path / "base"), str(tmp_path / "next"), OPTIONS)


def test_settings_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="compression: expected one of none, .*found 'gzip'"):
        _core.BaseWriter(None, "/nowhere/base", _core.BaseOptions(compression="gzip"))
    with pytest.raises(TypeError):
        _core.BaseOptions(cache=1)  # type: ignore[call-arg]


_READER = """
import sys
from pathlib import Path
import pyarrow as pa
from holdfast import _core, rocksdb_library

rocksdb_library.load()
directory = Path(sys.argv[1])
print("ready", flush=True)
rounds = 0
while rounds == 0 or not (directory / "../stop").exists():
    base = _core.Base(str(directory), _core.BaseOptions())
    values = [v for batch in base.scan() for v in pa.record_batch(batch)["value"].to_pylist()]
    assert values == [b"first"] * 2000, values[:3]
    base.close()
    rounds += 1
"""


@pytest.mark.long
def test_another_process_reads_a_base_while_children_are_made_of_it(tmp_path: Path) -> None:
    _make(tmp_path / "base", _delta([(i % 7, 1, b"%d" % i, b"first") for i in range(2000)]))
    before = {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir()}
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, str(tmp_path / "base")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"ready\n"
        parent = tmp_path / "base"
        for child in range(10):
            parent, previous = tmp_path / f"child{child}", parent
            _make(parent, _delta([(i % 7, 1, b"%d" % i, b"later") for i in range(2000)]), parent=previous)
        (tmp_path / "stop").touch()
        _, said = reader.communicate(timeout=120)
    assert reader.returncode == 0, said.decode()
    assert set(_all(parent).values()) == {b"later"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir()} == before


def test_other_threads_run_while_a_base_is_made(tmp_path: Path) -> None:
    ran = threading.Event()
    seen: list[bool] = []

    def finish() -> None:
        batch = _delta([(i % 100, 1, i.to_bytes(8, "big"), b"v" * 20) for i in range(200_000)])
        writer = _core.BaseWriter(None, str(tmp_path / "base"), OPTIONS)
        writer.add(batch)
        ran.clear()
        writer.finish()
        seen.append(ran.is_set())

    worker = threading.Thread(target=finish)
    worker.start()
    while worker.is_alive():
        ran.set()
        worker.join(0.001)
    assert seen == [True]
