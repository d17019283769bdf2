"""HDFS in a process of its own: a NameNode and a DataNode of Hadoop's mini cluster, in the release that pyspark ships.

Its jars come as a broker's do, by the user's own Maven, pinned by checksums and kept in the same cache; all others are
pyspark's. Where they cannot be had, or pyspark ships a release that is not locked here, `Absent` says so.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyspark
from tests.s3_server import free_port

from holdfast.errors import Unavailable
from holdfast.testing import watchdog
from holdfast.testing.kafka_jars import Jar, Lock, kafka_jars

#: By Hadoop's release: its mini cluster, and JUnit's assertions, without which that does not start.
LOCKED = {
    "3.5.0": (
        Jar(
            "org.apache.hadoop",
            "hadoop-client-minicluster",
            "3.5.0",
            56006450,
            "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
        ),
        Jar(
            "org.junit.jupiter",
            "junit-jupiter-api",
            "5.13.3",
            240345,
            "1a15a52253a972c82c0dbf77759a983f5afed0583585cdc5b2a3beaa1f4ae0ac",
        ),
        Jar(
            "org.junit.platform",
            "junit-platform-commons",
            "1.13.3",
            158639,
            "02cd66a55df750a123d8f761e6503e455ac108ff1b365d446e874ba3bc56ca89",
        ),
        Jar(
            "org.opentest4j",
            "opentest4j",
            "1.3.0",
            14304,
            "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
        ),
    )
}
_JARS = Path(pyspark.__file__).parent / "jars"
_USED = ("hadoop-client", "slf4j", "log4j", "jcl-over-slf4j", "jsr305", "snappy-java", "javax.servlet")
_START_S = 300
#: For each answer: on a busy machine the first of a kind loads classes for long.
_ANSWER_S = 300
_SETTINGS = {
    "dfs.permissions.enabled": "true",
    "dfs.namenode.safemode.extension": "0",
    "dfs.blocksize": "4194304",  # so that files of some megabytes have several
    "dfs.namenode.fs-limits.min-block-size": "1048576",
    "dfs.replication": "1",
    "dfs.ls.limit": "50",  # so that a folder of some files has several pages
}


class Absent(Exception):
    """There is no HDFS to be had here; says why."""


class HdfsServer:
    """``url``: of the NameNode's WebHDFS. ``address``: ``host:port`` as Spark's own client has it."""

    @property
    def data_url(self) -> str:
        """Of the DataNode's WebHDFS."""
        told = json.loads(self.ask("PUT", "/x", "CREATE", noredirect="true"))["Location"]
        return f"http://{urlsplit(told).netloc}"

    def __init__(self, url: str, address: str) -> None:
        self.url, self.address = url, address

    def folder(self) -> str:
        """A new folder's path."""
        path = f"/test-{uuid.uuid4().hex[:12]}"
        self.ask("PUT", path, "MKDIRS")
        return path

    def ask(self, method: str, path: str, operation: str, **options: str) -> bytes:
        """One operation of WebHDFS, by a client that has nothing to do with ours."""
        told = "".join(f"&{key}={quote(value)}" for key, value in options.items())
        url = f"{self.url}/webhdfs/v1{quote(path)}?op={operation}&user.name={getpass.getuser()}{told}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_ANSWER_S) as answer:
            return bytes(answer.read())

    def warm_up(self) -> None:
        """The first of each operation loads classes: for seconds, on a busy machine, which tests give nobody."""
        folder = self.folder()
        where = json.loads(self.ask("PUT", f"{folder}/first", "CREATE", noredirect="true"))["Location"]
        with urllib.request.urlopen(urllib.request.Request(where, data=b"first", method="PUT"), timeout=_ANSWER_S):
            pass
        self.ask("PUT", f"{folder}/first", "RENAME", destination=f"{folder}/second")
        self.ask("GET", f"{folder}/second", "OPEN")
        self.ask("DELETE", folder, "DELETE", recursive="true")

    def listed(self, path: str) -> list[dict[str, object]]:
        return list(json.loads(self.ask("GET", path, "LISTSTATUS"))["FileStatuses"]["FileStatus"])


def minicluster_jars() -> list[Path]:
    """Fetched on first use, verified on each."""
    release = next(_JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    if release not in LOCKED:
        raise Absent(f"the mini cluster of Hadoop {release} is not locked here: {', '.join(LOCKED)}")
    jars = LOCKED[release]
    try:
        return kafka_jars(Lock(f"hadoop-{release}", jars, hashlib.sha256(repr(jars).encode()).hexdigest()))
    except Unavailable as error:
        raise Absent(str(error).replace("Apache Kafka", "Hadoop's mini cluster")) from None


@contextmanager
def hdfs_server(folder: Path) -> Iterator[HdfsServer]:
    """Runs a cluster of one NameNode and one DataNode; its files and its output go to ``folder``."""
    jars = [*minicluster_jars(), *(jar for kind in _USED for jar in sorted(_JARS.glob(f"{kind}*.jar")))]
    http_port = free_port()
    details, log = folder / "details.json", folder / "cluster.log"
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dtest.build.data={folder}"]
    settings = [f"-D{key}={value}" for key, value in _SETTINGS.items()]
    main = ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-httpport", str(http_port)]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [java, *options, "-cp", os.pathsep.join(map(str, jars)), *main, "-writeDetails", str(details), *settings],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
        )
    guard = subprocess.Popen([sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(process.pid)])
    try:
        until = time.monotonic() + _START_S
        while not details.exists() or not details.read_text().endswith("}"):
            assert process.poll() is None, f"HDFS ended with {process.returncode}: {log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"HDFS was not there within {_START_S} s: {log.read_text()[-2000:]}"
            time.sleep(0.1)
        port = json.loads(details.read_text())["namenode_port"]
        server = HdfsServer(f"http://127.0.0.1:{http_port}", f"127.0.0.1:{port}")
        server.warm_up()
        yield server
    finally:
        process.kill()
        process.wait()
        guard.wait()
