"""Every security property of librdkafka, and what becomes of it where a second client ends transactions: it is carried
over, or refused with what to use instead, or without meaning there. None is ignored: one that this table does not have
is refused. A test holds it against what the installed librdkafka knows.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from holdfast.errors import InvalidRequest


class Carried(enum.Enum):
    """What the second client makes of a property."""

    OVER = "the same there"
    WITHOUT_MEANING = "nothing there"


_OVER, _NOTHING = Carried.OVER, Carried.WITHOUT_MEANING
_PEM = "that client reads PEM only: use kafka.ssl.certificate.location and kafka.ssl.key.location"
_LIBRARY = "that client uses OpenSSL as Python has it: leave it to the machine's openssl.cnf"
_TICKETS = (
    "that client takes Kerberos tickets from the ticket cache. Keep one fresh by other means (k5start -f KEYTAB, or"
    " kinit by cron) on the driver and on all executors, and set kafka.sasl.kerberos.kinit.cmd=true, so that librdkafka"
    " takes it as it is"
)
_ASSERTION = (
    "that client knows the grant client_credentials only: use kafka.sasl.oauthbearer.client.id and .client.secret"
)

#: By librdkafka's names. A text: refused, for this reason.
SECURITY: dict[str, Carried | str] = {
    "security.protocol": _OVER,
    "ssl.ca.location": _OVER,
    "ssl.ca.pem": _OVER,
    "ssl.ca.certificate.stores": _NOTHING,  # Windows
    "ssl.certificate.location": _OVER,
    "ssl.certificate.pem": _OVER,
    "ssl.certificate.verify_cb": "options hold no function: use kafka.ssl.ca.location",
    "ssl.cipher.suites": _OVER,
    "ssl.crl.location": _OVER,
    "ssl.curves.list": _LIBRARY,
    "ssl.endpoint.identification.algorithm": _OVER,
    "ssl.engine.id": _LIBRARY,
    "ssl.engine.location": _LIBRARY,
    "ssl.key.location": _OVER,
    "ssl.key.password": _OVER,
    "ssl.key.pem": _OVER,
    "ssl.keystore.location": _PEM,
    "ssl.keystore.password": _PEM,
    "ssl.providers": _LIBRARY,
    "ssl.sigalgs.list": _LIBRARY,
    "enable.ssl.certificate.verification": _OVER,
    "https.ca.location": _OVER,
    "https.ca.pem": _OVER,
    "sasl.mechanism": _OVER,
    "sasl.mechanisms": _OVER,
    "sasl.username": _OVER,
    "sasl.password": _OVER,
    "sasl.kerberos.service.name": _OVER,
    "sasl.kerberos.keytab": _TICKETS,
    "sasl.kerberos.principal": _TICKETS,
    "sasl.kerberos.kinit.cmd": _OVER,  # only as "nothing is to be run", see check_security
    "sasl.kerberos.min.time.before.relogin": _NOTHING,  # how often librdkafka runs that command
    "sasl.oauthbearer.config": _OVER,
    "sasl.oauthbearer.method": _OVER,
    "sasl.oauthbearer.client.id": _OVER,
    "sasl.oauthbearer.client.secret": _OVER,
    "sasl.oauthbearer.client.credentials.client.id": _OVER,
    "sasl.oauthbearer.client.credentials.client.secret": _OVER,
    "sasl.oauthbearer.scope": _OVER,
    "sasl.oauthbearer.extensions": _OVER,
    "sasl.oauthbearer.token.endpoint.url": _OVER,
    "sasl.oauthbearer.grant.type": _OVER,
    "sasl.oauthbearer.metadata.authentication.type": _OVER,
    "sasl.oauthbearer.sub.claim.name": _NOTHING,  # what librdkafka calls itself in its own logs
    "sasl.oauthbearer.assertion.algorithm": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.aud": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.exp.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.iss": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.jti.include": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.sub": _ASSERTION,
    "sasl.oauthbearer.assertion.file": _ASSERTION,
    "sasl.oauthbearer.assertion.jwt.template.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.passphrase": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.pem": _ASSERTION,
    "enable.sasl.oauthbearer.unsecure.jwt": _OVER,
}
IS_SECURITY = re.compile(r"(?:sasl|ssl|security|https)\.|enable\.s(?:as|s)l\.")
_RUNS_NOTHING = ("", "true", ":")


def check_security(config: Mapping[str, str]) -> None:
    """Whether the second client would be as secure, and log in as the same user.

    Raises
    ------
    InvalidRequest
        A property that it cannot honour. Never a secret's value.
    """
    for name, value in config.items():
        if not IS_SECURITY.match(name):
            continue
        carried = SECURITY.get(name, "it is not known what that client should make of it")
        if name == "sasl.kerberos.kinit.cmd" and value.strip() not in _RUNS_NOTHING:
            carried = _TICKETS
        if isinstance(carried, str) and value:
            raise InvalidRequest(
                f"kafka.{name}: exactly-once output ends its transactions by a second client, and {carried}; or use"
                " mode='at-least-once' (docs/guide/security.md)"
            )
