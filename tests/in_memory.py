"""Runs a command whose temporary files lie in memory, where that is large: half of the time of the tests that start no
JVM is waiting for a disk to say that it has what it was given, and much of the others'.
``python -m tests.in_memory <command>``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
#: The tests' files take 0.8 GB, their processes 3 GB.
FREE_BYTES, AVAILABLE_BYTES = 4 << 30, 8 << 30


def is_large() -> bool:
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= FREE_BYTES and psutil.virtual_memory().available >= AVAILABLE_BYTES


def main() -> int:
    if not is_large() or "TMPDIR" in os.environ:
        return subprocess.run(sys.argv[1:]).returncode
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # tests that give up root look into it
        return subprocess.run(sys.argv[1:], env={**os.environ, "TMPDIR": folder}).returncode


if __name__ == "__main__":
    sys.exit(main())
