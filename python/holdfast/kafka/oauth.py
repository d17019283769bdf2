"""Tokens for OAUTHBEARER, as librdkafka makes or fetches them from the same options, for the client that ends
transactions: unsecured ones (RFC 7515, for tests) and OpenID Connect's client credentials (RFC 6749, 4.4).

`token` is called in that client's I/O thread, at each login. A fetched token is kept until four fifths of its life are
over. The client's secret goes to the token endpoint and nowhere else: no redirect is followed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidRequest
from holdfast.kafka.renewed import Renewed

_FETCH_WITHIN_S = 5.0
_ANSWER_BYTES_MAX = 1 << 20
_LIFE_S = 3600
_CLIENT_CREDENTIALS = "client_credentials"
_PAIR = re.compile(r"(?<!\S)(\w+)=(\S*)")
_TRUE = ("true", "t", "1", "yes")


class TokenRefused(Exception):
    """The token endpoint refuses the client: asking again would not help."""


class UnsecuredTokens:
    """Tokens without a signature, by ``sasl.oauthbearer.config`` in librdkafka's words."""

    def __init__(self, config: Mapping[str, str], clock: Clock | None = None) -> None:
        text = config.get("sasl.oauthbearer.config", "")
        given = dict(_PAIR.findall(text))
        given.update(dict.fromkeys(_PAIR.sub("", text).split(), ""))  # words that are no pair: refused below
        self._clock = clock or SystemClock()
        self._principal_claim = given.pop("principalClaimName", "sub")
        self._scope_claim = given.pop("scopeClaimName", "scope")
        self._scopes = [one for one in given.pop("scope", "").split(",") if one]
        self._principal = given.pop("principal", "")
        self._life_s = _number(given.pop("lifeSeconds", str(_LIFE_S)))
        self.extensions = {
            name.removeprefix("extension_"): given.pop(name) for name in list(given) if name.startswith("extension_")
        }
        if not self._principal or given or not self._life_s:
            raise InvalidRequest(
                "kafka.sasl.oauthbearer.config: expected principal=… and, if need be, principalClaimName,"
                " scopeClaimName, scope, lifeSeconds and extension_<name>, as librdkafka takes them; found"
                f" {'others: ' + ', '.join(sorted(given)) if given else 'no principal, or no lifeSeconds above 0'}"
            )

    def token(self) -> str:
        """A new one."""
        now_s = self._clock.now_ms() / 1000
        claims: dict[str, Any] = {self._principal_claim: self._principal, "iat": now_s, "exp": now_s + self._life_s}
        if self._scopes:
            claims[self._scope_claim] = self._scopes
        return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


