"""Builds the wheel and repairs it to a manylinux tag. The C++ runtime goes into the extension; nothing is bundled."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKER_FLAGS = "-static-libstdc++ -static-libgcc"
# What a user gets besides the modules: the extension, its stubs, and the marker that the package is typed.
CONTENT = ["holdfast/_core.pyi", "holdfast/py.typed"]


def build(output: Path) -> Path:
    """The repaired wheel's path."""
    raw = ROOT / "build" / "wheel"
    shutil.rmtree(raw, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(raw),
    ]
    defines = [f"--config-settings=cmake.define.CMAKE_MODULE_LINKER_FLAGS={LINKER_FLAGS}"]
    subprocess.run(
        [*pip, *defines, f"--config-settings=build-dir={ROOT / 'build' / 'wheel-cmake'}", str(ROOT)], check=True
    )
    (wheel,) = raw.glob("holdfast-*.whl")
    repaired = raw / "repaired"
    subprocess.run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(wheel)], check=True)
    (found,) = repaired.glob("holdfast-*.whl")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(found, output))


def check_content(wheel: Path) -> None:
    """Stops when something is missing from the wheel, or a foreign library got into it."""
    names = zipfile.ZipFile(wheel).namelist()
    extensions = [name for name in names if name.startswith("holdfast/_core.") and name.endswith(".so")]
    missing = [name for name in CONTENT if name not in names]
    bundled = [name for name in names if ".libs/" in name]
    if len(extensions) != 1 or missing or bundled:
        raise SystemExit(f"{wheel.name}: extensions {extensions}, missing {missing}, bundled {bundled}")
    if "manylinux" not in wheel.name:
        raise SystemExit(f"{wheel.name}: expected a manylinux tag")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    built = build(parser.parse_args().output.resolve())
    check_content(built)
    print(f"{built} ({built.stat().st_size / 1e6:.1f} MB)")
