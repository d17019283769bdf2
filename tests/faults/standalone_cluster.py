"""Spark's own standalone cluster with two workers that call themselves different hosts, on addresses of loopback.

In local-cluster all executors are on one host, and Spark starts no speculative copy on a host that has an attempt.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pyspark
from tests.faults.program import is_python_worker
from tests.spark_sessions import worker_path

_HOSTS = ("127.0.0.2", "127.0.0.3")
_WITHIN_S = 240.0


class StandaloneCluster:
    """A master and two workers of one core. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._port, self._page = _free_port(), _free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> StandaloneCluster:
        self._folder.mkdir(parents=True)
        place = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page)]
        self._start("org.apache.spark.deploy.master.Master", *place)
        self._wait_for_workers(0)
        for host in _HOSTS:
            folder = ["--work-dir", str(self._folder / host)]
            size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._start("org.apache.spark.deploy.worker.Worker", "--host", host, *size, *folder, self.master)
        self._wait_for_workers(len(_HOSTS))
        return self

    def __exit__(self, *_: object) -> None:
        everything = [child for one in self._started for child in psutil.Process(one.pid).children(recursive=True)]
        processes: list[subprocess.Popen[bytes] | psutil.Process] = [*self._started, *everything]
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for one in self._started:
            one.wait()
        psutil.wait_procs(everything, timeout=10)

    def stopped_workers(self) -> list[psutil.Process]:
        """Python workers that are asleep."""
        everything = [child for one in self._started for child in psutil.Process(one.pid).children(recursive=True)]
        return [p for p in everything if p.status() == psutil.STATUS_STOPPED and is_python_worker(p)]

    def _start(self, main_class: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": worker_path(),
        }
        with (self._folder / "log.txt").open("a") as log:
            self._started.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), main_class, *arguments],
                    cwd=self._folder,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait_for_workers(self, count: int) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as page:
                    if page.read().count(b'"ALIVE"') == count + 1:  # and the master itself
                        return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert time.monotonic() < deadline, (self._folder / "log.txt").read_text()[-3000:]
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
