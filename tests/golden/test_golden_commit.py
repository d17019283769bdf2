"""Bytes of commit records (versions 1 and 2), epochs, forks, witnesses and claims. Never written again: what a release
wrote must be read for ever.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from holdfast.commit.epochs import FORMAT, VERSION, Driver
from holdfast.commit.record import CommitRecord, SinkRecord, TaskRecord
from holdfast.commit.sink import Committable, Scope, SinkTask
from holdfast.commit.timeline import FORMAT as FORK_FORMAT
from holdfast.commit.timeline import Fork
from holdfast.sealed import seal, unseal
from holdfast.sink.kafka.witness import CLAIM_FORMAT, WITNESS_FORMAT, claim_text, witness_text

FOLDER = Path(__file__).parent
TIMELINE = "0f0f0f0f-0000-4000-8000-000000000003"
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


def test_commit_record_with_doubted_batches() -> None:
    stored = (FOLDER / "commit_record_v2.json").read_bytes()
    record = replace(RECORD, doubted=(3, 7, 8, 9, 41))
    assert CommitRecord.from_text(stored, "golden") == record
    assert record.to_text().encode() == stored


def test_commit_record_of_a_batch_without_rows() -> None:
    stored = (FOLDER / "commit_record_claim_v1.json").read_bytes()
    place = {"topic": "holdfast-witness", "topic_id": "topic-1", "partition": 2, "since": 100}
    record = replace(RECORD, sinks={"kafka": SinkRecord("kafka", (), claim={"witness": place})})
    assert CommitRecord.from_text(stored, "golden") == record
    assert record.to_text().encode() == stored


def test_epoch() -> None:
    stored = (FOLDER / "epoch_v1.json").read_bytes()
    assert Driver(**unseal(stored, FORMAT, VERSION, "golden")) == DRIVER
    assert seal(FORMAT, VERSION, asdict(DRIVER)).encode() == stored


def test_fork() -> None:
    stored = (FOLDER / "fork_v1.json").read_bytes()
    fork = Fork(RECORD.query_id, TIMELINE, RECORD.query_id, "host-ü", 4711, 1_800_000_000_000)
    assert Fork(**unseal(stored, FORK_FORMAT, 1, "golden")) == fork
    assert seal(FORK_FORMAT, 1, asdict(fork)).encode() == stored


def test_witness_and_claim() -> None:
    scope = Scope(RECORD.query_id, SECOND, 19, "kafka")
    stored = (FOLDER / "witness_v1.json").read_bytes()
    assert witness_text(SinkTask(scope, 41, 1, 2, 17)) == stored
    assert unseal(stored, WITNESS_FORMAT, 1, "golden")["batch_id"] == 41
    stored = (FOLDER / "claim_v1.json").read_bytes()
    assert claim_text(scope, DRIVER) == stored
    assert unseal(stored, CLAIM_FORMAT, 1, "golden")["host"] == "host-ü"
