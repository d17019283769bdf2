"""An S3 server in a process of its own: moto's. It heeds If-None-Match on a put, and where an upload in parts ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: For whom the server asks; it takes any. Processes that a test starts inherit them.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAOFTESTS",
    "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_START_S = 240


class S3Server:
    """A server that listens. ``url``: where."""

    def __init__(self, url: str) -> None:
        self.url = url

    def bucket(self, kind: str = "") -> str:
        """A new bucket's name, which ends in ``kind``."""
        name = f"test-{uuid.uuid4().hex[:12]}{kind}"
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=120).close()
        return name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """Runs a server; its output goes to ``log``."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **CREDENTIALS})
    try:
        server = S3Server(f"http://127.0.0.1:{port}")
        until = time.monotonic() + _START_S
        while not _answers(server.url):
            assert process.poll() is None, f"moto ended with {process.returncode}: {log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"moto did not answer within {_START_S} s"
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
        return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
