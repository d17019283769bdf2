"""Checkpoints whose state is in a bucket, and savepoints in one, against an S3 server: read, verified, made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.by_key import by_key
from tests.s3_server import S3Server
from tests.unit.test_checkpoint_reading import BATCHES, FOLDED, Recorded, expected, totals

import holdfast as hf
from holdfast.checkpoint.names import operator_prefix
from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.storage import FileStore, open_file_store
from holdfast.testing.harness import QUERY_ID


class Bucket:
    """A bucket with the state of a query in it."""

    def __init__(self, s3: S3Server, recorded: Recorded) -> None:
        self.options = hf.StorageOptions(endpoint=s3.url)
        self.uri = f"s3://{s3.bucket()}"
        self.recorded = recorded
        self.store: FileStore = open_file_store(f"{self.uri}/state", self.options)
        root = recorded.folder / "state"
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self.store.put(str(path.relative_to(root)), path.read_bytes())

    def open(self) -> hf.Checkpoint:
        return hf.Checkpoint(self.recorded.folder / "checkpoint", state=f"{self.uri}/state", storage=self.options)


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> Bucket:
    return Bucket(s3, Recorded(tmp_path, **FOLDED))


def test_every_version_is_read_and_verified(bucket: Bucket) -> None:
    before = [(file.name, file.size_bytes, file.modified_ms) for file in bucket.store.list("")]
    with bucket.open() as checkpoint:
        for batch_id in range(BATCHES):
            assert totals(checkpoint, batch_id) == expected(batch_id)
        found = checkpoint.verify()
        assert found.whole and found.readable == tuple(range(BATCHES))
    assert [(file.name, file.size_bytes, file.modified_ms) for file in bucket.store.list("")] == before


def test_a_savepoint_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.open() as checkpoint:
        saved = hf.Savepoint.create(checkpoint=checkpoint, to=f"{bucket.uri}/saved", storage=bucket.options)
        with pytest.raises(InvalidRequest, match="holds a savepoint already"):
            hf.Savepoint.create(checkpoint=checkpoint, to=f"{bucket.uri}/saved", storage=bucket.options)
    assert saved.path("sums", "total") == f"{bucket.uri}/saved/operators/sums/total"
    again = hf.Savepoint(f"{bucket.uri}/saved", storage=bucket.options)
    rows = again.read("sums", "total").read_all()
    assert by_key(rows) == expected(BATCHES - 1)
    assert again.verify() == ()
    by_table = {"total": again.read("sums", "total")}
    edit = hf.OperatorTables("sums", by_table)
    edited = hf.Savepoint.write(f"{bucket.uri}/edited", edit, base=again, storage=bucket.options)
    assert edited.read("sums", "total").read_all() == rows and edited.operators == again.operators
    plan = hf.Restore(savepoint=f"{bucket.uri}/edited", storage=bucket.options).plan()
    assert not plan.refused and plan.batch_id == BATCHES - 1
    store = open_file_store(f"{bucket.uri}/saved", bucket.options)
    name = "operators/sums/total/slot-00000.parquet"
    content = bytearray(store.get(name) or b"")
    store.delete([name])
    content[len(content) // 2] ^= 1
    store.put(name, content)
    damaged = hf.Savepoint(f"{bucket.uri}/saved", storage=bucket.options)
    for opened in (damaged, again):  # one that had read it when it was whole too
        (problem,) = opened.verify()
        assert f"{bucket.uri}/saved/{name}" in problem
    (marker,) = Path(again._own.path).iterdir()
    assert marker.stat().st_size == 0, "what was read is not kept"
    with pytest.raises(Corrupt, match="is damaged"):
        damaged.read("sums", "total").read_all()
    store.delete([name])
    with pytest.raises(Corrupt, match="slot-00000.parquet is missing in the savepoint"):
        hf.Savepoint(f"{bucket.uri}/saved", storage=bucket.options)


def test_gc_goes_by_the_clock_of_the_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time comes from a file that is there for a moment; this machine's clock is two days ahead."""
    handle = bucket.recorded.handles[-1]
    upload = f"{operator_prefix(QUERY_ID, handle.operator)}/slot-00000/sst/{'f' * 32}-000009.sst"
    bucket.store.put(upload, b"its manifest comes last")
    before = {file.name for file in bucket.store.list("")}
    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + 2 * 86_400_000)
    with bucket.open() as checkpoint:
        assert upload in {file.name for file in checkpoint.gc().files}, "by this clock"
        found = checkpoint.gc(apply=True)
    assert found.deleted and not found.files and not found.kept
    assert {file.name for file in bucket.store.list("")} == before


def test_a_file_is_put_back_from_a_backup_in_another_bucket(bucket: Bucket, s3: S3Server) -> None:
    backup = open_file_store(f"s3://{s3.bucket()}/copy", bucket.options)
    for file in bucket.store.list(""):
        backup.put(file.name, bucket.store.get(file.name) or b"")
    tables = {file.name: bucket.store.get(file.name) for file in bucket.store.list("") if file.name.endswith(".sst")}
    bucket.store.delete(list(tables))
    for name in tables:
        bucket.store.put(name, b"torn")
    with bucket.open() as checkpoint:
        mended = checkpoint.repair(apply=True, backup=backup.uri, storage=bucket.options).files
        assert mended and all(file.mended for file in mended)
        for one in mended:
            assert bucket.store.get(one.name) == tables[one.name]
            assert one.aside is not None and bucket.store.get(one.aside) == b"torn"
        assert checkpoint.verify().whole
