"""Spark as a reader of its own state, started once it is needed."""

from __future__ import annotations

from typing import Any

from holdfast.spark_files.logs import CommittedBatch


class SparkItself:
    """Reads state that is not kept by Spark's default provider. To import pyspark takes a second, a session ten.

    Parameters
    ----------
    spark
        A session; None: one is started, and stopped by :meth:`close`.
    """

    def __init__(self, checkpoint: str, spark: Any) -> None:
        self._checkpoint = checkpoint
        self._spark = spark
        self._own: Any = None

    def texts(self, batch: CommittedBatch, operator: int) -> list[str]:
        from holdfast.spark.state_reader import start_session, state_texts

        if self._spark is None:
            self._spark, self._own = start_session()
        return state_texts(self._spark, self._checkpoint, batch, operator)

    def close(self) -> None:
        if self._own is not None:
            self._own.stop()
            self._spark = self._own = None
