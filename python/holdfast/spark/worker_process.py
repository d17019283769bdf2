"""What a Python worker process is set up with, which of Spark's pools it is of, and whether it has Holdfast at all.

Spark's worker collects garbage after each task, all of it: 50 ms of processor time with pandas and pyarrow loaded,
three times a batch and core, in which a small batch waits and a large one has no core. What modules hold never becomes
garbage, so it is taken out of the sight of the collector (`gc.freeze`), and a collection takes microseconds.

Spark's own Python files come before all others on a worker's path, in archives: pyspark.zip, py4j's, and the jar of
Spark's core. Spark tells its workers to look anew for what can be imported, 4.0 before each task and 4.3 before the
first, and Python to 3.12 then reads the directory of each archive, thousands of names (from 3.13 on it does with the
next import): 60 to 130 ms of processor time. These archives change no more than the worker does: they are read once.

glibc's malloc keeps what it frees for later, more and more of it: with each large block that is freed, the size from
which blocks are mapped by themselves rises, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). Batches, indexes and deltas
of some MiB each then leave a heap full of holes; a worker was seen at 330 MiB that needed 240. A threshold that is set
stays where it is.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import os
import re
import resource
import shutil
import signal
import sys
import threading
import zipimport
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.trials import last_line, run_trial

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_KEPT_BYTES = 1 << 20
# By which a user sets the same; then it is left alone.
_MALLOC_ENVIRONMENT = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_POOL_ENVIRONMENT = "HOLDFAST_WORKERS"
# PythonUtils.sparkPythonPath of Spark. What a user adds to a session has other names, and may change.
_ARCHIVES_OF_SPARK = re.compile(r"pyspark\.zip|py4j-[\d.]+-src\.zip|spark-core_[\w.-]+\.jar")

#: Interpreters that were tried. One that is refused is tried again: it may have been mended, in a session that goes on.
_with_holdfast: set[str] = set()
_frozen_modules = 0
_pool_lock = threading.Lock()


def prepare_worker_process() -> None:
    """Sets this process up. At the start of every task, and of worker processes only."""
    global _frozen_modules
    _return_freed_memory()
    _read_archives_once()
    # Cycles that a task leaves are frozen with the rest and never freed: so only when there is something to freeze.
    if len(sys.modules) != _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()


def out_of_memory(error: BaseException, where: str) -> Unavailable | None:
    """What to do about memory that this process was refused; None where the error says something else, or the process
    may have as much as the machine has.

    Spark limits the address space of Python workers by ``spark.executor.pyspark.memory``: mapped files, of RocksDB and
    of libraries, and the stacks of threads count in full, though they take no memory.
    """
    refused = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if not refused or limit == resource.RLIM_INFINITY:
        return None
    return Unavailable(
        f"{where}: this process was refused memory ({error or type(error).__name__}): its address space is limited to "
        f"{limit >> 20} MiB, as spark.executor.pyspark.memory does, in which mapped files count too. Raise that by "
        f"some GiB or leave it unset, or lower spark.holdfast.memory.batch.max, memory.cache.max and memory.spool.max"
    )


@contextmanager
def own_worker_pool(session: SparkSession, name: str) -> Iterator[None]:
    """Python functions that are given to Spark in here run in workers of their own, a pool for each ``name``.

    Spark hands a task to whichever of the idle workers waits longest, and tells pools apart by the workers'
    environment. Among the workers that also pack and unpack, a slot meets one that has its newest state in few
    batches, and most of them keep the state of most slots; among its own there are half as many. What another thread
    gives to Spark meanwhile may get this pool, which costs time only; so does a session without a SparkContext (Spark
    Connect), where there is one pool.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:
        yield
        return
    with _pool_lock:  # two that restored each other's environment would leave a pool set for good
        before = context.environment
        context.environment = {**before, _POOL_ENVIRONMENT: name}
        try:
            yield
        finally:
            context.environment = before


def check_worker_python(session: SparkSession) -> None:
    """Refuses a session whose workers, on this machine, would not find Holdfast; of other machines only they can tell.

    Without ``PYSPARK_PYTHON`` Spark takes the ``python3`` of the path, which is another than that of an environment
    that is used without being activated.

    Raises
    ------
    InvalidRequest
        Says what to set.
    """
    context = getattr(session, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        return
    python = context.pythonExec
    if python in _with_holdfast:
        return
    reason = _why_no_holdfast(python)
    if reason is not None:
        raise InvalidRequest(
            f"expected Spark's workers to find Holdfast, found that {python} cannot import it: {reason}; "
            f"start the program with PYSPARK_PYTHON={sys.executable}"
        )
    _with_holdfast.add(python)


def _why_no_holdfast(python: str) -> str | None:
    path = shutil.which(python)
    if path is not None and os.path.dirname(path) == os.path.dirname(sys.executable):
        return None  # of this environment
    try:
        ran = run_trial([python, "-c", "import holdfast"], os.environ)
    except OSError as error:
        return error.strerror
    if ran.returncode in (0, -signal.SIGKILL):  # killed as it took too long: a slow machine proves nothing
        return None
    return last_line(ran.stderr) or "it says nothing"


class _Unchanging(zipimport.zipimporter):
    """Imports from an archive that stays as it is."""

    def invalidate_caches(self) -> None:
        """There is nothing new to be seen."""


def _read_archives_once() -> None:
    finders = sys.path_importer_cache
    for path, finder in list(finders.items()):
        if type(finder) is zipimport.zipimporter and _ARCHIVES_OF_SPARK.fullmatch(os.path.basename(path)):
            finders[path] = _Unchanging(path)


@functools.cache
def _return_freed_memory() -> None:
    """Has this process give freed blocks of 1 MiB and more back to the system."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's own
    if mallopt is not None and not any(name in os.environ for name in _MALLOC_ENVIRONMENT):
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
