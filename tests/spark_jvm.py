"""How the tests' Spark starts. A program that a test starts lives for a minute, and most of that minute loads and
compiles Spark; so the tests' one, other than a user's, which `make demo`, the wheel's trial and the benchmarks run:

- compiles with the first of the JVM's two compilers alone, and has its classes from an archive: a session with one
  aggregation took 21.0 processor seconds as Spark starts it, 12.1 with the first compiler, 6.1 with the archive too;
- generates no code for each query;
- forks Python workers with their modules (tests/warm_workers.py), and has no archives of Python files: from pyspark.zip
  each process of Python compiles what it imports anew, for 1.1 processor seconds;
- starts no process for each file of a checkpoint (tests/java/QuietLocalFs.java).

`HOLDFAST_PLAIN_SPARK=1` leaves all of that out, as `make nightly` and `make oldest` do.

    python -m tests.spark_jvm

makes archive, jar and SPARK_HOME, once an environment; tests run without them too, where there is no compiler of Java.
A JVM that the archive does not fit (another release, other jars) takes no notice of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
JAR = Path(sys.prefix) / "quiet-local-fs.jar"
HOME = Path(sys.prefix) / "spark-home"
_SOURCE = Path(__file__).parent / "java" / "QuietLocalFs.java"
_FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_ARCHIVING = "HOLDFAST_ARCHIVE_CLASSES"
PLAIN = "HOLDFAST_PLAIN_SPARK"
_SETTINGS = {
    "spark.python.daemon.module": "tests.warm_workers",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def jvm_options() -> str:
    """Of any JVM of Spark; for `spark.executor.extraJavaOptions`, which may set nothing of Spark's."""
    if archive := os.environ.get(_ARCHIVING):
        return f"{_FAST_START} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    if PLAIN in os.environ:
        return ""
    return f"{_FAST_START} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else _FAST_START


def driver_options() -> str:
    """For `spark.driver.extraJavaOptions` or `SPARK_SUBMIT_OPTS`, with settings that a driver's executors take too.
    The workers must be able to import the tests.
    """
    if PLAIN in os.environ:
        return ""
    settings = dict(_SETTINGS)
    if JAR.exists():
        settings["spark.hadoop.fs.AbstractFileSystem.file.impl"] = "QuietLocalFs"
    return " ".join([jvm_options(), *(f"-D{name}={value}" for name, value in settings.items())])


def set_environment() -> None:
    """Of this process, and so of the programs and JVMs that it starts, and of what these start."""
    _add("PYTHONPATH", ROOT)  # the workers' daemon is a module of the tests
    if PLAIN in os.environ:
        return
    os.environ.setdefault("SPARK_SUBMIT_OPTS", driver_options())
    _add("SPARK_DIST_CLASSPATH", JAR)  # after Spark's own jars, in drivers and executors
    if HOME.exists():
        os.environ["SPARK_HOME"] = str(HOME)


def environment_of_users() -> dict[str, str]:
    """This process's, without what :func:`set_environment` and tests/kafka_jvm.py set."""
    ours = ("PYTHONPATH", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "SPARK_HOME", "HOLDFAST_KAFKA_OPTS")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _add(variable: str, path: Path) -> None:
    others = [other for other in os.environ.get(variable, "").split(os.pathsep) if other not in ("", str(path))]
    os.environ[variable] = os.pathsep.join([str(path), *others])


def make_home() -> None:
    """A SPARK_HOME that has all of the installed pyspark's but its archives of Python files."""
    import pyspark

    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    for name in ("bin", "jars", "sbin"):
        (HOME / name).symlink_to(Path(pyspark.__file__).parent / name)


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
    """Makes jar and home; runs a query in a JVM that writes down the classes it has loaded when it ends."""
    make_jar()
    make_home()
    set_environment()
    new = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, _ARCHIVING: str(new), "HOLDFAST_ARCHIVE_FOLDER": folder}
        environment.pop("SPARK_SUBMIT_OPTS", None)  # they name the archive that was: a JVM that has one makes none
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
