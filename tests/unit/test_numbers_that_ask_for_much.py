"""Numbers in storage that ask for more memory than there is: told as what they are, before room is made for them.

Those of handles and commit records: test_handle.py, test_commit_record.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark_files import SparkFiles

from holdfast.checkpoint import Handle, OperatorRecord
from holdfast.checkpoint.handle import DeltaRef
from holdfast.checkpoint.names import delta_name
from holdfast.errors import Corrupt
from holdfast.inspect.no_longer_retained import _has_way
from holdfast.spark_files.stale_snapshots import forget_stale_snapshots
from holdfast.spark_files.state import SparkState
from holdfast.storage import LocalFileStore

MANY = 10**12
RECORD = OperatorRecord("totals", 64, 8, tuple(range(8)), pa.schema([("k", pa.int64())]), False, ())


@pytest.mark.parametrize(
    "change",
    [{"slots": MANY}, {"slots": 0}, {"slots": True}, {"max_parallelism": MANY}, {"max_parallelism": 0}],
    ids=str,
)
def test_an_operator_of_more_slots_or_key_groups_than_there_can_be(change: dict[str, int]) -> None:
    assert OperatorRecord.from_json(RECORD.to_json()) == RECORD
    with pytest.raises(Corrupt, match="lacks what an operator's record has"):
        OperatorRecord.from_json(replace(RECORD, **change).to_json())  # type: ignore[arg-type]


def test_a_store_of_more_partitions_than_there_are_folders(tmp_path: Path) -> None:
    SparkFiles(tmp_path, "query").commit(0, ["{}"])
    described = tmp_path / "state/0/_metadata/metadata"
    version, _, text = described.read_text().partition("\n")
    document = json.loads(text)
    document["stateStoreInfo"][0]["numPartitions"] = MANY
    described.write_text(f"{version}\n{json.dumps(document)}")
    state = SparkState(LocalFileStore(str(tmp_path)))
    (operator,) = state.operators()
    assert state.lacking(operator, 1) == 1
    with pytest.raises(Corrupt, match=r"state/0/1/1\.delta"):
        list(state.texts(operator, 1, 1))


def test_a_snapshot_of_spark_far_behind_all_deltas(tmp_path: Path) -> None:
    """Python 3.10 makes a set of all that a set is asked for."""
    SparkFiles(tmp_path, "query").commit(0, ["{}"])
    (tmp_path / f"state/0/0/{MANY}.snapshot").write_bytes(b"")
    assert forget_stale_snapshots(LocalFileStore(str(tmp_path)), 100) == []


def test_a_version_far_behind_the_deltas_that_are_known() -> None:
    version_id = f"{1:032x}"
    handle = Handle("totals", 0, version_id, None, MANY, 0).stored()
    newest = DeltaRef(MANY, version_id, 1, "0" * 16)
    assert not _has_way(replace(handle, newest=newest), [newest], {delta_name(MANY, version_id)})
    first = replace(handle, sequence=1, newest=newest._replace(sequence=1))
    assert first.newest is not None
    assert _has_way(first, [first.newest], {delta_name(1, version_id)})
