"""librdkafka's configuration said again for kafka-python: the same addresses, TLS and SASL, from the same options."""

from __future__ import annotations

import importlib.util
import ssl
import tempfile
from collections.abc import Mapping
from typing import Any

from holdfast.errors import InvalidRequest
from holdfast.kafka.oauth import tokens_of
from holdfast.kafka.security import check_security

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_OFF = ("false", "f", "0", "no")


def wire_config(config: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments of kafka-python's connections.

    Raises
    ------
    InvalidRequest
        Security that only librdkafka knows; the message has what can be used instead. Never a secret's value.
    """
    protocol = config.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidRequest(f"kafka.security.protocol={protocol!r}: expected one of {', '.join(_PROTOCOLS)}")
    check_security(config)
    made: dict[str, Any] = {
        "bootstrap_servers": [address.strip() for address in config["bootstrap.servers"].split(",") if address.strip()],
        "client_id": config.get("client.id", "holdfast"),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        made["ssl_context"] = tls_context(config)
    if protocol.startswith("SASL"):
        made.update(_login(config))
    return made


def _login(config: Mapping[str, str]) -> dict[str, Any]:
    mechanism = (config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in _LOGINS:
        raise InvalidRequest(
            f"kafka.sasl.mechanism={mechanism}: exactly-once output ends its transactions by a client that knows"
            f" {', '.join(_LOGINS)}. Use one of these, TLS client certificates, or mode='at-least-once'"
        )
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": tokens_of(config)}
    if mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            raise InvalidRequest(
                "kafka.sasl.mechanism=GSSAPI: exactly-once output ends its transactions by a second client, which needs"
                " the package gssapi. Install it on the driver and on all executors, use another mechanism, or"
                " mode='at-least-once'"
            )
        return {
            "sasl_mechanism": mechanism,
            "sasl_kerberos_service_name": config.get("sasl.kerberos.service.name", "kafka"),
        }
    missing = [name for name in ("sasl.username", "sasl.password") if not config.get(name)]
    if missing:
        raise InvalidRequest(f"kafka.sasl.mechanism={mechanism} needs kafka.{missing[0]}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
    }


def tls_context(config: Mapping[str, str]) -> ssl.SSLContext:
    """What the files of a configuration say now; `InvalidRequest` where they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    if config.get("enable.ssl.certificate.verification", "true").lower() in _OFF:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        _trust(context, config)
        _own_certificate(context, config)
        if config.get("ssl.cipher.suites"):
            context.set_ciphers(config["ssl.cipher.suites"])
        if config.get("ssl.crl.location"):
            context.load_verify_locations(cafile=config["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"The options kafka.ssl.* cannot be used: {error}. Expected PEM files that this process can read"
        ) from None
    return context


def _trust(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    location, pem = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    if pem:
        context.load_verify_locations(cadata=pem)
    elif location and location != "probe":
        try:
            context.load_verify_locations(cafile=location)
        except IsADirectoryError:
            context.load_verify_locations(capath=location)
    else:
        context.load_default_certs()


def _own_certificate(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    password = config.get("ssl.key.password") or None
    if config.get("ssl.certificate.pem"):
        # Python takes certificates from files only: one that nobody else can read, and that is gone at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
            both.write(config.get("ssl.key.pem", "") + "\n" + config["ssl.certificate.pem"])
            both.flush()
            context.load_cert_chain(both.name, password=password)
    elif config.get("ssl.certificate.location"):
        context.load_cert_chain(config["ssl.certificate.location"], config.get("ssl.key.location"), password)
