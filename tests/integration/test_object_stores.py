"""Queries whose state and output are in a bucket: what the driver is told before they run, a store that stops answering
while they do, and executors that have lost their local copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fault_proxy import fault_proxy
from tests.integration.stored_totals import StoredTotals
from tests.integration.test_exactly_once import flat
from tests.integration.test_totals import events
from tests.s3_server import CREDENTIALS, S3Server
from tests.spark_sessions import lose_local_folder
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def totals(stream: FileStream, s3: S3Server) -> Iterator[StoredTotals]:
    """State and output are in a bucket, behind the proxy."""
    bucket = s3.bucket()
    with fault_proxy(s3.url) as proxy:
        yield StoredTotals(
            stream, proxy, state=f"s3a://{bucket}/state", out=f"s3://{bucket}/out", checkpoint=stream.checkpoint
        )


def test_a_store_that_stops_answering_ends_the_query_and_loses_nothing(totals: StoredTotals) -> None:
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


def test_executors_without_local_copies_restore_from_the_bucket(totals: StoredTotals, tmp_path: Path) -> None:
    batches = [events(seed) for seed in range(8)]
    totals.stream.write(*batches[:6])
    totals.run()
    lose_local_folder(tmp_path)
    totals.stream.write(*batches[6:])
    totals.run()
    assert totals.found() == flat(batches)
    with totals.proxy.lock:
        names = {asked.path for asked in totals.proxy.asked if asked.method == "GET"}
    assert any("/sst/" in name for name in names), "no snapshot was restored"
    assert not any(secret in str(totals.proxy.asked[-1].path) for secret in CREDENTIALS.values())


def test_the_driver_says_what_is_wrong_with_a_bucket(totals: StoredTotals, spark: SparkSession) -> None:
    """Before a batch runs: it was a worker's error, in the middle of Spark's."""
    totals.stream.write(events(1))
    with pytest.raises(hf.Unavailable, match="no such bucket"):
        totals.run(**{"checkpoint.dir": "s3://no-such-bucket/state"})
    totals.proxy.strip = frozenset({"if-none-match"})
    with pytest.raises(hf.InvalidRequest, match=r"operator 'totals': .*lets a second writer replace it"):
        totals.run(**{"storage.request.timeout": "29 s"})  # other options: another store, which was not tried yet
    assert not list(totals.stream.checkpoint.parent.glob("checkpoint/commits/*"))
