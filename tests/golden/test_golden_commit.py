"""Bytes of commit records and epochs, version 1. Never written again: what a release wrote must be read for ever."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from holdfast.commit.epochs import FORMAT, VERSION, Driver
from holdfast.commit.record import CommitRecord, SinkRecord, TaskRecord
from holdfast.commit.sink import Committable
from holdfast.sealed import seal, unseal

FOLDER = Path(__file__).parent
FIRST, SECOND = "0f0f0f0f-0000-4000-8000-000000000001", "0f0f0f0f-0000-4000-8000-000000000002"
RECORD = CommitRecord(
    query_id="0f0f0f0f-0000-4000-8000-000000000000",
    run_id=SECOND,
    epoch=3,
    batch_id=41,
    revision=1,
    offsets="00c0ffee00c0ffee",
    partitions=3,
    state_run_id=FIRST,
    tasks=(TaskRecord(0, FIRST, 0, 1200, 5_000), TaskRecord(1, SECOND, 1, 17, 4_998), TaskRecord(2, FIRST, 0, 1202, 0)),
    sinks={
        "kafka": SinkRecord(
            "kafka",
            (
                Committable(0, 0, 5_000, 500_000, {"transactional_id": "a", "producer_id": 7, "producer_epoch": 0}),
                Committable(1, 1, 4_998, 499_800, {"transactional_id": "b", "producer_id": 8, "producer_epoch": 2}),
            ),
            done=(0,),
        ),
        "files": SinkRecord(
            "files", (Committable(0, 0, 5_000, 80_000, {"staged": "s/ü", "published": "p"}),), lost=(0,)
        ),
    },
)  # fmt: skip
DRIVER = Driver(SECOND, "host-ü", 4711, 1_800_000_000_000)


def test_commit_record() -> None:
    stored = (FOLDER / "commit_record_v1.json").read_bytes()
    assert CommitRecord.from_text(stored, "golden") == RECORD
    assert RECORD.to_text().encode() == stored


def test_epoch() -> None:
    stored = (FOLDER / "epoch_v1.json").read_bytes()
    assert Driver(**unseal(stored, FORMAT, VERSION, "golden")) == DRIVER
    assert seal(FORMAT, VERSION, asdict(DRIVER)).encode() == stored
