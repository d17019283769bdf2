"""Consumers for the tests of the source, and a broker with TLS and logins; the plain one is in tests/conftest.py."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.testing import KafkaBroker

if TYPE_CHECKING:
    from holdfast.source.kafka.consumers import ConsumerPool


PASSWORD = "correct-horse-battery"
STORE_PASSWORD = "keystore-password"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(autouse=True)
def _clients_that_were_dropped_are_gone() -> Iterator[None]:
    """A client has a dozen file descriptors, and those of hundreds of tests are too many for py4j's select()."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a broker's key store and its certificate, made by Java's own keytool."""
    folder = tmp_path_factory.mktemp("tls")
    keytool = shutil.which("keytool") or str(Path(os.environ.get("JAVA_HOME", "/usr"), "bin", "keytool"))
    store = ["-keystore", str(folder / "broker.p12"), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    made = [*store, "-storetype", "PKCS12", "-keyalg", "RSA", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
    subprocess.run([keytool, "-genkeypair", *made], check=True, capture_output=True)
    exported = [*store, "-rfc", "-file", str(folder / "broker.pem")]
    subprocess.run([keytool, "-exportcert", *exported], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def secure(certificate: Path) -> Iterator[KafkaBroker]:
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="{PASSWORD}";'
    token = f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.login.oauthbearer.sasl.jaas.config": token,
        "listener.name.both.oauthbearer.sasl.jaas.config": token,
        "listener.name.login.plain.sasl.jaas.config": plain,
        "listener.name.both.plain.sasl.jaas.config": plain,
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.both.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "ssl.keystore.location": str(certificate / "broker.p12"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
    }
    listeners = {"LOGIN": "SASL_PLAINTEXT", "TLS": "SSL", "BOTH": "SASL_SSL"}
    with KafkaBroker(settings=settings, listeners=listeners) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ConsumerPool]:
    from holdfast.source.kafka.consumers import ConsumerPool

    consumers = ConsumerPool()
    yield consumers
    consumers.clear()
