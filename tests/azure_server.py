"""Azure's blob store in a process of its own: its emulator, azurite, from npm. Tests without it are left out.

`make azurite` puts it into the environment, where npm is. Elsewhere it is looked for on the path, or where
HOLDFAST_AZURITE says.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.s3_server import free_port

ACCOUNT = "devstoreaccount1"
#: The emulator's own, printed in its documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CREDENTIALS = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
_VERSION = "2023-11-03"
_START_S = 240


def azurite() -> str | None:
    """The program; None where there is none."""
    own = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return os.environ.get("HOLDFAST_AZURITE") or (str(own) if own.exists() else shutil.which("azurite-blob"))


class AzureServer:
    """A server that listens. ``url``: where, with the account's name."""

    def __init__(self, url: str) -> None:
        self.url = url

    def container(self) -> str:
        """A new container's name. Its making is signed here: obstore makes none."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        date = formatdate(time.time(), usegmt=True)
        lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_VERSION}"]
        signed = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        mac = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{mac}"}
        request = urllib.request.Request(f"{self.url}/{name}?restype=container", method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=120).close()
        return name


@contextmanager
def azure_server(program: str, log: Path) -> Iterator[AzureServer]:
    """Runs a server that keeps all in memory; its output goes to ``log``."""
    port = free_port()
    command = [program, "--silent", "--disableTelemetry", "--inMemoryPersistence", "--skipApiVersionCheck"]
    with open(log, "wb") as output:
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        process = subprocess.Popen([*command, *place], stdout=output, stderr=output)
    try:
        until = time.monotonic() + _START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"azurite ended with {process.returncode}: {log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"azurite did not answer within {_START_S} s"
            time.sleep(0.1)
        yield AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
    finally:
        process.kill()
        process.wait()
