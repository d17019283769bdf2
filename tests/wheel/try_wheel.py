"""Installs the newest wheel in a fresh environment outside the tree, and runs a stream with it there."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path


def run(folder: Path) -> None:
    """Raises when installing or the stream fails."""
    wheel = max(folder.glob("holdfast-*manylinux*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory(prefix="holdfast-wheel-") as name:
        elsewhere = Path(name)
        venv.create(elsewhere / "venv", with_pip=True)
        python = elsewhere / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
        program = shutil.copy2(Path(__file__).with_name("stream.py"), elsewhere)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HOLDFAST", "SPARK"))
        }
        environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        subprocess.run([python, program, elsewhere], cwd=elsewhere, env=environment, check=True)
        subprocess.run([elsewhere / "venv" / "bin" / "holdfast", "doctor"], cwd=elsewhere, env=environment, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheel is")
    run(parser.parse_args().folder.resolve())
    sys.exit(0)
