"""How a worker process is set up:
what modules hold is frozen, once; archives of Spark are read once; and the pool that functions are given to Spark for.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import InvalidRequest
from holdfast.spark.worker_process import check_worker_python, own_worker_pool

_PROGRAM = """
import gc
from holdfast.spark.worker_process import prepare_worker_process
prepare_worker_process()
frozen = gc.get_freeze_count()
assert frozen > 10_000, frozen
kept = [[] for _ in range(1000)]
prepare_worker_process()
assert gc.get_freeze_count() <= frozen, "nothing new was imported, and yet it froze"
import wave
prepare_worker_process()
assert gc.get_freeze_count() > frozen + 1000, "a new module was not frozen"
"""


@pytest.mark.long
def test_what_modules_hold_is_frozen_when_there_are_new_ones():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


_ARCHIVES_PROGRAM = """
import importlib, sys, zipimport
from holdfast.spark.worker_process import prepare_worker_process

def look_for(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None

def read_after(tell_to_look_anew):
    read = []
    of_python = zipimport._read_directory
    zipimport._read_directory = lambda archive: read.append(archive.rpartition("/")[2]) or of_python(archive)
    tell_to_look_anew()
    look_for("of_nobody")  # from Python 3.13 on they are read with the next import
    zipimport._read_directory = of_python
    return read

sys.path[:0] = sys.argv[1:]
look_for("of_nobody")
archives = ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.3.0.jar", "of_the_user.zip"]
assert set(archives) <= set(read_after(importlib.invalidate_caches)), "and so this says nothing"
prepare_worker_process()
for task in range(2):
    assert set(read_after(importlib.invalidate_caches)) & set(archives) == {"of_the_user.zip"}
    prepare_worker_process()
for name in ("in_pyspark", "in_py4j", "in_spark", "in_user"):
    assert look_for(name).here == name
"""


@pytest.mark.long
def test_sparks_own_archives_are_not_read_again_before_each_task_and_a_users_are(tmp_path: Path) -> None:
    archives = {
        "pyspark.zip": "in_pyspark",
        "py4j-0.10.9.9-src.zip": "in_py4j",
        "spark-core_2.13-4.3.0.jar": "in_spark",
        "of_the_user.zip": "in_user",
    }
    for name, module in archives.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{module}.py", f"here = {module!r}")
    paths = [str(tmp_path / name) for name in archives]
    command = [sys.executable, "-c", _ARCHIVES_PROGRAM, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("before", [{}, {"HOLDFAST_WORKERS": "outer"}])
def test_the_environment_is_as_before_afterwards_whatever_happens(before: dict[str, str]) -> None:
    context = SimpleNamespace(environment={"PYTHONHASHSEED": "0", **before})
    session: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(KeyError), own_worker_pool(session, "slots"):
        assert context.environment == {"PYTHONHASHSEED": "0", "HOLDFAST_WORKERS": "slots"}
        raise KeyError
    assert context.environment == {"PYTHONHASHSEED": "0", **before}


def test_a_session_without_a_context_has_one_pool() -> None:
    class Connect:
        @property
        def sparkContext(self) -> Any:
            raise AttributeError("not with Spark Connect")

    session: Any = Connect()
    with own_worker_pool(session, "slots"):
        pass


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("#!/bin/sh\necho \"No module named 'holdfast'\" >&2; exit 1", "No module named 'holdfast'"),
        ("#!/bin/sh\nexit 1", "it says nothing"),
        ("#!/no/such/interpreter", "No such file or directory"),
    ],
)
def test_workers_without_holdfast_are_refused_before_they_start(tmp_path: Path, program: str, reason: str) -> None:
    python = tmp_path / "python3"
    python.write_text(program)
    python.chmod(0o755)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", pythonExec=str(python)))
    with pytest.raises(InvalidRequest, match=f"{reason}; start the program with PYSPARK_PYTHON={sys.executable}"):
        check_worker_python(session)


def test_workers_that_have_got_holdfast_since_are_not_refused_again(tmp_path: Path) -> None:
    """The refusal was remembered: after `pip install holdfast` a notebook's session had to be started anew."""
    python, tried = tmp_path / "python3", tmp_path / "tried"
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", pythonExec=str(python)))
    for status in (1, 0):
        python.write_text(f"#!/bin/sh\necho >>{tried}\nexit {status}\n")
        python.chmod(0o755)
        if status:
            with pytest.raises(InvalidRequest, match="cannot import it"):
                check_worker_python(session)
    for _ in range(2):
        check_worker_python(session)
    assert tried.read_text() == "\n" * 2, "one that has it is not tried again"


@pytest.mark.parametrize(
    "session",
    [
        SimpleNamespace(),
        SimpleNamespace(sparkContext=SimpleNamespace(master="spark://other:7077", pythonExec="/not/here")),
        SimpleNamespace(sparkContext=SimpleNamespace(master="local[*]", pythonExec=sys.executable)),
    ],
)
def test_workers_that_have_holdfast_or_are_elsewhere_are_not(session: Any) -> None:
    check_worker_python(session)


@pytest.mark.long
def test_memory_that_a_limit_of_the_address_space_refuses_is_told_with_the_setting():
    script = (
        "import resource\n"
        "from holdfast.spark.worker_process import out_of_memory\n"
        "assert out_of_memory(MemoryError(), 'here') is None, 'no limit'\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)\n"
        "try:\n"
        "    bytearray(1 << 30)\n"
        "except MemoryError as error:\n"
        "    print(out_of_memory(error, 'here'))\n"
        "assert out_of_memory(ValueError('another'), 'here') is None\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "here: this process was refused memory" in done.stdout
    assert "spark.executor.pyspark.memory" in done.stdout
