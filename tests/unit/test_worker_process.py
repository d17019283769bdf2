"""How a worker process is set up: what modules hold is frozen, once; and the pool that functions are given to Spark
for.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark.worker_process import own_worker_pool

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
