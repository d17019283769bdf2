"""What Holdfast needs of a machine, looked for and tried out: the findings behind ``holdfast doctor``.

Nothing is changed: what is written for a trial goes into a temporary folder of its own. RocksDB is tried in another
process, so that one which crashes is a finding and not the end of the doctor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.doctor.finding import Finding, Verdict
from holdfast.doctor.machine import check_cores, check_local_dir, check_memory, check_system
from holdfast.doctor.packages import check_extra, check_holdfast, check_package, check_pyspark, check_python
from holdfast.doctor.programs import check_jdk, check_maven, check_rocksdb, check_workers, try_rocksdb
from holdfast.settings import default_local_dir

__all__ = ["Finding", "Verdict", "examine", "try_rocksdb"]


def examine(local_dir: str | None = None, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Look at everything.

    Parameters
    ----------
    local_dir
        The folder of ``spark.holdfast.local.dir``; its default where None.
    environment
        Settings to look at instead of this process's environment variables.
    """
    environment = os.environ if environment is None else environment
    return [
        check_system(),
        check_python(),
        check_holdfast(),
        check_pyspark(environment),
        check_package("pyarrow"),
        check_package("pandas"),
        check_jdk(environment),
        check_rocksdb(environment),
        check_workers(environment),
        check_memory(),
        check_cores(),
        check_local_dir(Path(local_dir or default_local_dir())),
        check_extra("kafka", "Kafka sources and sinks"),
        check_extra("cloud", "checkpoints and files in S3, Google Cloud Storage and Azure"),
        check_extra("hdfs", "checkpoints and files in HDFS"),
        check_extra("sketch", 'AggregatingState("approx_count_distinct")'),
        check_maven(environment),
    ]
