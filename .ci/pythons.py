"""The Pythons of this machine that can build Holdfast: one line each, version and program, oldest first.

Looked for on PATH and among pyenv's versions. Of one minor version the first that is found counts; one without headers
or without venv does not. Runs on Python 3.7 and later, with nothing installed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 10)
PROBE = """
import ensurepip, os, sys, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
assert sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final"
assert sysconfig.get_config_var("Py_GIL_DISABLED") in (None, 0)
print(*sys.version_info[:2], sys.executable)
"""


def candidates():
    """Programs that may be a Python 3, those on PATH first."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    shims = [folder for folder in folders if folder.name == "shims" and folder.parent.joinpath("versions").is_dir()]
    for folder in folders:
        if folder not in shims:  # a shim runs whatever version is chosen at the moment
            yield from [*sorted(folder.glob("python3.[0-9]*")), folder / "python3"]
    for root in dict.fromkeys([pyenv, *(shim.parent for shim in shims)]):
        yield from sorted(root.glob("versions/3.*/bin/python3"))


def pythons():
    """(major, minor) → program."""
    found = {}
    for program in candidates():
        version = version_of(program)
        if version and version[0] >= OLDEST:
            found.setdefault(*version)
    return dict(sorted(found.items()))


def version_of(program):
    """((major, minor), program) when it builds extensions; None when it does not, or is no Python at all."""
    if not re.fullmatch(r"python3(\.\d+)?", program.name) or not os.access(program, os.X_OK):
        return None
    try:
        ran = subprocess.run([program, "-c", PROBE], capture_output=True, text=True, check=False)
    except OSError:
        return None
    if ran.returncode != 0:
        return None
    major, minor, executable = ran.stdout.strip().split(" ", 2)
    return (int(major), int(minor)), executable


if __name__ == "__main__":
    for (major, minor), program in pythons().items():
        print(f"{major}.{minor} {program}")
    sys.exit(0)
