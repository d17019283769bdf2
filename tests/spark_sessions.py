"""Spark sessions for tests: small, quiet, and with workers that can import the tests' processors."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from tests.spark_jvm import ROOT, driver_options, set_environment

import holdfast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of Spark, as (4, 3): a test of what came later than 4.0 is skipped by this, and never because an import failed.
SPARK_RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def worker_path() -> str:
    """PYTHONPATH for Spark's Python workers: the tests, the package as this process has it, and what was there."""
    package = Path(holdfast.__file__).resolve().parents[1]
    return os.pathsep.join([str(ROOT), str(package), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_module(module: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A program of the tests in a process, and so a JVM, of its own. It must end well."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": worker_path()},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done


def start_session(master: str, folder: Path, **settings: str) -> SparkSession:
    """A session with two shuffle partitions and all its files under ``folder``.
    ``a__b`` stands for the setting ``a.b``.
    """
    from pyspark.sql import SparkSession

    set_environment()
    os.environ["PYTHONPATH"] = worker_path()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .appName("holdfast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.local.dir", str(folder / "spark-local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", driver_options())
    )
    for key, value in settings.items():
        builder = builder.config(key.replace("__", "."), value)
    return builder.getOrCreate()


def lose_local_folder(folder: Path) -> None:
    """What a new machine has not. At once: a folder in which a worker still writes would not let itself be emptied."""
    (folder / "local").rename(Path(tempfile.mkdtemp(prefix="lost-", dir=folder)) / "local")
