"""How the tests' JVMs start: with the first of two compilers alone, with Spark's classes from an archive, with Python
workers that are warm (tests/warm_workers.py), and without a process for each file of Spark's checkpoints
(tests/java/QuietLocalFs.java).

A program that a test starts lives for a minute, and most of that minute loads and compiles Spark. A session with one
aggregation took 21.0 processor seconds as Spark starts it, 12.1 with the first compiler alone, and 6.1 with the archive
too.

    python -m tests.spark_jvm

makes the archive and the jar, once an environment; tests run without them too, where there is no compiler of Java. A
JVM that the archive does not fit (another release, other jars) takes no notice of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
JAR = Path(sys.prefix) / "quiet-local-fs.jar"
_SOURCE = Path(__file__).parent / "java" / "QuietLocalFs.java"
_FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_ARCHIVING = "HOLDFAST_ARCHIVE_CLASSES"
_CLASS_PATH = "SPARK_DIST_CLASSPATH"  # after Spark's own jars, in drivers and executors


def jvm_options() -> str:
    """Of any JVM of Spark; for `spark.executor.extraJavaOptions`, which may set nothing of Spark's."""
    if archive := os.environ.get(_ARCHIVING):
        return f"{_FAST_START} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    return f"{_FAST_START} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else _FAST_START


def driver_options() -> str:
    """For `spark.driver.extraJavaOptions` or `SPARK_SUBMIT_OPTS`, with settings that a driver's executors take too.
    The workers must be able to import the tests.
    """
    file_system = "-Dspark.hadoop.fs.AbstractFileSystem.file.impl=QuietLocalFs" if JAR.exists() else ""
    return f"{jvm_options()} -Dspark.python.daemon.module=tests.warm_workers {file_system}".rstrip()


def add_to_class_path() -> None:
    """Has the JVMs of Spark that this process starts, and those that they start, find what is in the jar."""
    others = [path for path in os.environ.get(_CLASS_PATH, "").split(os.pathsep) if path not in ("", str(JAR))]
    os.environ[_CLASS_PATH] = os.pathsep.join([*others, str(JAR)])


def make_jar() -> None:
    """Compiles what is in Java. Without a compiler there is no jar, and Hadoop does as it does."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = ["javac", "--release", "17", "-cp", str(jars), "-d", folder, str(_SOURCE)]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or error
            print(f"no jar of {_SOURCE.name}; the tests take longer without it: {said}", file=sys.stderr)
            JAR.unlink(missing_ok=True)
            return
        new = JAR.with_name(f"{JAR.name}.{os.getpid()}")
        with zipfile.ZipFile(new, "w") as jar:
            for path in sorted(Path(folder).glob("*.class")):
                jar.write(path, path.name)
        new.replace(JAR)


def main() -> None:
    """Makes the jar; runs a query in a JVM that writes down the classes it has loaded when it ends."""
    make_jar()
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
