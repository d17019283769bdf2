"""Queries whose state and output are in a bucket: what the driver is told before they run, a store that stops answering
while they do, and executors that have lost their local copies.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.integration.test_exactly_once import flat, found
from tests.integration.test_totals import events
from tests.processors import TOTALS, RunningTotal
from tests.s3_server import CREDENTIALS, S3Server
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Totals:
    """Running totals whose state and files are in a bucket behind a proxy."""

    def __init__(self, stream: FileStream, s3: S3Server, proxy: FaultProxy) -> None:
        self.stream, self.proxy = stream, proxy
        self.bucket = s3.bucket()
        self.path = f"s3://{self.bucket}/out"
        self.settings: dict[str, Any] = {
            "checkpoint.dir": f"s3a://{self.bucket}/state",
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
            hf.FileSink(self.path),
            checkpoint=self.stream.checkpoint,
            trigger={"availableNow": True},
            settings={"commit.retry.max": "1 s"},
        ).awaitTermination()

    def found(self) -> list[tuple[str, int, int]]:
        return found(hf.FileSink.read(self.path, hf.StorageOptions(endpoint=self.proxy.url)))


@pytest.fixture
def totals(stream: FileStream, s3: S3Server) -> Iterator[Totals]:
    with fault_proxy(s3.url) as proxy:
        yield Totals(stream, s3, proxy)


def test_a_store_that_stops_answering_ends_the_query_and_loses_nothing(totals: Totals) -> None:
    batches = [events(seed) for seed in range(4)]
    totals.stream.write(*batches[:1])
    totals.run()
    for number, kind in enumerate(("put", "list"), 1):
        totals.stream.write(batches[number])
        totals.proxy.rule = lambda asked, kind=kind: "refuse" if asked.kind == kind else "pass"  # type: ignore[misc]
        with pytest.raises(hf.Unavailable, match=r"(?s)failed \d+ times.*503") as caught:
            totals.run()
        assert not any(secret in str(caught.value) for secret in CREDENTIALS.values() if len(secret) > 9)
        totals.proxy.rule = lambda _: "pass"
        totals.run()
        assert totals.found() == flat(batches[: number + 1])


def test_executors_without_local_copies_restore_from_the_bucket(totals: Totals, tmp_path: Path) -> None:
    batches = [events(seed) for seed in range(8)]
    totals.stream.write(*batches[:6])
    totals.run()
    shutil.rmtree(tmp_path / "local")
    totals.stream.write(*batches[6:])
    totals.run()
    assert totals.found() == flat(batches)
    with totals.proxy.lock:
        names = {asked.path for asked in totals.proxy.asked if asked.method == "GET"}
    assert any("/sst/" in name for name in names), "no snapshot was restored"
    assert not any(secret in str(totals.proxy.asked[-1].path) for secret in CREDENTIALS.values())


def test_the_driver_says_what_is_wrong_with_a_bucket(totals: Totals, spark: SparkSession) -> None:
    """Before a batch runs: it was a worker's error, in the middle of Spark's."""
    totals.stream.write(events(1))
    with pytest.raises(hf.Unavailable, match="no such bucket"):
        totals.run(**{"checkpoint.dir": "s3://no-such-bucket/state"})
    totals.proxy.strip = frozenset({"if-none-match"})
    with pytest.raises(hf.InvalidRequest, match=r"operator 'totals': .*lets a second writer replace it"):
        totals.run(**{"storage.request.timeout": "29 s"})  # other options: another store, which was not tried yet
    assert not list(totals.stream.checkpoint.parent.glob("checkpoint/commits/*"))
