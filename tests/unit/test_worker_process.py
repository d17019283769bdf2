"""How a worker process is set up:
what modules hold is frozen, once; and the pool that functions are given to Spark for.
"""

from __future__ import annotations

import subprocess
import sys
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


def test_what_modules_hold_is_frozen_when_there_are_new_ones():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60)
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "here: this process was refused memory" in done.stdout
    assert "spark.executor.pyspark.memory" in done.stdout
