"""A query of which an attempt at a batch fails once Spark has snapshotted what it left, and which then goes on: what is
visible.

In a program, and so a JVM, of its own: Spark starts the maintenance of its state stores once a JVM, with the interval
that the first query's session has, and in a JVM that tests share that is a minute.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.integration.test_exactly_once import Output, check_chains
from tests.integration.test_totals import events
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.spark_sessions import start_session
from tests.streams import FileStream
from tests.waiting_sink import WaitsForSnapshot, wait_for_snapshot

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
_BATCH = 3  #: in which something fails


class Plain:
    """The same stream into folders, one a batch, by Spark's own foreachBatch: `hf.start`."""

    def __init__(self, stream: FileStream, folder: Path) -> None:
        self._checkpoint = stream.checkpoint
        self._folder = folder / "plain"

    def run(self, frame: DataFrame, failing: str | None = None) -> None:
        """``failing``: the suffix of the snapshot once which is there a batch fails, all whose tasks are done."""

        def write(batch: DataFrame, batch_id: int) -> None:
            batch.coalesce(1).write.mode("overwrite").parquet(str(self._folder / f"{batch_id:03d}"))
            if failing is not None and batch_id == _BATCH:
                wait_for_snapshot(self._checkpoint / "state", batch_id, failing)

        writer = frame.writeStream.foreachBatch(write).outputMode("append").trigger(availableNow=True)
        hf.start(writer, checkpoint=self._checkpoint).awaitTermination()

    def rows(self) -> pa.Table:
        return pa.concat_tables([pq.read_table(folder) for folder in sorted(self._folder.iterdir())])


def main(folder: Path, provider: str, fails: str) -> None:
    """``fails``: "batch", "task" (and its next attempt does not), or "started": a batch of a query by `hf.start`."""
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
    stream = FileStream(spark, folder)
    output: Any = Plain(stream, folder) if fails == "started" else Output(stream, folder)
    batches = [events(seed) for seed in range(6)]

    def frame() -> DataFrame:
        return stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))

    stream.write(*batches[:_BATCH])
    output.run(frame())
    stream.write(batches[_BATCH])
    state, suffix = str(stream.checkpoint / "state"), _SUFFIXES[provider]
    told = ""
    try:
        if fails == "started":
            output.run(frame(), suffix)
        else:
            once: dict[str, Any] = {"partition": 1, "tries": 1} if fails == "task" else {}
            output.run(frame(), WaitsForSnapshot(output.path, batch_id=_BATCH, state=state, suffix=suffix, **once))
    except Exception as error:
        told = str(error)
    # No newer snapshot hides what Spark has of the attempt that failed.
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000")
    output.run(frame())
    again = output.rows().num_rows
    stream.write(*batches[_BATCH + 1 :])
    output.run(frame())
    check_chains(output.rows())
    print(json.dumps({"failed": told, "again": again, "in all": output.rows().num_rows}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
