"""The machine: its memory, its cores, and the folder for local copies of the state."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

from holdfast import container
from holdfast.doctor.finding import Finding, Verdict

MACHINES = ("x86_64", "aarch64")
MEMORY_LEAST_BYTES = 2 << 30
DISK_LEAST_BYTES = 2 << 30


def check_system() -> Finding:
    """The operating system, its C library and the kind of processor."""
    found = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver()) or 'an unknown C library'}"
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return Finding("system", Verdict.MISSING, found, "use Linux with glibc (Debian, Ubuntu, RHEL; not Alpine)")
    if platform.machine() not in MACHINES:
        return Finding("system", Verdict.WARNING, found, f"not tried here; on {' and '.join(MACHINES)} it was")
    return Finding("system", Verdict.OK, found)


def check_memory(root: Path = Path("/")) -> Finding:
    """Memory of the machine or, where it is less, of the container (cgroups, version 1 or 2)."""
    total, what = container.machine_memory_bytes(root), "the machine's"
    if total is None:
        return Finding("memory", Verdict.WARNING, "cannot be told here", "")
    limit = container.memory_limit_bytes(root)
    if limit is not None and limit < total:
        total, what = limit, "the container's limit"
    found = f"{_gib(total)} ({what})"
    if total < MEMORY_LEAST_BYTES:
        return Finding("memory", Verdict.WARNING, found, f"give Spark {_gib(MEMORY_LEAST_BYTES)} or more")
    return Finding("memory", Verdict.OK, found)


def check_cores(root: Path = Path("/")) -> Finding:
    """Cores that this process may run on or, where it is less, may use up (cgroups, version 1 or 2)."""
    cores, what = float(container.usable_cores()), "of the machine"
    limit = container.core_limit(root)
    if limit is not None and limit < cores:
        cores, what = limit, "by the container's limit"
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
