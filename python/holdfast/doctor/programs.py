"""Programs and libraries that are not Python's: the JDK, RocksDB, the Python of Spark's workers, Maven."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast import rocksdb_library
from holdfast.doctor.finding import Finding, Verdict
from holdfast.doctor.packages import spark_version
from holdfast.doctor.versions import dotted, numbers
from holdfast.errors import HoldfastError
from holdfast.folders import temporary_folder
from holdfast.testing.kafka_jars import VERSION_VARIABLE, cached_folder, lock_of
from holdfast.trials import last_line, run_trial

#: What all of Spark 4 is for; docs/guide/install.md says the same.
JDK_LEAST, JDK_NEWEST = 17, 21
#: Spark 4.2 is for JDK 25 too. Hadoop as earlier ones ship it asks for what JDK 24 has no more (Subject.getSubject).
SPARK_OF_NEWER_JDKS = (4, 2)

# What Spark starts for its workers where PYSPARK_PYTHON does not say it.
_PYTHON_OF_THE_PATH = "python3"
_WORKER_TRIAL = (
    "import json, sys, holdfast, pyarrow; print(json.dumps([list(sys.version_info[:2]), sys.executable, sys.prefix]))"
)


def check_jdk(environment: Mapping[str, str]) -> Finding:
    mend = f"install a JDK {JDK_LEAST} or {JDK_NEWEST}, and set JAVA_HOME to its folder"
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        return Finding("JDK", Verdict.MISSING, "none: JAVA_HOME is not set, and there is no java on PATH", mend)
    try:
        ran = run_trial([java, "-version"], environment)
    except OSError as error:
        return Finding("JDK", Verdict.MISSING, f"{java} (of JAVA_HOME) cannot be run: {error.strerror}", mend)
    said = ran.stderr + ran.stdout
    match = re.search(r'version "([^"]+)"', said)
    if ran.returncode != 0 or match is None:
        return Finding("JDK", Verdict.MISSING, f"{java} -version failed: {last_line(said) or _ended(ran)}", mend)
    parts = numbers(match[1])
    major = parts[1] if parts[:1] == (1,) and len(parts) > 1 else (parts or (0,))[0]  # "1.8.0_402" is Java 8
    found = f"{match[1]} ({java})"
    if major < JDK_LEAST:
        return Finding("JDK", Verdict.MISSING, f"{found}; needed is {JDK_LEAST} or later", mend)
    spark = spark_version(environment)
    if major > JDK_NEWEST and spark is not None and numbers(spark)[:2] < SPARK_OF_NEWER_JDKS:
        found = f"{found}: Spark {spark} is for JDK {JDK_LEAST} and {JDK_NEWEST}, and may not start"
        return Finding("JDK", Verdict.WARNING, found, mend)
    return Finding("JDK", Verdict.OK, found)


def check_rocksdb(environment: Mapping[str, str]) -> Finding:
    try:
        library = rocksdb_library.locate(environment)
    except HoldfastError as error:
        return Finding("RocksDB", Verdict.MISSING, str(error), "as said there")
    found = f"{library.version or library.path} ({library.source})"
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-", dir=temporary_folder()) as folder:
        code = "import sys; from holdfast import doctor; doctor.try_rocksdb(sys.argv[1])"
        trial = {**environment, rocksdb_library.LIBRARY_SETTING: str(library.path)}
        ran = run_trial([sys.executable, "-c", code, str(Path(folder) / "base")], trial)
    if ran.returncode == 0:
        return Finding("RocksDB", Verdict.OK, f"{found}: wrote a base and read it back")
    mend = "use the rocksdbjni jar of a supported pyspark: unset HOLDFAST_ROCKSDB_LIBRARY, or install pyspark again"
    return Finding("RocksDB", Verdict.MISSING, f"{found}; but {last_line(ran.stderr) or _ended(ran)}", mend)


def try_rocksdb(directory: str) -> None:
    """Load RocksDB into this process, write a small base to ``directory`` and read it back; raises what goes wrong."""
    import pyarrow as pa

    from holdfast import _core

    rocksdb_library.load()
    keys = [index.to_bytes(4, "big") for index in range(1000)]
    columns = {
        "key_group": pa.array([0] * len(keys), pa.uint16()),
        "state": pa.array([1] * len(keys), pa.uint16()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(keys, pa.binary()),
    }
    writer = _core.BaseWriter(None, directory, _core.BaseOptions())
    writer.add(pa.record_batch(columns))
    writer.finish()
    base = _core.Base(directory, _core.BaseOptions())
    values = [value for batch in base.scan() for value in pa.record_batch(batch)["value"].to_pylist()]
    base.close()
    if values != keys:
        raise SystemExit("what was read back is not what was written")


def check_workers(environment: Mapping[str, str]) -> Finding:
    named = environment.get("PYSPARK_PYTHON")
    python, bad = named or _PYTHON_OF_THE_PATH, Verdict.MISSING if named else Verdict.WARNING
    what = f"PYSPARK_PYTHON={named}" if named else f"PYSPARK_PYTHON is not set, {python} of the path"
    mend = f"export PYSPARK_PYTHON={sys.executable}" + (f", or install Holdfast for {named}" if named else "")
    try:
        ran = run_trial([python, "-c", _WORKER_TRIAL], environment)
    except OSError as error:
        return Finding("workers", bad, f"{what} cannot be run: {error.strerror}", mend)
    if ran.returncode != 0:
        said = last_line(ran.stderr) or _ended(ran)
        return Finding("workers", bad, f"{what} cannot import holdfast: {said}", mend)
    version, executable, prefix = json.loads(last_line(ran.stdout))
    found = f"{what}: Python {dotted(version)} ({executable})"
    if tuple(version) != sys.version_info[:2]:
        return Finding("workers", bad, f"{found}, but this is {dotted(sys.version_info[:2])}", mend)
    if not named and prefix != sys.prefix:  # who names another one means it
        return Finding("workers", bad, f"{found}, of another environment than this one, {sys.prefix}", mend)
    return Finding("workers", Verdict.OK, found)


def check_maven(environment: Mapping[str, str]) -> Finding:
    """Maven fetches Apache Kafka, once, for a broker to try things against; nothing else needs it."""
    mend = "install Maven (Debian: apt-get install maven), or put `mvn` on PATH"
    maven = shutil.which("mvn", path=environment.get("PATH"))
    try:
        lock = lock_of()
    except HoldfastError as error:
        return Finding("Maven", Verdict.WARNING, f"{error}", f"unset {VERSION_VARIABLE}, or name one of these")
    fetched = cached_folder(lock)
    if maven is None and fetched.is_dir():
        return Finding(
            "Maven", Verdict.OK, f"not on PATH, and not needed: Apache Kafka {lock.kafka_version} is in {fetched}"
        )
    if maven is None:
        return Finding(
            "Maven", Verdict.OPTIONAL, "no mvn on PATH: `holdfast broker` and holdfast.testing need it once", mend
        )
    try:
        ran = run_trial([maven, "--version"], environment)
    except OSError as error:
        return Finding("Maven", Verdict.WARNING, f"{maven} cannot be run: {error.strerror}", mend)
    version = re.search(r"Apache Maven ([\w.-]+)", ran.stdout)
    if ran.returncode != 0 or version is None:
        said = last_line(ran.stderr + ran.stdout) or _ended(ran)
        return Finding("Maven", Verdict.WARNING, f"{maven} --version failed: {said}", mend)
    return Finding("Maven", Verdict.OK, f"{version[1]} ({maven})")


def _ended(ran: subprocess.CompletedProcess[str]) -> str:
    if ran.returncode < 0:
        return f"it was ended by {signal.Signals(-ran.returncode).name}"
    return f"it ended with exit code {ran.returncode}"