class FetchedTokens:
    """Tokens of an identity provider, by ``sasl.oauthbearer.method=oidc``."""

    def __init__(self, config: Mapping[str, str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._url = config.get("sasl.oauthbearer.token.endpoint.url", "")
        self._client_id = _either(config, "client.id")
        self._secret = _either(config, "client.secret")
        self._scope = config.get("sasl.oauthbearer.scope", "")
        self.extensions = dict(_PAIR.findall(config.get("sasl.oauthbearer.extensions", "").replace(",", " ")))
        grant = config.get("sasl.oauthbearer.grant.type", _CLIENT_CREDENTIALS)
        metadata = config.get("sasl.oauthbearer.metadata.authentication.type", "none")
        if grant != _CLIENT_CREDENTIALS or metadata != "none":
            raise InvalidRequest(
                "kafka.sasl.oauthbearer.method=oidc: exactly-once output ends its transactions by a client that knows"
                f" the grant {_CLIENT_CREDENTIALS} only; found grant.type={grant},"
                f" metadata.authentication.type={metadata}. Use client.id and client.secret, another mechanism, or"
                " mode='at-least-once'"
            )
        if urlsplit(self._url).scheme not in ("http", "https") or not self._client_id or not self._secret:
            raise InvalidRequest(
                "kafka.sasl.oauthbearer.method=oidc needs kafka.sasl.oauthbearer.token.endpoint.url (http or https),"
                " kafka.sasl.oauthbearer.client.id and kafka.sasl.oauthbearer.client.secret"
            )
        self._opener = Renewed(config, lambda: _opener(self._url, config))
        self._kept: tuple[str, float] = ("", -1.0)

    def token(self) -> str:
        """The one at hand, or the next.

        Raises
        ------
        TokenRefused
            The endpoint does not take the client's id and secret.
        OSError
            It does not answer, or not with a token.
        """
        kept, until_ms = self._kept
        now_ms = self._clock.elapsed_ms()
        if now_ms < until_ms:
            return kept
        answer = self._fetch()
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise OSError(
                f"{self._url} answered without an access_token: found {', '.join(sorted(answer)) or 'nothing'}"
            )
        self._kept = token, now_ms + 800 * max(0.0, self._life_s(token, answer))
        return token

    def _fetch(self) -> dict[str, Any]:
        login = base64.b64encode(f"{self._client_id}:{self._secret}".encode()).decode()
        form = {"grant_type": _CLIENT_CREDENTIALS, **({"scope": self._scope} if self._scope else {})}
        request = urllib.request.Request(
            self._url,
            urlencode(form).encode(),
            {"Authorization": f"Basic {login}", "Accept": "application/json"},
            method="POST",
        )
        try:
            with self._opener.now().open(request, timeout=_FETCH_WITHIN_S) as answer:
                found = json.loads(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            if error.code in (400, 401, 403):
                raise TokenRefused(f"{self._url} refuses the client {self._client_id}: HTTP {error.code}") from None
            raise OSError(f"{self._url} answered with HTTP {error.code}") from None
        except ValueError:
            raise OSError(f"{self._url} answered with something that is no JSON") from None
        if not isinstance(found, dict):
            raise OSError(f"{self._url} answered with something that is no JSON object")
        return found

    def _life_s(self, token: str, answer: Mapping[str, Any]) -> float:
        """By the token itself, else by what the endpoint says of it; 0 where neither tells: then it is used once."""
        try:
            claims = token.split(".")[1]
            payload = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
            return float(payload["exp"]) - self._clock.now_ms() / 1000
        except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
            given = answer.get("expires_in")
            return float(given) if isinstance(given, (int, float)) else 0.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client's secret to whoever it names."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def tokens_of(config: Mapping[str, str]) -> UnsecuredTokens | FetchedTokens:
    """Where the tokens of a configuration come from.

    Raises
    ------
    InvalidRequest
        Only a callback, which options cannot hold, would give them; or something is missing.
    """
    if config.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        return FetchedTokens(config)
    if config.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() in _TRUE:
        return UnsecuredTokens(config)
    raise InvalidRequest(
        "kafka.sasl.mechanism=OAUTHBEARER needs a source of tokens: kafka.sasl.oauthbearer.method=oidc with"
        " kafka.sasl.oauthbearer.token.endpoint.url, client.id and client.secret; or, for tests,"
        " kafka.enable.sasl.oauthbearer.unsecure.jwt=true with kafka.sasl.oauthbearer.config"
    )


def _opener(url: str, config: Mapping[str, str]) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_trust(config)))
    return urllib.request.build_opener(*handlers)


def _trust(config: Mapping[str, str]) -> ssl.SSLContext:
    location, pem = config.get("https.ca.location"), config.get("https.ca.pem")
    try:
        if location and location != "probe":
            return ssl.create_default_context(cafile=location)
        return ssl.create_default_context(cadata=pem or None)
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"kafka.https.ca.* cannot be used: {error}. Expected certificates as PEM that this process can read"
        ) from None


def _either(config: Mapping[str, str], name: str) -> str:
    return config.get(f"sasl.oauthbearer.{name}") or config.get(f"sasl.oauthbearer.client.credentials.{name}") or ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _base64url(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
