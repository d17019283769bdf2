"""Security options for the client that ends transactions: none is ignored; tokens are made as librdkafka makes them."""

from __future__ import annotations

import base64
import ctypes
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import confluent_kafka
import pytest

from holdfast.errors import InvalidRequest
from holdfast.kafka.client_config import is_secret, without_secrets
from holdfast.kafka.oauth import FetchedTokens, TokenRefused, UnsecuredTokens, tokens_of
from holdfast.kafka.security import IS_SECURITY, SECURITY, Carried, check_security
from holdfast.kafka.wire_config import wire_config

SECRET = "correct-horse-battery"


def known_to_librdkafka(folder: Path) -> dict[str, str]:
    """Its own table of properties (CONFIGURATION.md), as the installed library prints it: name and type."""
    [library] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    printed = folder / "properties.md"
    c, rdkafka = ctypes.CDLL(None), ctypes.CDLL(str(library))
    c.fopen.restype = ctypes.c_void_p
    c.fclose.argtypes = rdkafka.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = c.fopen(str(printed).encode(), b"w")
    rdkafka.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    rows = re.findall(r"^([\w.]+) +\|.*\*Type: ([^*]+)\*$", printed.read_text(), re.MULTILINE)
    return dict(rows)


def test_every_security_property_that_librdkafka_knows_is_in_the_table(tmp_path: Path) -> None:
    known = known_to_librdkafka(tmp_path)
    assert len(known) > 100
    security = {name for name, kind in known.items() if IS_SECURITY.match(name)}
    assert "sasl.kerberos.keytab" in security
    assert security - SECURITY.keys() == set(), "say what becomes of them in holdfast.kafka.security"
    left = {name for name in known if re.search(r"sasl|ssl|oauth|https|kerberos", name)} - security
    assert {known[name] for name in left} <= {"see dedicated API"}, f"options could hold {left}"


def test_every_secret_is_known_as_one() -> None:
    secrets = {
        name for name in SECURITY if re.search(r"password|passphrase|secret|private\.key\.pem|ssl\.key\.pem", name)
    }
    assert len(secrets) >= 8
    for name in secrets:
        assert is_secret(name), name
        assert SECRET not in without_secrets(f"refused {SECRET}", {name: SECRET})


@pytest.mark.parametrize("name", [name for name, carried in SECURITY.items() if isinstance(carried, str)])
def test_what_that_client_cannot_do_is_refused_with_what_it_can(name: str) -> None:
    with pytest.raises(
        InvalidRequest, match=rf"kafka\.{re.escape(name)}: exactly-once output ends .*at-least-once"
    ) as it:
        check_security({name: SECRET})
    assert SECRET not in str(it.value)


def test_a_property_that_librdkafka_may_have_one_day_is_not_ignored() -> None:
    with pytest.raises(InvalidRequest, match="kafka.ssl.quantum.only: .* it is not known what"):
        check_security({"ssl.quantum.only": "true"})
    check_security({name: "x" for name, carried in SECURITY.items() if carried is Carried.WITHOUT_MEANING})


def test_kerberos_takes_the_ticket_cache_or_nothing() -> None:
    for runs_nothing in ("", "true", ":"):
        check_security({"sasl.kerberos.kinit.cmd": runs_nothing, "sasl.kerberos.service.name": "kafka"})
    with pytest.raises(InvalidRequest, match="ticket cache"):
        check_security({"sasl.kerberos.kinit.cmd": "kinit -kt me.keytab me"})
    login = {"bootstrap.servers": "a:1", "security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"}
    with pytest.raises(InvalidRequest, match="needs the package gssapi"):
        wire_config(login)


# --- tokens -------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000.0

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms


