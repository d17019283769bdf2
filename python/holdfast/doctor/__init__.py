"""What Holdfast needs of a machine, looked for and tried out: the findings behind ``holdfast doctor``.

Nothing is changed: what is written for a trial goes into a temporary folder of its own. RocksDB is tried in another
process, so that one which crashes is a finding and not the end of the doctor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from holdfast.doctor.finding import Finding, Verdict
from holdfast.doctor.machine import check_cores, check_local_dir, check_memory, check_system
from holdfast.doctor.packages import check_extra, check_holdfast, check_package, check_pyspark, check_python
from holdfast.doctor.programs import check_jdk, check_maven, check_rocksdb, check_workers, try_rocksdb
from holdfast.errors import HoldfastError
from holdfast.settings import default_local_dir

#: By name of the extra, what needs it.
EXTRAS = {
    "kafka": "Kafka sources and sinks",
    "cloud": "checkpoints and files in S3, Google Cloud Storage and Azure",
    "hdfs": "checkpoints and files in HDFS",
    "sketch": 'AggregatingState("approx_count_distinct")',
}

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
    needed: dict[str, Callable[[], Finding]] = {
        "system": check_system,
        "Python": check_python,
        "Holdfast": check_holdfast,
        "pyspark": lambda: check_pyspark(environment),
        "pyarrow": lambda: check_package("pyarrow"),
        "pandas": lambda: check_package("pandas"),
        "JDK": lambda: check_jdk(environment),
        "RocksDB": lambda: check_rocksdb(environment),
        "workers": lambda: check_workers(environment),
        "memory": check_memory,
        "cores": check_cores,
        "local folder": lambda: check_local_dir(Path(local_dir or default_local_dir())),
    }
    optional: dict[str, Callable[[], Finding]] = {
        **{f"extra {name}": partial(check_extra, name, needed_for) for name, needed_for in EXTRAS.items()},
        "Maven": lambda: check_maven(environment),
    }
    found = [_found(name, check, Verdict.MISSING) for name, check in needed.items()]
    return found + [_found(name, check, Verdict.WARNING) for name, check in optional.items()]


def _found(name: str, check: Callable[[], Finding], otherwise: Verdict) -> Finding:
    """What a check found; that it could not look is a finding too, and the others are told all the same."""
    try:
        return check()
    except HoldfastError as error:
        return Finding(name, otherwise, str(error), "as said there")
    except Exception as error:
        return Finding(name, otherwise, f"could not be looked for: {type(error).__name__}: {error}", "as said there")
