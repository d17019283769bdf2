"""Queries with everything in HDFS: state, commit records, files, and Spark's own checkpoint by Spark's own client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fault_proxy import fault_proxy
from tests.hdfs_server import HdfsServer
from tests.integration.stored_totals import StoredTotals
from tests.integration.test_exactly_once import flat, found
from tests.integration.test_totals import events
from tests.s3_server import free_port
from tests.spark_sessions import lose_local_folder
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def root(hdfs: HdfsServer) -> str:
    return f"hdfs://{hdfs.address}{hdfs.folder()}"


@pytest.fixture
def totals(stream: FileStream, hdfs: HdfsServer, root: str) -> Iterator[StoredTotals]:
    """All of it is in HDFS, whose NameNode's WebHDFS is behind the proxy."""
    with fault_proxy(hdfs.url) as proxy:
        yield StoredTotals(stream, proxy, state=f"{root}/state", out=f"{root}/out", checkpoint=f"{root}/checkpoint")


def names(hdfs: HdfsServer, folder: str) -> list[str]:
    return sorted(str(one["pathSuffix"]) for one in hdfs.listed(folder.removeprefix(f"hdfs://{hdfs.address}")))


def test_a_query_with_everything_in_hdfs(
    totals: StoredTotals, hdfs: HdfsServer, spark: SparkSession, tmp_path: Path
) -> None:
    """It is started again without local copies, and a NameNode that refuses ends it; nothing is lost or there twice."""
    batches = [events(seed) for seed in range(8)]
    totals.stream.write(*batches[:6])
    totals.run()
    assert totals.found() == flat(batches[:6])
    lose_local_folder(tmp_path)
    totals.stream.write(batches[6])
    totals.proxy.rule = lambda asked: "SafeModeException" if asked.kind == "rename" else "pass"
    with pytest.raises(hf.Unavailable, match=r"(?s)failed \d+ times.*SafeModeException.*safe mode"):
        totals.run()
    totals.proxy.rule = lambda _: "pass"
    totals.stream.write(batches[7])
    totals.run()
    assert totals.found() == flat(batches)
    with totals.proxy.lock:
        opened = {asked.path for asked in totals.proxy.asked if asked.kind == "open"}
    assert any("/sst/" in name for name in opened), "no snapshot was restored"
    # Spark reads what is there, and keeps its part of the checkpoint in the same folder as the commit records.
    assert found(spark.read.parquet(totals.out).toArrow()) == flat(batches)
    assert {"commits", "holdfast", "metadata", "offsets", "state"} <= set(names(hdfs, str(totals.checkpoint)))
    assert not os.path.exists(totals.stream.checkpoint)
    options = hf.StorageOptions(endpoint=totals.proxy.url)
    with hf.Checkpoint(totals.checkpoint, state=totals.state, storage=options) as checkpoint:
        assert checkpoint.verify().whole


def test_the_driver_says_what_is_wrong_with_hdfs(totals: StoredTotals, hdfs: HdfsServer, root: str) -> None:
    """Before a batch runs."""
    totals.stream.write(events(1))
    with pytest.raises(hf.Unavailable, match=r"NameNodes, such as http://nn1:9870"):
        totals.run(**{"storage.endpoint": f"http://127.0.0.1:{free_port()}"})
    totals.proxy.rule = lambda _: "AccessControlException"
    with pytest.raises(hf.Unavailable, match=r"AccessControlException.*HADOOP_USER_NAME"):
        totals.run()
    assert names(hdfs, root) == []
