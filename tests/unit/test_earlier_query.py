"""What is read of an earlier query's checkpoint without Spark: which batch counts, and where its sources go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.commit.record_log import record_name
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.spark.earlier_query import kafka_offsets, last_committed_batch

QUERY = "5c2e3f6a-0000-4000-8000-00000000000a"
OURS = {"format": 1, "source": "5f0c", "offsets": {"b": {"0": 17, "1": 0}}, "topic_ids": {"b": "L66Z"}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    for name in ("3", "9", "10", ".10.crc", ".11.0a1b.tmp", "README"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    lines = ["v1", "{}", json.dumps({"a": {"0": 5}}), json.dumps(OURS), '{"logOffset":3}', "-", "7", '{"a":{"0":"x"}}']
    (tmp_path / "offsets" / "10").write_text("\n".join(lines))
    return tmp_path


def test_the_batch_that_spark_committed_last_counts(checkpoint: Path) -> None:
    batch = last_committed_batch(str(checkpoint))
    assert (batch.query_id, batch.batch_id) == (QUERY, 10)


def test_kafka_sources_go_on_where_the_batch_ended(checkpoint: Path) -> None:
    batch = last_committed_batch(str(checkpoint))
    assert json.loads(kafka_offsets(batch, 0)) == {"a": {"0": 5}}
    assert json.loads(kafka_offsets(batch, 1)) == {"b": {"0": 17, "1": 0}}
    for source in (2, 3, 4, 5):
        with pytest.raises(InvalidRequest, match=f"source {source} of .* batch, 10: expected offsets of Kafka"):
            kafka_offsets(batch, source)
    for source in (6, -1):
        with pytest.raises(InvalidRequest, match="expected 0 to 5"):
            kafka_offsets(batch, source)


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1"])
def test_a_log_of_offsets_that_is_none_is_refused(checkpoint: Path, text: str) -> None:
    (checkpoint / "offsets" / "10").write_text(text)
    with pytest.raises(Corrupt, match="expected Spark's log of offsets, version v1"):
        kafka_offsets(last_committed_batch(str(checkpoint)), 0)


def test_a_checkpoint_without_a_committed_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no checkpoint of a streaming query"):
        last_committed_batch(str(tmp_path))
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    with pytest.raises(InvalidRequest, match="no batch that Spark has committed"):
        last_committed_batch(str(tmp_path))


def test_output_that_is_visible_of_a_later_batch_refuses_the_checkpoint(checkpoint: Path) -> None:
    for batch_id in (10, 11):
        record = checkpoint / record_name(QUERY, batch_id, 0)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")
        if batch_id == 10:
            assert last_committed_batch(str(checkpoint)).batch_id == 10
    with pytest.raises(Incompatible, match="up to batch 10, and output is visible of batch 11"):
        last_committed_batch(str(checkpoint))
