"""Builds wheels, and looks at what is in them: one for each Python and architecture that is asked for.

They run on glibc 2.28 and later, as auditwheel confirms. Nothing is bundled: the C++ runtime is in the extension.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from cross_compiler import ARCHITECTURES, GLIBC, SYSTEM_LIBRARIES, Target, write_tools

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheel"
# What a user gets besides the modules: the extension, its stubs, and the marker that the package is typed.
CONTENT = ["holdfast/_core.pyi", "holdfast/py.typed", "holdfast/testing/kafka_locks/4.3.1.json"]
# The machine of an ELF header, as its bytes 18 and 19 say it.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
SUFFIX = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
HEADERS = "import sysconfig; print(sysconfig.get_paths()['include'])"


def build(python: str, target: Target, output: Path) -> Path:
    """The path of the finished wheel."""
    suffix = target.extension_suffix(_said(python, "-c", SUFFIX))
    folder = WORK / suffix.strip(".").removesuffix(".so")
    shutil.rmtree(folder, ignore_errors=True)
    headers = debian_headers(Path(_said(python, "-c", HEADERS)), target, folder / "headers")
    tools = write_tools(target, folder / "bin", headers)
    environment = folder / "environment"
    subprocess.run([python, "-m", "venv", environment], check=True)
    defines = {**tools, "PYTHON_MODULE_EXTENSION": suffix}
    settings = [f"--config-settings=cmake.define.{name}={value}" for name, value in defines.items()]
    settings += [f"--config-settings=build-dir={folder / 'cmake'}"]
    pip = [environment / "bin" / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(WORK / "zig"))
    subprocess.run([*pip, *settings, ROOT], check=True, env={**os.environ, **caches})
    (wheel,) = folder.glob("holdfast_spark-*.whl")
    wheel = _named(wheel, target)
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(wheel, output))


def debian_headers(include: Path, target: Target, folder: Path) -> list[Path]:
    """Where Debian's Python has what depends on the architecture: apart, in a place that only Debian's compiler knows.

    For another architecture it is this machine's: what extensions read there is the same on all that have 64 bits.
    """
    own = include.parent / f"{os.uname().machine}-linux-gnu" / include.name
    if not own.is_dir():
        return []
    place = folder / f"{target.architecture}-linux-gnu"
    place.mkdir(parents=True)
    (place / include.name).symlink_to(own)
    return [folder]


def _named(wheel: Path, target: Target) -> Path:
    """The wheel with the tag that auditwheel finds: the oldest glibc that has all that the extension asks for."""
    if f"linux_{target.architecture}" not in wheel.name:  # pip names it after the machine that it runs on
        tags = ["-m", "wheel", "tags", "--platform-tag", f"linux_{target.architecture}"]
        wheel = wheel.with_name(_said(sys.executable, *tags, str(wheel)).splitlines()[-1])
    repaired = wheel.parent / "repaired"
    command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--wheel-dir"]
    subprocess.run([*command, repaired, wheel], check=True)
    (found,) = repaired.glob("*.whl")
    return found


def check_content(wheel: Path, target: Target) -> None:
    """Stops when something is missing from the wheel, or a foreign library or another architecture got into it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        extensions = [name for name in names if name.startswith("holdfast/_core.") and name.endswith(".so")]
        missing = [name for name in CONTENT if name not in names]
        bundled = [name for name in names if ".libs/" in name]
        if len(extensions) != 1 or missing or bundled:
            raise SystemExit(f"{wheel.name}: extensions {extensions}, missing {missing}, bundled {bundled}")
        tag = re.fullmatch(rf".*-manylinux_2_(\d+)_{target.architecture}", wheel.stem)
        if tag is None or int(tag[1]) > int(GLIBC.split(".")[1]) or target.architecture not in extensions[0]:
            raise SystemExit(f"{wheel.name} with {extensions[0]}: expected manylinux, {GLIBC} or older")
        extension = archive.read(extensions[0])
    machine = ELF_MACHINES.get(int.from_bytes(extension[18:20], "little"))
    if extension[:4] != b"\x7fELF" or machine != target.architecture:
        raise SystemExit(f"{wheel.name}: {extensions[0]} is no ELF file for {target.architecture}")
    asked = re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", extension)
    newest = max((tuple(map(int, version.split(b"."))) for version in asked), default=())
    if newest > tuple(map(int, GLIBC.split("."))):
        raise SystemExit(f"{wheel.name}: needs glibc {newest}, newer than {GLIBC}")
    libraries = {name.decode() for name in re.findall(rb"\0([\w.+-]+\.so\.\d+)(?=\0)", extension)}
    if not libraries <= SYSTEM_LIBRARIES:
        raise SystemExit(f"{wheel.name}: needs {libraries - SYSTEM_LIBRARIES}")
    size = f"{wheel.stat().st_size / 1e6:.1f} MB"
    print(f"{wheel.name} ({size}): glibc {'.'.join(map(str, newest))}, {', '.join(sorted(libraries))}")


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", help="a Python with headers; more than one may be named")
    parser.add_argument("--architecture", action="append", choices=ARCHITECTURES, help="this machine's by default")
    given = parser.parse_args()
    built = []
    for program in given.python or [sys.executable]:
        for architecture in given.architecture or [os.uname().machine]:
            of = Target(architecture)
            made = build(program, of, given.output.resolve())
            check_content(made, of)
            built.append(made)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)
