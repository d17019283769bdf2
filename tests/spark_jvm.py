"""How the tests' JVMs start: with the first of two compilers alone, and with Spark's classes from an archive.

A program that a test starts lives for a minute, and most of that minute loads and compiles Spark. A session with one
aggregation took 21.0 processor seconds as Spark starts it, 12.1 with the first compiler alone, and 6.1 with the archive
too.

    python -m tests.spark_jvm

makes the archive, once an environment; tests run without it too. A JVM that it does not fit (another release, other
jars) takes no notice of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_ARCHIVING = "HOLDFAST_ARCHIVE_CLASSES"


def jvm_options() -> str:
    """For `spark.driver.extraJavaOptions`, `spark.executor.extraJavaOptions` or `SPARK_SUBMIT_OPTS`."""
    if archive := os.environ.get(_ARCHIVING):
        return f"{_FAST_START} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    return f"{_FAST_START} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else _FAST_START


def main() -> None:
    """Runs a query in a JVM that writes down the classes it has loaded when it ends."""
    new = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, _ARCHIVING: str(new), "HOLDFAST_ARCHIVE_FOLDER": folder}
        program = "from tests.spark_jvm import query; query()"
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    if not new.exists():
        print(f"no archive of Spark's classes; the tests take longer without it: {done.stderr[-500:]}", file=sys.stderr)
        return
    new.replace(ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size >> 20} MiB of Spark's classes, for the tests' JVMs")


def query() -> None:
    """Loads what most tests load: a stream through a keyed operator into files, exactly once."""
    import pyarrow as pa
    from tests.processors import TOTALS, RunningTotal
    from tests.spark_sessions import start_session
    from tests.streams import FileStream

    import holdfast as hf

    folder = Path(os.environ["HOLDFAST_ARCHIVE_FOLDER"])
    spark = start_session(
        "local[2]",
        folder / "spark",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
    )
    stream = FileStream(spark, folder)
    stream.write(pa.table({"user": ["a", "b"], "amount": [1, 2]}))
    totals = stream.events().transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
    sink = hf.FileSink(str(folder / "out"))
    hf.write_exactly_once(
        totals, sink, checkpoint=str(stream.checkpoint), trigger={"availableNow": True}
    ).awaitTermination()
    spark.read.parquet(str(stream.source)).groupBy("user").sum("amount").toArrow()
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(600)  # it writes the archive now


if __name__ == "__main__":
    main()
