"""What Holdfast needs of a machine, looked for and tried out: the findings behind ``holdfast doctor``.

Nothing is changed: what is written for a trial goes into a temporary folder of its own. RocksDB is tried in another
process, so that one which crashes is a finding and not the end of the doctor.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

import holdfast
from holdfast import rocksdb_library
from holdfast.errors import HoldfastError
from holdfast.settings import default_local_dir
from holdfast.trials import last_line, run_trial

PYTHON_LEAST = (3, 10)
PYSPARK_LEAST, PYSPARK_BELOW = (4, 0), (5,)
JDK_LEAST = 17
PYARROW_LEAST = (18,)
PANDAS_LEAST = (2, 2)
MEMORY_LEAST_BYTES = 2 << 30
DISK_LEAST_BYTES = 2 << 30
# No limit, as cgroup version 1 writes it: the highest number of pages that fits.
_NO_LIMIT_BYTES = 1 << 60


class Verdict(str, Enum):
    """How a thing was found."""

    OK = "ok"
    WARNING = "warning"  # works, but not as it should, or not everywhere
    MISSING = "missing"  # Holdfast does not work without


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes
    ----------
    name
        What was looked for, in a word or two.
    verdict
        How it was found.
    found
        What was found, and where.
    mend
        What to do; empty when all is well.
    """

    name: str
    verdict: Verdict
    found: str
    mend: str = ""


