"""What the machine has or, where that is less, its container: control groups of Linux, version 1 or 2."""

from __future__ import annotations

import os
import re
from pathlib import Path

# No limit, as version 1 writes it: the highest number of pages that fits.
_NO_LIMIT_BYTES = 1 << 60


def machine_memory_bytes(root: Path = Path("/")) -> int | None:
    """All of the machine's; None where it does not say."""
    found = re.search(r"MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"))
    return None if found is None else int(found[1]) << 10


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """What the processes of this one's container may take together before the kernel kills one; None: no limit."""
    limits = _values(root, "memory", ["memory.max", "memory.limit_in_bytes"])
    least = min((int(value) for value in limits if value.isdigit()), default=_NO_LIMIT_BYTES)
    return None if least >= _NO_LIMIT_BYTES else least


def core_limit(root: Path = Path("/")) -> float | None:
    """Cores that this process's container may use up; None: no limit."""
    quotas = [value.split() for value in _values(root, "cpu", ["cpu.max"])]
    old_quotas = _values(root, "cpu", ["cpu.cfs_quota_us"])
    quotas += [[quota, period] for quota, period in zip(old_quotas, _values(root, "cpu", ["cpu.cfs_period_us"]))]
    whole = [quota for quota in quotas if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit()]
    return min((int(quota) / int(period) for quota, period in whole), default=None)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def _values(root: Path, controller: str, names: list[str]) -> list[str]:
    """What the files of these names say, in this process's group and in all above it."""
    mounts = root / "sys/fs/cgroup"
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "" or controller in controllers.split(","):
            top = mounts if controllers == "" else mounts / controller
            own = top / path.lstrip("/")
            folders += [own, *[above for above in own.parents if above.is_relative_to(top)]]
    # In a container its own group is mounted here, whatever it is called outside.
    folders += [mounts, mounts / controller]
    unique = dict.fromkeys(folders)
    return [text.strip() for folder in unique for name in names if (text := _read(folder / name))]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
