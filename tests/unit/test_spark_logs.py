"""Spark's logs of batches, as its releases write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.inspect.restore import _positions
from holdfast.spark_files.logs import committed_batch
from holdfast.storage import LocalFileStore

KAFKA = '{"format": 1, "source": "5f0b", "offsets": {"t": {"0": 5}}, "topic_ids": {"t": "wFnv:x"}}'


@pytest.mark.parametrize(
    ("version", "first", "second"),
    [("v1", "", ""), ("v2", "0:", "1:"), ("v2", "clicks:", "names:")],
    ids=["4.2", "4.3", "named"],
)
def test_the_end_of_each_source_is_found(tmp_path: Path, version: str, first: str, second: str) -> None:
    """In Spark 4.3 sources can have names: with those in front, one of Kafka was told to be none."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    planned = '{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{}}'
    (tmp_path / "offsets/3").write_text(f"{version}\n{planned}\n{first}{KAFKA}\n{second}-")
    (tmp_path / "commits/3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    batch = committed_batch(LocalFileStore(str(tmp_path)), 3)
    assert batch.sources == (KAFKA, None)
    assert _positions(batch.sources[0]) == {"t": {"0": 5}}