def examine(local_dir: str | None = None, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Look at everything.

    Parameters
    ----------
    local_dir
        The folder of ``spark.holdfast.local.dir``; its default where None.
    environment
        Settings to look at instead of this process's environment variables.
    """
    environment = os.environ if environment is None else environment
    return [
        check_python(),
        check_holdfast(),
        check_pyspark(environment),
        check_package("pyarrow", PYARROW_LEAST),
        check_package("pandas", PANDAS_LEAST),
        check_jdk(environment),
        check_rocksdb(environment),
        check_workers(environment),
        check_memory(),
        check_cores(),
        check_local_dir(Path(local_dir or default_local_dir())),
    ]


def check_python() -> Finding:
    found = f"{_dotted(sys.version_info[:3])} ({sys.executable})"
    if sys.version_info[:2] >= PYTHON_LEAST:
        return Finding("Python", Verdict.OK, found)
    return Finding("Python", Verdict.MISSING, found, f"install Python {_dotted(PYTHON_LEAST)} or later")


def check_holdfast() -> Finding:
    from holdfast import _core

    return Finding("Holdfast", Verdict.OK, f"{holdfast.__version__} ({_core.__file__})")


def check_pyspark(environment: Mapping[str, str]) -> Finding:
    wanted = f"pip install 'pyspark>={_dotted(PYSPARK_LEAST)},<{_dotted(PYSPARK_BELOW)}'"
    version = _version_of("pyspark")
    if version is None:
        client = _version_of("pyspark-client")
        found = f"only pyspark-client {client}, which ships no Spark" if client else "not installed"
        return Finding("pyspark", Verdict.MISSING, found, wanted)
    if not PYSPARK_LEAST <= _numbers(version) < PYSPARK_BELOW:
        supported = f"{version}; supported are {_dotted(PYSPARK_LEAST)} up to, not including, {_dotted(PYSPARK_BELOW)}"
        return Finding("pyspark", Verdict.MISSING, supported, wanted)
    other = _spark_version(environment.get("SPARK_HOME"))
    if other is not None and other != version:
        return Finding(
            "pyspark",
            Verdict.WARNING,
            f"{version}, but SPARK_HOME has Spark {other} ({environment['SPARK_HOME']}), which pyspark would run",
            "unset SPARK_HOME, or install the pyspark of the same version",
        )
    return Finding("pyspark", Verdict.OK, version)


def check_package(name: str, least: tuple[int, ...]) -> Finding:
    version = _version_of(name)
    if version is not None and _numbers(version) >= least:
        return Finding(name, Verdict.OK, version)
    found = "not installed" if version is None else f"{version}; needed is {_dotted(least)} or later"
    return Finding(name, Verdict.MISSING, found, f"pip install '{name}>={_dotted(least)}'")


def check_jdk(environment: Mapping[str, str]) -> Finding:
    mend = f"install a JDK {JDK_LEAST} or later, and set JAVA_HOME to its folder"
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
    numbers = _numbers(match[1])
    major = numbers[1] if numbers[:1] == (1,) and len(numbers) > 1 else (numbers or (0,))[0]  # "1.8.0_402" is Java 8
    found = f"{match[1]} ({java})"
    if major < JDK_LEAST:
        return Finding("JDK", Verdict.MISSING, f"{found}; needed is {JDK_LEAST} or later", mend)
    return Finding("JDK", Verdict.OK, found)


def check_rocksdb(environment: Mapping[str, str]) -> Finding:
    try:
        library = rocksdb_library.locate(environment)
    except HoldfastError as error:
        return Finding("RocksDB", Verdict.MISSING, str(error), "as said there")
    found = f"{library.version or library.path} ({library.source})"
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
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
    if not named:
        return Finding(
            "workers",
            Verdict.WARNING,
            "PYSPARK_PYTHON is not set: Spark may start another Python for its workers than this one",
            f"export PYSPARK_PYTHON={sys.executable}",
        )
    mend = f"export PYSPARK_PYTHON={sys.executable}, or install Holdfast for {named}"
    code = "import json, sys, holdfast; print(json.dumps([list(sys.version_info[:2]), sys.executable]))"
    try:
        ran = run_trial([named, "-c", code], environment)
    except OSError as error:
        return Finding("workers", Verdict.MISSING, f"PYSPARK_PYTHON={named} cannot be run: {error.strerror}", mend)
    if ran.returncode != 0:
        said = last_line(ran.stderr) or _ended(ran)
        return Finding("workers", Verdict.MISSING, f"PYSPARK_PYTHON={named} cannot import holdfast: {said}", mend)
    version, executable = json.loads(last_line(ran.stdout))
    found = f"PYSPARK_PYTHON={named}: Python {_dotted(version)} ({executable})"
    if tuple(version) != sys.version_info[:2]:
        return Finding("workers", Verdict.MISSING, f"{found}, but this is {_dotted(sys.version_info[:2])}", mend)
    return Finding("workers", Verdict.OK, found)


def check_memory(root: Path = Path("/")) -> Finding:
    """Memory of the machine or, where it is less, of the container (cgroups, version 1 or 2)."""
    machine = re.search(r"MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"))
    if machine is None:
        return Finding("memory", Verdict.WARNING, "cannot be told here", "")
    total, what = int(machine[1]) << 10, "the machine's"
    limits = _cgroup_values(root, "memory", ["memory.max", "memory.limit_in_bytes"])
    limit = min((int(value) for value in limits if value.isdigit()), default=_NO_LIMIT_BYTES)
    if limit < total:
        total, what = limit, "the container's limit"
    found = f"{_gib(total)} ({what})"
    if total < MEMORY_LEAST_BYTES:
        return Finding("memory", Verdict.WARNING, found, f"give Spark {_gib(MEMORY_LEAST_BYTES)} or more")
    return Finding("memory", Verdict.OK, found)


def check_cores(root: Path = Path("/")) -> Finding:
    """Cores that this process may run on or, where it is less, may use up (cgroups, version 1 or 2)."""
    cores, what = float(len(os.sched_getaffinity(0))), "of the machine"
    quotas = [value.split() for value in _cgroup_values(root, "cpu", ["cpu.max"])]
    old_quotas = _cgroup_values(root, "cpu", ["cpu.cfs_quota_us"])
    quotas += [[quota, period] for quota, period in zip(old_quotas, _cgroup_values(root, "cpu", ["cpu.cfs_period_us"]))]
    for quota in quotas:
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[0]) < cores * int(quota[1]):
            cores, what = int(quota[0]) / int(quota[1]), "by the container's limit"
    found = f"{cores:g} {what}"
    if cores < 2:
        mend = "give Spark two or more: state is folded and uploaded in the background"
        return Finding("cores", Verdict.WARNING, found, mend)
    return Finding("cores", Verdict.OK, found)


def check_local_dir(folder: Path) -> Finding:
    """Whether local copies of the state can live in ``folder``, which need not exist yet."""
    mend = "set spark.holdfast.local.dir to a folder on a local disk that this user can write"
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return Finding("local folder", Verdict.MISSING, f"{folder} is not a folder", mend)
    try:
        with tempfile.TemporaryDirectory(prefix=".holdfast-doctor-", dir=place) as trial:
            (Path(trial) / "file").write_bytes(b"trial")
            links = _can_link(Path(trial) / "file")
    except OSError as error:
        return Finding("local folder", Verdict.MISSING, f"{folder} cannot be written: {error.strerror}", mend)
    free_bytes = shutil.disk_usage(place).free
    kind = _file_system(place)
    found = f"{folder} ({kind}, {_gib(free_bytes)} free)"
    if not links:
        return Finding(
            "local folder", Verdict.WARNING, f"{found}: no hard links, so that each base copies its files", mend
        )
    if kind in ("tmpfs", "ramfs"):
        return Finding("local folder", Verdict.WARNING, f"{found}: in memory, which the state will fill", mend)
    if free_bytes < DISK_LEAST_BYTES:
        return Finding("local folder", Verdict.WARNING, f"{found}: little space", mend)
    return Finding("local folder", Verdict.OK, found)


def _can_link(file: Path) -> bool:
    try:
        os.link(file, file.with_name("link"))
    except OSError:
        return False
    return True


def _file_system(path: Path) -> str:
    """The type of the file system that ``path`` is on."""
    best, kind = "", "unknown"
    resolved = str(path.resolve())
    for line in _read(Path("/proc/self/mounts")).splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # the later of two mounts on one folder hides the other
            best, kind = mount, fields[2]
    return kind


def _cgroup_values(root: Path, controller: str, names: list[str]) -> list[str]:
    """What the files of these names say, in this process's cgroup and in all above it."""
    mounts = root / "sys/fs/cgroup"
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "" or controller in controllers.split(","):
            top = mounts if controllers == "" else mounts / controller
            own = top / path.lstrip("/")
            folders += [own, *[above for above in own.parents if above.is_relative_to(top)]]
    folders += [
        mounts,
        mounts / controller,
    ]  # in a container its own cgroup is mounted here, whatever it is called outside
    unique = dict.fromkeys(folders)
    return [text.strip() for folder in unique for name in names if (text := _read(folder / name))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ended(ran: subprocess.CompletedProcess[str]) -> str:
    if ran.returncode < 0:
        return f"it was ended by {signal.Signals(-ran.returncode).name}"
    return f"it ended with exit code {ran.returncode}"


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _spark_version(home: str | None) -> str | None:
    """The version of the Spark in ``home``, by the name of its main jar."""
    jars = (Path(home) / "jars").glob("spark-core_*.jar") if home else []
    for jar in jars:
        if match := re.fullmatch(r"spark-core_[\d.]+-([\w.-]+)\.jar", jar.name):
            return match[1]
    return None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:[._]\d+)*", version)
    return tuple(int(part) for part in re.split(r"[._]", match[0])) if match else ()


def _dotted(numbers: tuple[int, ...] | list[int]) -> str:
    return ".".join(str(number) for number in numbers)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
