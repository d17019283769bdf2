"""A query that stops while a batch is at work, as one does that is told to from another thread."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_sessions import start_session

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def main(folder: Path) -> None:
    """Stops in the middle of the first batch."""
    started = folder / "started"

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            started.touch()
            time.sleep(60)
            yield batch

    spark = start_session("local[2]", folder / "spark")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().select("value")
    query = hf.write_exactly_once(
        rows.mapInArrow(slow, "value long"), hf.FileSink(str(folder / "out")), checkpoint=str(folder / "checkpoint")
    )
    while not started.exists():
        time.sleep(0.05)
    query.stop()
    query.awaitTermination()
    print("ended quietly", query.exception())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
