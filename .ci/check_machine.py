"""Says what a machine lacks for `make dev`, and how to mend it; with `maven` as argument, for a Kafka broker.

Runs on any Python 3, with nothing installed.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig


def java_version():
    """The major version of the JDK that Spark will run, or None."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return None
    text = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    found = re.search(rb'version "(\d+)', text)
    return int(found.group(1)) if found else None


def compiles_cpp20():
    """Whether the C++ compiler takes -std=c++20; None when there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        return None
    source = b"#include <concepts>\nstd::integral auto f(int x) { return x; }\nint main() { return f(0); }\n"
    command = [*compiler.split(), "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=source, stderr=subprocess.DEVNULL, check=False).returncode == 0


def missing():
    """One line for each thing that is missing."""
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        found = " ".join([platform.system(), *platform.libc_ver()]).strip()
        yield f"Linux with glibc: this is {found}; on macOS and Windows take a container, or WSL 2"
    if sys.version_info < (3, 10):  # noqa: UP036  (an older one runs this file)
        yield f"Python 3.10 or newer: this is {sys.version.split()[0]}; run `make PYTHON=python3.11 dev`"
    try:
        import ensurepip  # noqa: F401  (asked for only to see whether it is there)
    except ImportError:
        yield "Python's venv with pip: Debian, `apt-get install python3-venv`"
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        yield "Python's headers: Debian, `apt-get install python3-dev`"
    version = java_version()
    if version is None:
        yield "a JDK, 17 or 21: Debian, `apt-get install openjdk-17-jdk-headless`; or set JAVA_HOME"
    elif version < 17:
        yield f"a JDK, 17 or 21: found {version}; set JAVA_HOME to a newer one"
    cpp = compiles_cpp20()
    if cpp is None:
        yield "a C++20 compiler: Debian, `apt-get install g++`"
    elif not cpp:
        yield "a C++20 compiler: the one found does not take -std=c++20 (g++ ≥ 11 or clang ≥ 14 do); set CXX"


def kafka_folder():
    """Where the cache has the release that brokers run in: holdfast.testing.kafka_jars says so, too."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    locks = os.path.join(root, "python", "holdfast", "testing", "kafka_locks")
    wanted = os.environ.get("HOLDFAST_KAFKA_VERSION", "")
    names = [name[: -len(".json")] for name in os.listdir(locks) if name.endswith(".json")]
    found = [name for name in names if not wanted or (name + ".").startswith(wanted + ".")]
    newest = max(found, key=lambda name: [int(part) for part in name.split(".")], default=None)
    if newest is None:
        return "kafka-" + wanted  # no such release: who runs it is told which there are
    with open(os.path.join(locks, newest + ".json"), "rb") as lock:
        return f"kafka-{newest}-{hashlib.sha256(lock.read()).hexdigest()[:12]}"


def missing_for_kafka():
    """The same for a real Kafka broker. Its jars come by Maven once; afterwards they are in the cache."""
    home_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = os.environ.get("HOLDFAST_CACHE_DIR") or os.path.join(home_cache, "holdfast")
    if not os.path.isdir(os.path.join(cache, kafka_folder())) and shutil.which("mvn") is None:
        yield "Maven, which fetches Apache Kafka once: Debian, `apt-get install maven`; or put `mvn` on PATH"


if __name__ == "__main__":
    lacking = list(missing_for_kafka() if sys.argv[1:] == ["maven"] else missing())
    for line in lacking:
        print(f"missing: {line}", file=sys.stderr)
    sys.exit(1 if lacking else 0)
