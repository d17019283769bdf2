"""Control groups: a process and all that it starts, however they end. Version 1 and 2 of the kernel's interface."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@dataclass
class ControlGroup:
    """A group that this process has made. ``second``: version 2 of the interface, with one tree for all controllers."""

    path: Path
    second: bool

    @property
    def processes(self) -> Path:
        """Whose process id is written there comes into the group, with what it starts from then on."""
        return self.path / "cgroup.procs"


def new_group(controller: str, name: str, *, within_own: bool) -> tuple[Path, bool]:
    """Makes a group below that of this process, or below the root: its folder, and whether it is of version 2.

    Raises
    ------
    OSError
        None can be made here.
    """
    second = (_ROOT / "cgroup.controllers").exists()
    above = _ROOT if second else _ROOT / controller
    if within_own:
        above /= _own("" if second else controller).lstrip("/")
    path = above / name
    path.mkdir()
    return path, second


def _own(controller: str) -> str:
    """The group of this process, as a path in the tree of a controller; "" names the one tree of version 2."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    raise FileNotFoundError(f"this process is in no control group of {controller or 'version 2'}")
