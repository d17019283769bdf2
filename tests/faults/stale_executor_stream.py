"""A query on two machines whose sink fails, each second batch, once Spark's store has the state of that attempt; the
task is tried again on the other machine, and the next batch may run on either.

    python -m tests.faults.stale_executor_stream FOLDER
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tests.faults.standalone_cluster import StandaloneCluster
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.spark_sessions import start_session
from tests.streams import FileStream

import holdfast as hf
from holdfast.commit.sink import Committable, SinkTask, SinkWriter
from holdfast.errors import Unavailable

_BATCHES = 9
_SETTINGS = {
    "spark__executor__memory": "700m",
    "spark__executor__cores": "1",
    "spark__excludeOnFailure__enabled": "true",  # so that it is tried again elsewhere
    "spark__locality__wait": "0s",
}


@dataclass(frozen=True)
class FailsFirst(hf.FileSink):
    """The first attempt at partition 1 of each second batch fails when all its rows are there."""

    def open(self, task: SinkTask) -> Failing:  # type: ignore[override]
        fails = (task.attempt, task.partition, task.batch_id % 2) == (0, 1, 1)
        return Failing(super().open(task), fails)


class Failing:
    """The writer of such a sink."""

    def __init__(self, inner: SinkWriter, fails: bool) -> None:
        self._inner = inner
        self._fails = fails

    def write(self, rows: pa.RecordBatch) -> None:
        self._inner.write(rows)

    def abort(self) -> None:
        self._inner.abort()

    def prepare(self) -> Committable | None:
        if self._fails:
            raise Unavailable("the other side does not answer")
        return self._inner.prepare()


def main(folder: Path) -> None:
    with StandaloneCluster(folder / "hosts") as hosts:
        places = {f"spark__holdfast__{name}__dir": str(folder / name) for name in ("checkpoint", "local")}
        spark = start_session(hosts.master, folder / "spark", **places, **_SETTINGS)
        stream = FileStream(spark, folder / "stream")
        users = [f"user{number}" for number in range(12)]
        for batch in range(_BATCHES):
            stream.write(pa.table({"user": users, "amount": [batch] * len(users)}))
        rows = stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))
        sink = FailsFirst(str(folder / "out"))
        query = hf.write_exactly_once(rows, sink, checkpoint=stream.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        print(json.dumps(hf.FileSink.read(str(folder / "out")).to_pylist()))
        spark.stop()


if __name__ == "__main__":
    # As users start Spark: the tests' own classes are not on the cluster's class path.
    main(Path(sys.argv[1]))
