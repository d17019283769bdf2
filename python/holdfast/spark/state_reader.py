"""Handles out of Spark's own state, by Spark's own reader: the data source `statestore`. For state that is not kept by
Spark's default provider, whose files `holdfast.inspect` reads by itself.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast.errors import Corrupt, Unavailable
from holdfast.spark.checkpoint_path import spark_path
from holdfast.spark_files.logs import CommittedBatch

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
        Spark cannot read the state; says what Spark says.
    """
    # Spark looks for the state's files under the names that its own setting says, not under those of the commit.
    session = spark.newSession()
    session.conf.set(_FORMAT, "2" if batch.names_state else "1")
    reader = session.read.format("statestore").option("batchId", batch.batch_id).option("operatorId", operator)
    try:
        rows = reader.load(spark_path(checkpoint)).select("value.groupState.handle").collect()
    except Exception as error:  # of py4j's and Spark's many kinds
        said = " ".join(str(error).splitlines()[:2]) or repr(error)
        raise Corrupt(
            f"Spark cannot read its state of batch {batch.batch_id}, operator {operator}, in {checkpoint}: {said}"
        ) from error
    return [row["handle"] for row in rows if row["handle"] is not None]


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
