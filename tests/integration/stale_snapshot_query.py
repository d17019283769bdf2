"""A query of which a batch fails once Spark has snapshotted what it left, and which then goes on: what is visible.

In a program, and so a JVM, of its own: Spark starts the maintenance of its state stores once a JVM, with the interval
that the first query's session has, and in a JVM that tests share that is a minute.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.test_exactly_once import Output, check_chains
from tests.integration.test_totals import events
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.spark_sessions import start_session
from tests.streams import FileStream
from tests.waiting_sink import WaitsForSnapshot

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATE = "org.apache.spark.sql.execution.streaming.state"
_PROVIDERS = {
    "default": {},
    "RocksDB": {
        "spark__sql__streaming__stateStore__providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark__sql__streaming__stateStore__rocksdb__changelogCheckpointing__enabled": "true",
    },
}
_SUFFIXES = {"default": ".snapshot", "RocksDB": ".zip"}


def main(folder: Path, provider: str) -> None:
    spark = start_session(
        "local[2,2]",
        folder / "spark",
        spark__sql__streaming__stateStore__maintenanceInterval="100ms",
        # With 1, a tick at version 3 would leave version 4 with one delta since, and that is never snapshotted.
        spark__sql__streaming__stateStore__minDeltasForSnapshot="0",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
        **_PROVIDERS[provider],
    )
    output = Output(FileStream(spark, folder), folder)
    batches = [events(seed) for seed in range(6)]

    def frame() -> DataFrame:
        return output.stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))

    output.stream.write(*batches[:3])
    output.run(frame())
    output.stream.write(batches[3])
    state = str(output.stream.checkpoint / "state")
    failing = WaitsForSnapshot(output.path, batch_id=3, state=state, suffix=_SUFFIXES[provider])
    told = ""
    try:
        output.run(frame(), failing)
    except Exception as error:
        told = str(error)
    # No newer snapshot hides what Spark has of the batch that failed.
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000")
    output.run(frame())
    again = output.rows().num_rows
    output.stream.write(*batches[4:])
    output.run(frame())
    check_chains(output.rows())
    print(json.dumps({"failed": told, "again": again, "in all": output.rows().num_rows}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
