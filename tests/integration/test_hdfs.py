"""Queries with everything in HDFS: state, commit records, files, and Spark's own checkpoint by Spark's own client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.hdfs_server import HdfsServer
from tests.integration.test_exactly_once import flat, found
from tests.integration.test_totals import events
from tests.processors import TOTALS, RunningTotal
from tests.s3_server import free_port
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Totals:
    """Running totals of which all is in HDFS, its NameNode's WebHDFS behind a proxy."""

    def __init__(self, stream: FileStream, hdfs: HdfsServer, proxy: FaultProxy) -> None:
        self.stream, self.proxy, self.hdfs = stream, proxy, hdfs
        self.folder = hdfs.folder()
        self.root = f"hdfs://{hdfs.address}{self.folder}"
        self.settings: dict[str, Any] = {
            "checkpoint.dir": f"{self.root}/state",
            "storage.endpoint": proxy.url,
            "storage.retry.max": "2 s",
            "fold.deltas.max": 2,
            "snapshot.deltas.max": 3,
        }
        for name in ("storage.endpoint", "storage.retry.max"):
            stream.spark.conf.set(f"spark.holdfast.{name}", self.settings[name])

    def run(self, **settings: Any) -> None:
        operator = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings={**self.settings, **settings})
        hf.write_exactly_once(
            self.stream.events().transform(operator),
            hf.FileSink(f"{self.root}/out"),
            checkpoint=f"{self.root}/checkpoint",
            trigger={"availableNow": True},
            settings={"commit.retry.max": "1 s"},
        ).awaitTermination()

    def found(self) -> list[tuple[str, int, int]]:
        return found(hf.FileSink.read(f"{self.root}/out", hf.StorageOptions(endpoint=self.proxy.url)))

    def names(self, folder: str) -> list[str]:
        return sorted(str(one["pathSuffix"]) for one in self.hdfs.listed(f"{self.folder}/{folder}"))


@pytest.fixture
def totals(stream: FileStream, hdfs: HdfsServer) -> Iterator[Totals]:
    with fault_proxy(hdfs.url) as proxy:
        yield Totals(stream, hdfs, proxy)


def test_a_query_with_everything_in_hdfs(totals: Totals, spark: SparkSession, tmp_path: Path) -> None:
    """It is started again without local copies, and a NameNode that refuses ends it; nothing is lost or there twice."""
    batches = [events(seed) for seed in range(8)]
    totals.stream.write(*batches[:6])
    totals.run()
    assert totals.found() == flat(batches[:6])
    shutil.rmtree(tmp_path / "local")
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
    assert found(spark.read.parquet(f"{totals.root}/out").toArrow()) == flat(batches)
    assert {"commits", "holdfast", "metadata", "offsets", "state"} <= set(totals.names("checkpoint"))
    assert not os.path.exists(totals.stream.checkpoint)
    options = hf.StorageOptions(endpoint=totals.proxy.url)
    with hf.Checkpoint(f"{totals.root}/checkpoint", state=f"{totals.root}/state", storage=options) as checkpoint:
        assert checkpoint.verify().whole


def test_the_driver_says_what_is_wrong_with_hdfs(totals: Totals) -> None:
    """Before a batch runs."""
    totals.stream.write(events(1))
    with pytest.raises(hf.Unavailable, match=r"NameNodes, such as http://nn1:9870"):
        totals.run(**{"storage.endpoint": f"http://127.0.0.1:{free_port()}"})
    totals.proxy.rule = lambda _: "AccessControlException"
    with pytest.raises(hf.Unavailable, match=r"AccessControlException.*HADOOP_USER_NAME"):
        totals.run()
    assert totals.names("") == []
