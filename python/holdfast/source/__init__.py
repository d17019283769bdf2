"""Sources: where streams come from, and tables of state. ``register(spark)`` makes them known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("holdfast-state")`` and ``format("holdfast-kafka")`` known to a session. Harmless when repeated.

    Parameters
    ----------
    spark
        The session. Whether Kafka's client is installed is asked by ``load()`` of "holdfast-kafka"; a table of state
        needs none.
    """
    from holdfast.source.kafka import register as register_kafka
    from holdfast.source.state.source import StateDataSource

    spark.dataSource.register(StateDataSource)
    register_kafka(spark)
