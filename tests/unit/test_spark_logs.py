"""Spark's logs as releases from 4.2 on write them where sources, or sinks, have names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spark_files import SparkFiles

from holdfast.errors import Corrupt, Incompatible
from holdfast.inspect.restore import _positions
from holdfast.spark_files.logs import committed_batch
from holdfast.storage import LocalFileStore


@pytest.mark.parametrize(
    ("lines", "sources"),
    [
        (['10:{"ms":5}', '2:{"t":{"0":7}}', "1:-", '0:{"a":":"}'], ('{"a":":"}', None, '{"t":{"0":7}}', '{"ms":5}')),
        (['paid:{"t":{"0":7}}', "orders:-"], (None, '{"t":{"0":7}}')),
    ],
)
def test_sources_that_have_names_are_told_in_their_order(
    tmp_path: Path, lines: list[str], sources: tuple[str | None, ...]
) -> None:
    """Offsets of version 2, and commits of version 3."""
    files = SparkFiles(tmp_path, "query")
    files.commit(0, [])
    planned = (tmp_path / "offsets/0").read_text().split("\n")[1]
    files.write("offsets/0", "\n".join(["v2", planned, *lines]))
    files.write("commits/0", 'v3\n{"nextBatchWatermarkMs":6000,"sinkMetadataMap":{}}')
    batch = committed_batch(LocalFileStore(str(tmp_path)), 0)
    assert (batch.sources, batch.watermark_ms) == (sources, 6000)
    assert _positions(batch.sources[sources.index('{"t":{"0":7}}')]) == {"t": {"0": 7}}


def test_what_is_of_no_known_version_or_shape_is_told(tmp_path: Path) -> None:
    files, store = SparkFiles(tmp_path, "query"), LocalFileStore(str(tmp_path))
    files.commit(0, [])
    files.write("offsets/0", (tmp_path / "offsets/0").read_text().replace("v1", "v2"))
    with pytest.raises(Corrupt, match="not what Spark writes"):
        committed_batch(store, 0)  # a source without a name
    files.write("offsets/0", json.dumps({}))
    with pytest.raises(Incompatible, match="expected one of v1, v2$"):
        committed_batch(store, 0)


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
