"""``kafka.*`` options made into librdkafka's configuration; what is a secret and must never be shown.

librdkafka and Kafka's Java client share most names. Where they do not, the Java name that Spark's users know is
translated, or refused with the name that does the same here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.errors import InvalidRequest

_PREFIX = "kafka."

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "default.api.timeout.ms": "socket.timeout.ms",
    "request.timeout.ms": "socket.timeout.ms",
}
_JAVA_ONLY = {
    "ssl.truststore.location": "use kafka.ssl.ca.location with a PEM file",
    "ssl.truststore.password": "use kafka.ssl.ca.location with a PEM file",
    "ssl.keystore.type": "use kafka.ssl.certificate.location and kafka.ssl.key.location, or a PKCS#12 keystore",
    "sasl.login.callback.handler.class": "use kafka.sasl.oauthbearer.method=oidc and kafka.sasl.oauthbearer.*",
    "ssl.truststore.type": "use kafka.ssl.ca.location with a PEM file",
    "buffer.memory": "use kafka.queue.buffering.max.kbytes",
    "partitioner.class": "use kafka.partitioner; murmur2_random is the same as Java's default",
    "max.poll.records": "the source fetches in batches of its own; use maxOffsetsPerTrigger",
}
_SECRET = re.compile(r"password|passphrase|secret|jaas|token|oauthbearer\.config|key\.pem")
_JAAS = re.compile(r"""\b(username|password|tokenauth)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def client_config(texts: Mapping[str, str], reserved: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's configuration from the options, their names in lower case.

    Parameters
    ----------
    texts
        Options by name; only those that start with ``kafka.`` are looked at.
    reserved
        Properties that cannot be set, and why: those that the source, or the sink, decides itself.

    Raises
    ------
    InvalidRequest
        ``kafka.bootstrap.servers`` is missing, or a name is reserved, or known to Java's client only.
    """
    config: dict[str, str] = {}
    for option, value in sorted(texts.items()):
        if not option.startswith(_PREFIX):
            continue
        name = option.removeprefix(_PREFIX)
        if name in reserved:
            raise InvalidRequest(f"{option} cannot be set: {reserved[name]}")
        if name in _JAVA_ONLY:
            raise InvalidRequest(f"{option} is known to Kafka's Java client only: {_JAVA_ONLY[name]}")
        if name == "sasl.jaas.config":
            config.update(_from_jaas(value))
        else:
            config[_RENAMED.get(name, name)] = value
    if not config.get("bootstrap.servers"):
        raise InvalidRequest("Option kafka.bootstrap.servers is missing: expected host:port of one or more brokers")
    return config


def is_secret(name: str) -> bool:
    """Whether the value of a property must not be shown."""
    return _SECRET.search(name) is not None


def without_secrets(text: str, config: Mapping[str, str]) -> str:
    """A message of the client's, with any secret of its configuration blotted out."""
    secrets = {value for name, value in config.items() if value and is_secret(name)}
    for secret in sorted(secrets, key=len, reverse=True):  # of one with another in it nothing must be left
        text = text.replace(secret, "***")
    return text


def _from_jaas(text: str) -> dict[str, str]:
    """Name and password of a PLAIN or SCRAM login, which is all that librdkafka needs of Java's line. With a delegation
    token it would log in as if the token's id were a user of the brokers, and be refused.
    """
    found = {name: double or single or plain for name, double, single, plain in _JAAS.findall(text)}
    if found.pop("tokenauth", "").lower() == "true":
        raise InvalidRequest(
            "kafka.sasl.jaas.config has tokenauth=true: librdkafka knows no delegation tokens. Use a login with a name"
            " and password of its own (PLAIN or SCRAM), kafka.sasl.kerberos.* or kafka.sasl.oauthbearer.*"
        )
    if set(found) != {"username", "password"}:
        raise InvalidRequest(
            "kafka.sasl.jaas.config: expected a login with username and password (PLAIN or SCRAM). For others, use"
            " kafka.sasl.username, kafka.sasl.password, kafka.sasl.kerberos.* or kafka.sasl.oauthbearer.*"
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}
