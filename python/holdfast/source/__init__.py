"""Sources: where streams come from, and tables of state. ``register(spark)`` makes them known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("holdfast-state")`` and ``format("holdfast-kafka")`` known to a session. Harmless when repeated.

    Parameters
    ----------
    spark
        The session.

    Raises
    ------
    Unavailable
        Kafka's client is not installed; says how to install it. What needs no Kafka is registered all the same.
    """
    from holdfast.source.kafka import register as register_kafka
    from holdfast.source.state.source import StateDataSource

    spark.dataSource.register(StateDataSource)
    register_kafka(spark)
