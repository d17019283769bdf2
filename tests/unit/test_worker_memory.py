"""What the workers may take, against what their container has."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.spark import worker_memory

GIB = 1 << 30
DEFAULTS = Settings.from_mapping({}, None)


def _session(master: str, **conf: str) -> Any:
    settings = {f"spark.{name.replace('__', '.')}": value for name, value in conf.items()}
    known = SimpleNamespace(getAll=settings.items)
    # Of tasks that run at once it says nothing: it is what spark.default.parallelism says.
    context = SimpleNamespace(defaultParallelism=200, master=master, getConf=lambda: known)
    return SimpleNamespace(sparkContext=context)


def _told(session: Any, caplog: pytest.LogCaptureFixture, settings: Settings = DEFAULTS) -> str | None:
    with caplog.at_level(logging.WARNING, "holdfast.spark"):
        worker_memory.warn_of_memory(session, "totals", settings)
    assert len(caplog.records) <= 1
    return caplog.records[0].getMessage() if caplog.records else None


def test_the_sum_is_that_of_the_guide() -> None:
    """256 kept, 256 changed and 256 folded, 64 spooled, three times 32 packed, and 228 of each of three workers."""
    assert worker_memory.task_bytes(DEFAULTS) == (3 * 256 + 64 + 3 * 32 + 3 * 228) << 20
    less = {"memory.cache.max": "64 MiB", "memory.batch.max": "96 MiB", "memory.spool.max": "32 MiB"}
    settings = Settings.from_mapping({}, {**less, "pack.memory.max": "8 MiB"})
    assert worker_memory.task_bytes(settings) == (64 + 2 * 96 + 32 + 3 * 8 + 3 * 228) << 20


@pytest.mark.parametrize(
    ("limit_bytes", "conf", "told"),
    [
        (None, {}, None),
        (8 * GIB, {}, None),
        (3 * GIB, {}, "of 2 tasks at once may take 3.1 GiB .* have 2.0 GiB: its container's limit is 3.0 GiB, .* 1.0"),
        (4 * GIB, {"driver__memory": "512m"}, None),
        (4 * GIB, {"driver__memory": "1024"}, "have 3.0 GiB"),  # MiB, where it has no unit
        (1 * GIB, {"driver__memory": "4G"}, "have 0.0 GiB"),
        (3 * GIB, {"task__cpus": "2"}, None),
        (8 * GIB, {"driver__memory": "much"}, None),
    ],
)
def test_on_one_machine_it_is_the_container_less_the_heap(
    limit_bytes: int | None,
    conf: dict[str, str],
    told: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_memory, "memory_limit_bytes", lambda: limit_bytes)
    said = _told(_session("local[2]", **conf), caplog)
    assert (said is None) == (told is None)
    if told is not None:
        assert said is not None and said.startswith("operator 'totals': the Python workers of 2 tasks")
        assert re.search(told, said)
        assert "set spark.holdfast.memory.cache.max" in said


@pytest.mark.parametrize(
    ("master", "conf", "told"),
    [
        (
            "yarn",
            {},
            "of 1 tasks at once may take 1.6 GiB .* have 0.4 GiB: an executor's spark.executor.memoryOverhead",
        ),
        ("yarn", {"executor__memoryOverhead": "2g"}, None),
        ("yarn", {"executor__memoryOverhead": "2048", "executor__cores": "2"}, "of 2 tasks .* 3.1 GiB .* have 2.0 GiB"),
        ("yarn", {"executor__memoryOverhead": "2g", "executor__cores": "4", "task__cpus": "4"}, None),
        ("yarn", {"executor__memory": "20g"}, None),  # a tenth of it
        ("yarn", {"executor__memory": "8g"}, "have 0.8 GiB"),
        ("yarn", {"executor__memory": "8g", "executor__memoryOverheadFactor": "0.25"}, None),
        ("yarn", {"executor__minMemoryOverhead": "2g"}, None),
        ("yarn", {"executor__pyspark__memory": "1g"}, None),  # who has too little of that is told by a task's error
        ("k8s://https://one:6443", {"executor__memory": "4g"}, None),  # two fifths
        ("k8s://https://one:6443", {"executor__memory": "2g"}, "have 0.8 GiB"),
        ("k8s://https://one:6443", {"executor__memory": "2g", "kubernetes__memoryOverheadFactor": "0.9"}, None),
        ("spark://one:7077", {}, None),  # nothing limits its workers
        ("yarn", {"executor__cores": "all"}, None),
        ("yarn", {"executor__memory": "lots"}, None),
    ],
)
def test_of_executors_it_is_the_overhead(
    master: str, conf: dict[str, str], told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    said = _told(_session(master, **conf), caplog)
    assert (said is None) == (told is None)
    assert told is None or (said is not None and re.search(told, said))


def test_spark_connect_tells_nobody_its_containers(caplog: pytest.LogCaptureFixture) -> None:
    assert _told(SimpleNamespace(), caplog) is None
