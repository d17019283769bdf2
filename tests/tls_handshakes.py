"""A certificate of a broker and two of a client, each its own authority, for a hundred years, with the one key of all.

Of no use but to tests: made once, as what makes them (OpenSSL, Java's keytool) takes a process.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg0Okf5ipBsB06V9AA
JJsYPrCmv7i15hiHzdnaKMIlYFShRANCAATo2H2EjrvbQ10wjuVItoeV7dWMnb5/
cPe1dQVSE4JgrIB8lEJcWuMa1IzYASdTjW7df1iiLk/U/+y1lemmtwg0
-----END PRIVATE KEY-----
"""

BROKER = """\
-----BEGIN CERTIFICATE-----
MIIBjzCCATagAwIBAgIUQWpv5v9d29ZpsAuw8gk+dKuwK4IwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyNjIxMDc0MloYDzIxMjYxMTAy
MjEwNzQyWjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATo2H2EjrvbQ10wjuVItoeV7dWMnb5/cPe1dQVSE4JgrIB8lEJcWuMa
1IzYASdTjW7df1iiLk/U/+y1lemmtwg0o2QwYjAdBgNVHQ4EFgQUdSnW+31TPRiQ
Rd7LdFY1h101OcIwHwYDVR0jBBgwFoAUdSnW+31TPRiQRd7LdFY1h101OcIwDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0cAMEQC
IG5aF2GTHYQQiNjnq6/xY9PHShSjFWjegRBTBd8fLb60AiBnoLMi42D/xJuI6uCx
rMsR1C3LA/GnTC9vpLLry6atNg==
-----END CERTIFICATE-----
"""

FIRST = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIUQZ0yWucVC5GSGfMcKO6k9MUc3zgwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFZmlyc3QwIBcNMjYxMTI2MjEwNzQyWhgPMjEyNjExMDIyMTA3
NDJaMBAxDjAMBgNVBAMMBWZpcnN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
6Nh9hI6720NdMI7lSLaHle3VjJ2+f3D3tXUFUhOCYKyAfJRCXFrjGtSM2AEnU41u
3X9Yoi5P1P/stZXpprcINKNTMFEwHQYDVR0OBBYEFHUp1vt9Uz0YkEXey3RWNYdd
NTnCMB8GA1UdIwQYMBaAFHUp1vt9Uz0YkEXey3RWNYddNTnCMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgL0L0SPUQThlTJoBPA/sm5m1DKKjICUD7
ieEMCUcEjk8CIFAp38PovNqJKONHjC2svP0nHo8oRkNsTjPtp/v3Mocx
-----END CERTIFICATE-----
"""

SECOND = """\
-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUBb/jpk7LS24Gj2otVXbBz40nz1kwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGc2Vjb25kMCAXDTI2MTEyNjIxMDc0MloYDzIxMjYxMTAyMjEw
NzQyWjARMQ8wDQYDVQQDDAZzZWNvbmQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATo2H2EjrvbQ10wjuVItoeV7dWMnb5/cPe1dQVSE4JgrIB8lEJcWuMa1IzYASdT
jW7df1iiLk/U/+y1lemmtwg0o1MwUTAdBgNVHQ4EFgQUdSnW+31TPRiQRd7LdFY1
h101OcIwHwYDVR0jBBgwFoAUdSnW+31TPRiQRd7LdFY1h101OcIwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBTOwU53cMdD7W7rx6ERSDrKNg6ojRp
1G8nh5nl6JyhIwIhAKKhFdApVkqz3IGcHOxAmcVuylrpdIryRfxZwk7JDK24
-----END CERTIFICATE-----
"""


class Handshakes:
    """Who listens for clients with certificates, says nothing to them, and knows whose certificates they showed."""

    def __init__(self, folder: Path) -> None:
        for name, text in (("key.pem", KEY), ("broker.pem", BROKER), ("clients.pem", FIRST + SECOND)):
            (folder / name).write_text(text)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "broker.pem", folder / "key.pem")
        self._context.load_verify_locations(folder / "clients.pem")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._shown = {"first": threading.Event(), "second": threading.Event()}
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait_for(self, name: str) -> None:
        """Until a client shows the certificate of this name, once more."""
        assert self._shown[name].wait(60), f"no client has shown the certificate of {name}"
        self._shown[name].clear()

    def close(self) -> None:
        """Nobody is answered any more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            client.settimeout(5)  # of a client that was dropped in the middle
            with suppress(OSError), self._context.wrap_socket(client, server_side=True) as connected:
                shown: Any = connected.getpeercert()
                self._shown[dict(pair for names in shown["subject"] for pair in names)["commonName"]].set()
