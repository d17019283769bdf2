"""What an operator's workers may take, and what is said where their container is smaller. Runs on the driver.

The sum is that of docs/guide/operators.md, "Memory". A container that takes more than it asked for is killed, and only
its exit code says so: it is told before the first row instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from holdfast.container import memory_limit_bytes
from holdfast.settings import Settings
from holdfast.spark.sessions import local_cores

_LOGGER = logging.getLogger("holdfast.spark")
_MIB = 1 << 20
#: Of each worker: Arrow batches on the way, and Python with pandas and pyarrow loaded.
_WORKER_BYTES = (128 + 100) * _MIB
_SIZE = re.compile(r"\s*(\d+)\s*([kmgtp]?)b?\s*", re.IGNORECASE)
_UNITS = {"k": 1 << 10, "": _MIB, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True)
class Room:
    """What the Python workers of so many tasks have together, and what of: the place and its size, as users read it."""

    size_bytes: int
    tasks: int
    where: str


def task_bytes(settings: Settings) -> int:
    """What the workers of one running task may take: those that pack, that run slots, that unpack or write."""
    slots = settings.cache_memory_max_bytes + 2 * settings.batch_memory_max_bytes + settings.spool_memory_max_bytes
    return slots + 3 * settings.pack_memory_max_bytes + 3 * _WORKER_BYTES


def warn_of_memory(session: SparkSession, operator: str, settings: Settings) -> None:
    """Says what the settings plan and what there is, where it is known and less."""
    context = getattr(session, "sparkContext", None)
    if context is None:  # Spark Connect tells nobody its containers
        return
    conf = dict(context.getConf().getAll())
    cores = local_cores(context.master)
    room = executor_room(conf, context.master) if cores is None else local_room(conf, cores, memory_limit_bytes())
    each = task_bytes(settings)
    if room is None or each * room.tasks <= room.size_bytes:
        return
    _LOGGER.warning(
        "operator %r: the Python workers of %d tasks at once may take %s of memory by its settings, and have %s: %s. "
        "What takes more is killed. Give it more, or set spark.holdfast.memory.cache.max, memory.batch.max and "
        "memory.spool.max to less; docs/guide/operators.md has the sum",
        operator,
        room.tasks,
        _gib(each * room.tasks),
        _gib(max(0, room.size_bytes)),
        room.where,
    )


def local_room(conf: Mapping[str, str], cores: int, limit_bytes: int | None) -> Room | None:
    """Beside the JVM's heap, in the container that everything is in; None where there is none."""
    heap = _bytes(conf.get("spark.driver.memory", "1g"))
    if limit_bytes is None or heap is None:
        return None
    where = f"its container's limit is {_gib(limit_bytes)}, the JVM's heap {_gib(heap)} (spark.driver.memory)"
    return Room(limit_bytes - heap, _tasks(conf, cores), where)


def executor_room(conf: Mapping[str, str], master: str) -> Room | None:
    """Beside the JVM's heap, in a container of YARN or Kubernetes; None where nothing limits the workers.

    Spark's defaults: spark.apache.org/docs/latest/configuration.html, "spark.executor.memoryOverhead".
    """
    kubernetes = master.startswith("k8s:")
    if not kubernetes and not master.startswith("yarn"):
        return None
    if "spark.executor.pyspark.memory" in conf:  # the workers are told "no" instead of being killed
        return None
    heap = _bytes(conf.get("spark.executor.memory", "1g"))
    least = _bytes(conf.get("spark.executor.minMemoryOverhead", "384m"))
    overhead = _bytes(conf.get("spark.executor.memoryOverhead", ""))
    factor = conf.get("spark.kubernetes.memoryOverheadFactor", "0.4") if kubernetes else "0.1"
    factor = conf.get("spark.executor.memoryOverheadFactor", factor)
    if overhead is None and heap is not None and least is not None and re.fullmatch(r"\d*\.?\d+", factor):
        overhead = max(least, int(heap * float(factor)))
    cores = conf.get("spark.executor.cores", "1")
    if overhead is None or not cores.isdecimal():
        return None
    return Room(overhead, _tasks(conf, int(cores)), "an executor's spark.executor.memoryOverhead")


def _tasks(conf: Mapping[str, str], cores: int) -> int:
    """That run at once."""
    cores_each = conf.get("spark.task.cpus", "1")
    return max(1, cores // int(cores_each)) if cores_each.isdecimal() and int(cores_each) else cores


def _bytes(text: str) -> int | None:
    """Of a size as Spark reads it, MiB where it has no unit; None where it is none."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2].lower()]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
