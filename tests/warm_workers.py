"""Spark's daemon of Python workers, with the modules that all workers import already there when it forks them.

A worker of Spark's own daemon imports pandas, pyarrow and Holdfast anew: 1.3 processor seconds, and a worker ends with
each task that fails. Spark's own does so because libraries may start threads when they are imported, which a fork
loses: this one refuses that. The thread of jemalloc in pyarrow, which allocates nothing there, knows of forks.

Named to Spark by tests/spark_jvm.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

_IMPORTED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "holdfast.spark.slots",
    "holdfast.spark.pack",
    "holdfast.spark.sink_task",
    "holdfast.spark.output",
)


def main() -> None:
    """What `python -m pyspark.daemon` does, after the imports."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's would start its threads now
    # Standard output is Spark's, which reads the daemon's port from it: what a library prints is kept from it.
    spark, sys.stdout = sys.stdout, sys.stderr
    for module in _IMPORTED:
        importlib.import_module(module)
    sys.stdout = spark

    from holdfast.spark.worker_process import prepare_worker_process

    prepare_worker_process()
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert len(threads) == 1 + threads.count("jemalloc_bg_thd"), f"threads that a fork loses: {threads}"

    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
