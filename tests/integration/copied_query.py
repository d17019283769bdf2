"""A query in a process of its own over a copied checkpoint: it goes on until it is refused."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.processors import TOTALS, RunningTotal
from tests.spark_sessions import start_session
from tests.streams import FileStream

import holdfast as hf

#: So that a few batches meet every path of the background.
SETTINGS = {"fold.deltas.max": 2, "snapshot.deltas.max": 4, "retainedBatches": 2, "stray.grace": "2 s"}
KEYED = {"processor": RunningTotal(), "output_schema": TOTALS, "name": "totals"}


def main(folder: Path, state: str, checkpoint: str) -> None:
    """``folder`` has the source; says how the query ended."""
    spark = start_session(
        "local[2]", folder / "spark-of-the-copy",
        spark__holdfast__checkpoint__dir=state, spark__holdfast__local__dir=str(folder / "local-of-the-copy"),
    )  # fmt: skip
    stream = FileStream.over(spark, folder, Path(checkpoint))
    operator = hf.keyed("user", settings=SETTINGS, **KEYED)  # type: ignore[arg-type]
    query = stream.start(stream.events().transform(operator), processingTime="0 seconds")
    print("started", query.runId, flush=True)
    try:
        query.awaitTermination()
    except Exception as error:
        print("ended with", " ".join(str(error).split()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
