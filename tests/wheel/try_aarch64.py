"""Runs the core of the aarch64 wheels on this machine: an aarch64 Python of Debian's, under qemu, without Spark.

What it makes must be the same bytes as on this machine. The Python comes from packages of Debian, unpacked in a folder:
nothing is installed. A wheel for a Python that the release of Debian here does not have is left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).with_name("core_alone.py")
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
LIBRARIES = ["libgcc-s1", "libstdc++6"]
# apt with an architecture and a state of its own: what is installed on this machine is not its business.
APT = """
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Sandbox::User "";
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""


def unpack_python(version: str, folder: Path) -> Path | None:
    """The root of an aarch64 Debian with just this Python; None where it has none."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "conf").write_text(APT.format(folder=folder), encoding="utf-8")
    environment = {**os.environ, "APT_CONFIG": str(folder / "conf")}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    packages = [f"python{version}-minimal", f"libpython{version}-stdlib", *LIBRARIES]
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", *packages]
    if subprocess.run(install, check=False, env=environment, stdout=subprocess.DEVNULL).returncode != 0:
        return None
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
    return folder / "root"


def install(wheel: Path, version: str, site: Path) -> None:
    """The wheel and what the core imports, of the same architecture, unpacked by pip; pyspark for its RocksDB only."""
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
    subprocess.run([*pip, f"--python-version={version}", "--target", site, wheel, "numpy", "pyarrow"], check=True)
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    (site / "pyspark").symlink_to(Path(pyspark.origin).parent)


def try_wheel(wheel: Path, emulator: str) -> str:
    """What the program said, or why it was not run."""
    found = re.search(r"-cp3(\d+)-", wheel.name)
    assert found is not None, wheel.name
    version = f"3.{found[1]}"
    with tempfile.TemporaryDirectory(prefix="holdfast-aarch64-") as name:
        folder = Path(name)
        root = unpack_python(version, folder / "apt")
        if root is None:
            return f"{wheel.name}: only looked at, not run: Debian has no Python {version} here"
        install(wheel, version, folder / "site")
        own = said([sys.executable, PROGRAM, folder / "own"])
        python: list[str | Path] = [emulator, "-L", root, root / f"usr/bin/python{version}"]
        environment = {"PYTHONPATH": str(folder / "site"), "HOME": str(folder), "PATH": os.environ["PATH"]}
        theirs = said([*python, PROGRAM, folder / "theirs"], environment)
    if own.split("digest")[1] != theirs.split("digest")[1] or not theirs.startswith("aarch64: "):
        raise SystemExit(f"{wheel.name}: other bytes than on this machine:\n{own}\n{theirs}")
    return f"{wheel.name}: {theirs}"


def said(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    """Runs the program, with a folder of its own to write into."""
    Path(command[-1]).mkdir()
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheels are")
    wheels = sorted(parser.parse_args().folder.resolve().glob("holdfast_spark-*_aarch64.whl"))
    if not wheels:
        raise SystemExit("no aarch64 wheel there")
    emulators = [found for found in map(shutil.which, EMULATORS) if found]
    if not emulators or shutil.which("apt-get") is None:
        print("aarch64 wheels only looked at, not run: that takes Debian, with qemu-user-static")
        sys.exit(0)
    for wheel in wheels:
        print(try_wheel(wheel, emulators[0]), flush=True)
