"""The compiler of the wheels: zig's clang, from PyPI, for both architectures and a glibc older than this machine's.

CMake takes a compiler and its tools as single programs: each becomes a small script. The C++ runtime is linked in: the
one of the machine that runs a wheel may be older than what compiled it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = "2.28"
# What the core may need of a machine; all else is linked in.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"} | {
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


@dataclass(frozen=True)
class Target:
    """One architecture, with the oldest glibc that has it."""

    architecture: str

    def extension_suffix(self, own_suffix: str) -> str:
        """What a Python of this architecture looks for, where this machine's looks for ``own_suffix``."""
        own_architecture = os.uname().machine
        if own_architecture not in own_suffix:
            raise SystemExit(f"expected {own_architecture} in what this Python's extensions end with: {own_suffix}")
        return own_suffix.replace(own_architecture, self.architecture)


def write_tools(target: Target, folder: Path, headers: Sequence[Path] = ()) -> dict[str, str]:
    """Writes the compiler and its tools as scripts into the folder; gives CMake's settings for them.

    Parameters
    ----------
    headers
        Folders in which the compiler looks as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    looks = "".join(f" -isystem {shlex.quote(str(place))}" for place in headers)
    commands = {
        "c++": f"c++ -target {target.architecture}-linux-gnu.{GLIBC}{looks}",
        "ar": "ar",
        "ranlib": "ranlib",
    }
    for name, command in commands.items():
        script = folder / name
        zig = f"{shlex.quote(sys.executable)} -m ziglang"
        script.write_text(f'#!/bin/sh\nexec {zig} {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    nothing = folder / "strip"  # this machine's knows its own architecture only; the linker strips
    nothing.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    nothing.chmod(0o755)
    return {
        "CMAKE_CXX_COMPILER": str(folder / "c++"),
        "CMAKE_AR": str(folder / "ar"),
        "CMAKE_RANLIB": str(folder / "ranlib"),
        "CMAKE_STRIP": str(nothing),
        "CMAKE_MODULE_LINKER_FLAGS": "-Wl,-s",
    }
