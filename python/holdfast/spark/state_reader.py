"""Handles out of Spark's own state, by Spark's own reader: the data source `statestore`. For state that is not kept by
Spark's default provider, whose files `holdfast.inspect` reads by itself.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from pyspark.sql import SparkSession

from holdfast.errors import Corrupt, Unavailable
from holdfast.spark.checkpoint_path import spark_path
from holdfast.spark_files.logs import CommittedBatch

#: What Java's URIs escape: all but these, and of other letters and signs none.
_ESCAPED = re.compile(r"[^\w\-.!~*'(),;:$&+=/@]")
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def state_texts(spark: SparkSession, checkpoint: str, batch: CommittedBatch, operator: int) -> list[str]:
    """The texts of all states of a query's stateful operator after a batch.

    Parameters
    ----------
    operator
        As Spark numbers them.

    Raises
    ------
    Corrupt
        Spark cannot read the state, or looks for it elsewhere; says what Spark says.
    """
    path = spark_path(checkpoint)
    looked_for = _ESCAPED.sub(_escaped, path)
    by_another_name = (
        f"Spark's reader of state looks for {looked_for}, since it escapes the checkpoint's name: give it by a name of "
        "letters and digits, such as a symbolic link to it"
    )
    if looked_for != path and os.path.exists(looked_for.removeprefix("file:")):
        raise Corrupt(f"the state of {checkpoint} cannot be read: {by_another_name}")
    # Spark looks for the state's files under the names that its own setting says, not under those of the commit.
    session = spark.newSession()
    session.conf.set(_FORMAT, "2" if batch.names_state else "1")
    reader = session.read.format("statestore").option("batchId", batch.batch_id).option("operatorId", operator)
    try:
        rows = reader.load(path).select("value.groupState.handle").collect()
    except Exception as error:  # of py4j's and Spark's many kinds
        said = " ".join(str(error).splitlines()[:2]) or repr(error)
        why = said if looked_for == path else f"{by_another_name}. It says: {said}"
        raise Corrupt(
            f"Spark cannot read its state of batch {batch.batch_id}, operator {operator}, in {checkpoint}: {why}"
        ) from error
    return [row["handle"] for row in rows if row["handle"] is not None]


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return quote(character) if character.isascii() or not character.isprintable() else character


def start_session() -> tuple[SparkSession, SparkSession | None]:
    """The session of this process, or a local one that is started: then it comes twice, for who stops it.

    Raises
    ------
    Unavailable
        None can be started: there is no Java.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        return found, None
    try:
        started = (
            SparkSession.builder.master("local[1]")
            .appName("holdfast checkpoints")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .getOrCreate()
        )
    except Exception as error:
        raise Unavailable(
            f"Spark must read this checkpoint's state, and no session can be started ({error}); run `holdfast doctor`"
        ) from error
    return started, started
