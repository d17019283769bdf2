"""What a session is: whether a call works with it, and what its settings cost. Runs on the driver.

Spark Connect's DataFrames, writers and queries are classes of their own that speak to a server.
A keyed operator is only functions that the server runs; what commits output, waits or counts needs the driver's JVM.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from holdfast.container import core_limit, usable_cores
from holdfast.errors import InvalidRequest

#: Since Spark 4.1, by default true: how many tasks a shuffle of a query without state has goes by cores and sizes.
_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
#: By default true: each thread of Python has a thread of the JVM, with what Spark keeps in it.
_PINNED = "PYSPARK_PIN_THREAD"
#: In a session in which queries start: how many, and its own value of the above, as JSON. Kept there, since one session
#: of the JVM may have several objects here.
_STARTING = "holdfast.starting"
#: Held while these two are read and set; never while a query starts, for that waits for listeners, which may start one.
_SETTING = threading.Lock()
_LOGGER = logging.getLogger("holdfast.spark")
#: Shuffle partitions for each core, past which a batch of few rows is mostly tasks of none.
_PARTITIONS_MAX = 16
#: What one partition costs each batch, seconds of a core: its task, its two Python workers, its state store. Measured
#: with 2,000 rows a batch, 200 partitions on two cores: 10.7 s (Spark SQL's own aggregation: 9.0 s).
_PARTITION_S = 0.1
#: Rows of an Arrow batch, past which the ballast of docs/rfcs/0003 costs more than the rows that it goes with. On two
#: cores, 2,000,000 rows a batch, 16 bytes each: 1.8 s with 10,000, 2.5 s with 100,000, 7 s with 1,000,000.
_ARROW_ROWS_MAX = 100_000


def refuse_connect(found: Any, call: str, instead: str) -> None:
    """InvalidRequest where ``found`` is of a Spark Connect session; ``instead``: what to do with such a one."""
    if type(found).__module__.startswith("pyspark.sql.connect."):
        raise InvalidRequest(
            f"{call}: expected a DataFrame or query of a classic session (SparkSession.builder.master(…)), found one "
            f"of Spark Connect (SparkSession.builder.remote(…)): {instead}; see docs/guide/environments.md"
        )


def refuse_unpinned_threads(call: str) -> None:
    """InvalidRequest where pyspark gives a thread of the program no thread of the JVM for its own: what foreachBatch's
    function starts then runs on any, and neither it nor its tasks know the batch. Read as pyspark itself does.
    """
    found = os.environ.get(_PINNED, "true")
    if found.lower() != "true":
        raise InvalidRequest(
            f"{call}: expected threads of Python that are pinned to the JVM's, by which Spark tells a batch what query "
            f"it is of, found {_PINNED}={found}; start the program without it"
        )


def spark_retained_batches(conf: Mapping[str, str]) -> int:
    """How many batches Spark keeps behind the newest one."""
    return int(conf.get("spark.sql.streaming.minBatchesToRetain", "100"))


def spark_writes_changelogs(conf: Mapping[str, str]) -> bool:
    """Whether Spark's RocksDB state store does."""
    return conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false").lower() == "true"


@contextmanager
def fixed_tasks(session: SparkSession) -> Iterator[None]:
    """A query that is started within has the same tasks in each run of a batch, whatever runs it. A query takes its
    settings when it starts; the session gets its own back from the last one that starts, unless somebody has set it
    meanwhile. Any thread; also within each other.
    """
    with _SETTING:
        starting, own = json.loads(session.conf.get(_STARTING, "[0, null]") or "")
        found = session.conf.get(_ADAPTIVE, None)
        if starting == 0 or found != "false":
            own = found
        session.conf.set(_ADAPTIVE, "false")
        session.conf.set(_STARTING, json.dumps([starting + 1, own]))
    try:
        yield
    finally:
        with _SETTING:
            _started(session)


def _started(session: SparkSession) -> None:
    """One query less starts."""
    starting, own = json.loads(session.conf.get(_STARTING, "[1, null]") or "")  # none: SQL's RESET
    if starting > 1:
        session.conf.set(_STARTING, json.dumps([starting - 1, own]))
        return
    session.conf.unset(_STARTING)
    if session.conf.get(_ADAPTIVE, None) != "false":
        return
    if own is None:
        session.conf.unset(_ADAPTIVE)
    else:
        session.conf.set(_ADAPTIVE, own)


def shuffle_partitions(found: str | None, where: str) -> int:
    """``spark.sql.shuffle.partitions``: how many tasks Spark shuffles to.

    Raises
    ------
    InvalidRequest
        No number, such as the "auto" of some platforms.
    """
    try:
        return int(found or "200")
    except ValueError:
        raise InvalidRequest(
            f"{where}: spark.sql.shuffle.partitions is {found!r}; expected a number, since slots are spread over the "
            "partitions once and for all. Set it to the number of cores, or a small multiple, before the query's first "
            "batch"
        ) from None


def arrow_rows_max(conf: Mapping[str, str]) -> int:
    """How many rows an Arrow batch has at most.

    Raises
    ------
    InvalidRequest
        No limit, or one so high that packed rows would be padded by more rows than they are worth.
    """
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    rows = int(conf.get(setting, "10000"))
    if rows <= 0:
        raise InvalidRequest(
            f"{setting} is {rows}, no limit; Holdfast's memory would have none either. Set it to 10000, its default"
        )
    if rows > _ARROW_ROWS_MAX:
        raise InvalidRequest(
            f"{setting} is {rows}; Holdfast has Spark count bytes by rows, and would send that many empty ones with "
            f"each 32 MiB: expected at most {_ARROW_ROWS_MAX}. Set it to 10000, its default"
        )
    return rows


def warn_of_idle_tasks(session: SparkSession, operator: str) -> None:
    """Says what it costs where there are many more shuffle partitions than cores: Spark's default is for clusters."""
    found = session.conf.get("spark.sql.shuffle.partitions", "200")
    partitions, cores = shuffle_partitions(found, f"operator {operator!r}"), _cores(session)
    if cores is None or partitions <= _PARTITIONS_MAX * cores:
        return
    _LOGGER.warning(
        "operator %r: spark.sql.shuffle.partitions is %d, for %d cores: each batch runs so many tasks, with rows or "
        "without, which takes about %.0f s. Set it to %d, or a small multiple, before the query's first batch: its "
        "checkpoint keeps the number",
        operator,
        partitions,
        cores,
        partitions * _PARTITION_S / cores,
        cores,
    )


def local_cores(master: str) -> int | None:
    """Tasks that run at once in this process's JVM; None where they run elsewhere. ``defaultParallelism`` is what
    ``spark.default.parallelism`` says, where that is set.
    """
    found = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?", master)
    if found is None:
        return None
    if found[1] == "*":
        limit = core_limit()
        return usable_cores() if limit is None else min(usable_cores(), math.ceil(limit))  # as the JVM counts them
    return int(found[1] or "1")


def _cores(session: SparkSession) -> int | None:
    """Of this machine, or of the executors that the settings ask for; None where nobody can know.

    A cluster's ``defaultParallelism`` is 2 until executors have come, and grows with each: who set that many partitions
    would have them for good.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:  # Spark Connect tells nobody its cores
        return None
    if (here := local_cores(context.master)) is not None:
        return here
    conf = context.getConf()
    executors, cores = (conf.get(f"spark.executor.{what}", None) for what in ("instances", "cores"))
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true" or executors is None or cores is None:
        return None
    return int(executors) * int(cores)
