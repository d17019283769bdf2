"""Under which conditions figures came about: the commit, the versions, the machine, and who else was at work on it.

What others took is counted, not guessed: processor time of the whole machine (/proc/stat) less that of this process
and of all that it started. A load average has the benchmark itself in it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.control_group import ControlGroup, new_group
from benchmarks.figures import ROOT

#: Their changes are no change of what is measured.
RECORDED = "benchmarks/recorded"
PACKAGES = ("holdfast-spark", "pyspark", "pyarrow", "pandas", "numpy", "confluent-kafka", "obstore")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds since the machine started: on the clock, taken by anybody, by us, and by other virtual machines."""

    clock_s: float
    busy_s: float
    ours_s: float
    stolen_s: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """As the kernel counts it."""
        user, nice, system, _, _, irq, softirq, steal, *_ = map(int, _first_line("/proc/stat").split()[1:])
        busy = user + nice + system + irq + softirq
        if _group is not None:
            ours_s = _group.seconds()
        else:
            ours_s = sum(_ticks(process) for process in (os.getpid(), *descendants(os.getpid()))) / _TICKS_PER_S
        return cls(time.monotonic(), busy / _TICKS_PER_S, ours_s, steal / _TICKS_PER_S)

    def others_since(self, start: ProcessorTime) -> float:
        """Part of the machine's processor time that went to other processes."""
        return self._part(start, (self.busy_s - start.busy_s) - (self.ours_s - start.ours_s))

    def stolen_since(self, start: ProcessorTime) -> float:
        """Part that the hypervisor gave to others."""
        return self._part(start, self.stolen_s - start.stolen_s)

    def _part(self, start: ProcessorTime, seconds: float) -> float:
        return max(0.0, seconds / max(1e-9, (self.clock_s - start.clock_s) * (os.cpu_count() or 1)))


@contextlib.contextmanager
def counted_as_ours() -> Iterator[None]:
    """All that this process takes within, and all that it starts, however it ends, is ours: by a control group.

    By the process table alone it is not: Spark's daemon of workers buries none of them (it ignores SIGCHLD), so the
    kernel forgets what they took, and it would count as another's. Where no group can be made, that is said.
    """
    global _group
    try:
        group = _Group.entered()
    except OSError as error:
        print(f"# no control group ({error}): what workers took that have ended counts as another's", flush=True)
        yield
        return
    _group = group
    try:
        yield
    finally:
        _group = None
        group.leave()


class _Group(ControlGroup):
    """One that counts processor time."""

    @classmethod
    def entered(cls) -> _Group:
        """With this process in it. OSError: none can be made here."""
        group = cls(*new_group("cpuacct", f"holdfast-bench-{os.getpid()}", within_own=True))
        try:
            group.processes.write_text(f"{os.getpid()}", encoding="utf-8")
        except OSError:
            group.path.rmdir()
            raise
        return group

    def seconds(self) -> float:
        """Of all that are or were in it."""
        if not self.second:
            return int((self.path / "cpuacct.usage").read_text(encoding="utf-8")) / 1e9
        return int(_first_line(f"{self.path}/cpu.stat").split()[1]) / 1e6

    def leave(self) -> None:
        """Whoever is still in it goes on in the group above."""
        for _ in range(100):
            for process in self.processes.read_text(encoding="utf-8").split():
                with contextlib.suppress(ProcessLookupError):
                    (self.path.parent / "cgroup.procs").write_text(process, encoding="utf-8")
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)
        print(f"# {self.path} is left: something in it does not end", flush=True)


_group: _Group | None = None


def descendants(process: int) -> list[int]:
    """All living children of a process, and theirs."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text(encoding="utf-8").split():
                    found += [int(child), *descendants(int(child))]
    return found


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> tuple[str, bool]:
    """The commit that is checked out, and whether the tree is as it says, but for records.

    Raises
    ------
    RuntimeError
        This is no git checkout.
    """
    try:
        head = _run("git", "rev-parse", "HEAD")
        changed = _run("git", "status", "--porcelain", "--", ".", f":(exclude){RECORDED}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"expected a git checkout in {ROOT}, found none ({error}): a record needs the commit; run without --record"
        ) from error
    return head, not changed


def versions() -> dict[str, str]:
    """Of everything that a figure may depend on; packages that are not installed are left out."""
    found = {"Python": platform.python_version(), "kernel": platform.release()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    if java:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
        found["Java"] = "".join(re.findall(r'version "([^"]+)"', told)[:1]) or "unknown"
    return found | _of_rocksdb()


def machine() -> dict[str, str | int]:
    """Processor, cores, memory in bytes, system."""
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _of_rocksdb() -> dict[str, str]:
    """The one that pyspark ships, or the path of another."""
    if "HOLDFAST_ROCKSDB_LIBRARY" in os.environ:
        return {"RocksDB": Path(os.environ["HOLDFAST_ROCKSDB_LIBRARY"]).name}
    import pyspark

    jars = sorted(Path(pyspark.__file__).parent.glob("jars/rocksdbjni-*.jar"))
    return {"RocksDB": jars[0].stem.removeprefix("rocksdbjni-")} if jars else {}


def _ticks(process: int) -> int:
    """What a process and those of its children that it has buried took."""
    with contextlib.suppress(OSError):
        after_name = _first_line(f"/proc/{process}/stat").rpartition(")")[2].split()
        return sum(map(int, after_name[11:15]))
    return 0


def _first_line(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").splitlines()[0]


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