def part_of(token: str, number: int) -> dict[str, Any]:
    text = token.split(".")[number]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def test_an_unsecured_token_is_what_its_config_says() -> None:
    given = "principalClaimName=azp principal=me scopeClaimName=roles scope=a,b lifeSeconds=60 extension_traceId=7"
    tokens = UnsecuredTokens({"sasl.oauthbearer.config": given}, Clock())
    token = tokens.token()
    assert (part_of(token, 0), token.split(".")[2]) == ({"alg": "none"}, "")
    claims = part_of(token, 1)
    assert (claims["azp"], claims["roles"], claims["exp"] - claims["iat"]) == ("me", ["a", "b"], 60)
    assert tokens.extensions == {"traceId": "7"}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "scope=a",
        "principal=me lifeSeconds=0",
        "principal=me lifeSeconds=x",
        "principal=me other=1",
        "principal=me junk",
    ],
)
def test_an_unsecured_token_that_makes_no_sense_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match=r"sasl.oauthbearer.config: expected principal"):
        UnsecuredTokens({"sasl.oauthbearer.config": given})


class Provider(BaseHTTPRequestHandler):
    """An identity provider that takes one client and counts its tokens."""

    status, answer, location = 200, b"", ""
    asked: list[tuple[str, dict[str, list[str]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).asked.append((self.headers["Authorization"], parse_qs(body)))
        self.send_response(self.status)
        if self.location:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[type[Provider]]:
    made = type("OneProvider", (Provider,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), made)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # how often it looks for its end
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/token"  # type: ignore[attr-defined]
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def oidc(provider: Any, **more: str) -> dict[str, str]:
    given = {"method": "oidc", "client.id": "me", "client.secret": SECRET, "token.endpoint.url": provider.url, **more}
    return {f"sasl.oauthbearer.{name}": value for name, value in given.items()}


def test_a_token_is_fetched_and_kept_for_most_of_its_life(provider: Any) -> None:
    clock = Clock()
    provider.answer = json.dumps({"access_token": "opaque", "expires_in": 100}).encode()
    tokens = FetchedTokens(oidc(provider, scope="kafka", extensions="a=1,b=2"), clock)
    assert [tokens.token() for _ in range(3)] == ["opaque"] * 3
    assert tokens.extensions == {"a": "1", "b": "2"}
    login, form = provider.asked[0]
    assert base64.b64decode(login.removeprefix("Basic ")).decode() == f"me:{SECRET}"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert len(provider.asked) == 1
    clock.ms += 81_000
    tokens.token()
    assert len(provider.asked) == 2


def test_the_life_of_a_token_is_what_the_token_says(provider: Any) -> None:
    clock = Clock()
    signed = UnsecuredTokens({"sasl.oauthbearer.config": "principal=me lifeSeconds=10"}, clock).token() + "signature"
    provider.answer = json.dumps({"access_token": signed, "expires_in": 1_000_000}).encode()
    tokens = FetchedTokens(oidc(provider), clock)
    tokens.token()
    clock.ms += 9_000
    tokens.token()
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, b"{}", TokenRefused),
        (400, b"{}", TokenRefused),
        (503, b"", OSError),
        (200, b"no json", OSError),
        (200, b"[]", OSError),
        (200, b"{}", OSError),
        (200, b'{"access_token": 7}', OSError),
    ],
)
def test_an_answer_without_a_token_is_an_error_without_the_secret(
    provider: Any, status: int, answer: bytes, error: type[Exception]
) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(error) as raised:
        FetchedTokens(oidc(provider)).token()
    assert SECRET not in str(raised.value)
    assert provider.url in str(raised.value)


def test_the_secret_does_not_follow_a_redirect(provider: Any) -> None:
    provider.status, provider.location = 302, provider.url + "/elsewhere"
    with pytest.raises(OSError, match="HTTP 302"):
        FetchedTokens(oidc(provider)).token()
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "knows the grant client_credentials only"),
        ({"metadata.authentication.type": "azure_imds"}, "metadata.authentication.type=azure_imds"),
        ({"token.endpoint.url": "file:///etc/passwd"}, "needs kafka.sasl.oauthbearer.token.endpoint.url"),
        ({"client.secret": ""}, "needs kafka.sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_what_is_missing_or_not_known_is_refused_at_start(provider: Any, more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tokens_of(oidc(provider, **more))
