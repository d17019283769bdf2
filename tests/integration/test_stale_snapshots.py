"""Spark snapshots its state in the background, also that of a batch which is never committed. The batch runs again, and
leaves other versions; but Spark reads a snapshot before the deltas, for as long as there is no newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_exactly_once import Output, check_chains, output
from tests.integration.test_totals import events
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.waiting_sink import WaitsForSnapshot

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
__all__ = ["output"]
_STATE = "org.apache.spark.sql.execution.streaming.state"


@pytest.fixture(params=["default", "RocksDB"])
def suffix(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of snapshots, which Spark makes at once."""
    given = {
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    }
    if request.param == "RocksDB":
        given |= {
            "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield ".zip" if request.param == "RocksDB" else ".snapshot"
    for name, kept in before.items():
        if kept is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, kept)


def test_a_snapshot_of_a_batch_that_was_not_committed_is_not_gone_on_from(
    output: Output, spark: SparkSession, suffix: str
) -> None:
    batches = [events(seed) for seed in range(6)]

    def frame() -> DataFrame:
        return output.stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))

    output.stream.write(*batches[:3])
    output.run(frame())
    output.stream.write(batches[3])
    failing = WaitsForSnapshot(output.path, batch_id=3, state=str(output.stream.checkpoint / "state"), suffix=suffix)
    with pytest.raises(Exception, match="it is there"):
        output.run(frame(), failing)
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000")
    output.run(frame())
    assert output.rows().num_rows == 2000
    output.stream.write(*batches[4:])
    output.run(frame())
    assert output.rows().num_rows == 3000
    check_chains(output.rows())
