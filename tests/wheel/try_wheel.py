"""Installs a wheel in a fresh environment outside the tree, and runs there what a user does first: a stateful stream,
then one from Kafka to Kafka, exactly once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ["stream.py", "kafka_stream.py"]
VERSION = "import sys; print('cp%d%d' % sys.version_info[:2])"


def find_wheel(folder: Path, python: str) -> Path:
    """The newest wheel in the folder for this Python on this machine."""
    version = subprocess.run([python, "-c", VERSION], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    wheels = list(folder.glob(f"holdfast_spark-*-{version}-*manylinux*_{os.uname().machine}.whl"))
    if not wheels:
        raise SystemExit(f"{folder} has no wheel of {version} for {os.uname().machine}")
    return max(wheels, key=lambda path: path.stat().st_mtime)


def run(wheel: Path, base_python: str) -> None:
    """Raises when installing or a stream fails."""
    with tempfile.TemporaryDirectory(prefix="holdfast-wheel-") as name:
        elsewhere = Path(name)
        subprocess.run([base_python, "-m", "venv", elsewhere / "venv"], check=True)
        python = elsewhere / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[kafka]"], check=True)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HOLDFAST", "SPARK"))
        }
        environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        for program in PROGRAMS:
            shutil.copy2(Path(__file__).with_name(program), elsewhere)
        for program in PROGRAMS:
            folder = elsewhere / program.removesuffix(".py")
            folder.mkdir()
            subprocess.run([python, elsewhere / program, folder], cwd=elsewhere, env=environment, check=True)
        subprocess.run([elsewhere / "venv" / "bin" / "holdfast", "doctor"], cwd=elsewhere, env=environment, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheels are")
    parser.add_argument("--python", default=sys.executable, help="the Python that the fresh environment is made of")
    given = parser.parse_args()
    run(find_wheel(given.folder.resolve(), given.python), given.python)
