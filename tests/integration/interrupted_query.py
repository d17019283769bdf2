"""Queries that are waited for while somebody presses Ctrl-C, and one while its JVM is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from tests.spark_sessions import start_session

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


def slow(marker: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marker.touch()
            time.sleep(60)
            yield batch

    return wait


def once_there(marker: Path, act: Callable[[], object]) -> None:
    def wait() -> None:
        while not marker.exists():
            time.sleep(0.05)
        time.sleep(1)  # so that the query is waited for
        act()

    threading.Thread(target=wait, daemon=True).start()


def main(folder: Path) -> None:
    spark = start_session("local[2]", folder / "spark", spark__log__level="OFF")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().select("value")

    writers = {
        name: rows.mapInArrow(slow(folder / name), "value long").writeStream.format("noop")
        for name in ("first", "second", "third", "fourth")
    }

    def start(name: str) -> hf.Query:
        return hf.start(writers[name], checkpoint=folder / "checkpoint")

    for name, wait in (("first", hf.Query.awaitTermination), ("second", hf.Query.processAllAvailable)):
        once_there(folder / name, lambda: os.kill(os.getpid(), signal.SIGINT))
        query = start(name)
        try:
            wait(query)
        except KeyboardInterrupt:
            print("interrupted")
        print("active", query.isActive)
        print("failed", query.exception(), flush=True)

    def kill_the_jvm() -> None:
        for child in psutil.Process().children():
            if child.name() == "java":
                child.kill()

    once_there(folder / "third", kill_the_jvm)
    query = start("third")
    asked = (lambda: query.isActive, lambda: query.lastProgress, query.exception, query.stop)
    for act in (query.awaitTermination, query.processAllAvailable, lambda: start("fourth"), *asked):
        try:
            act()
        except hf.Unavailable as error:
            print("Unavailable", "Start the program again" in str(error), flush=True)
    os._exit(0)  # pyspark would wait for its JVM


if __name__ == "__main__":
    main(Path(sys.argv[1]))
