"""A driver's Python that may be killed while its JVM lives on, as under the gateway of a notebook or a cluster.

The program runs twice: as the supervisor, which starts the JVM, and under it as the driver, which uses that JVM. When
the driver is killed, the supervisor starts another one. It stops what is left of the last one's query in the JVM first;
until then that goes on, its tasks too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_sessions import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def supervised_session(master: str, folder: Path, **settings: str) -> SparkSession:
    """The driver's session. In the supervisor this does not return: it ends as the last driver did."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _session_of_running_jvm()
    raise SystemExit(_supervise(start_session(master, folder, **settings)))


def _supervise(spark: SparkSession) -> int:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    place = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": str(gateway.gateway_parameters.auth_token),
    }
    code = -signal.SIGKILL
    while code == -signal.SIGKILL and gateway.proc.poll() is None:
        code = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place}).wait()
    return abs(code)


def _session_of_running_jvm() -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(context)
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    spark = SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf))
    # Before anything listens for calls from the JVM: a query of the last driver would call this one.
    for query in spark.streams.active:
        query.stop()
    return spark
