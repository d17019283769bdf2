"""The one door to confluent-kafka: imported when first needed, with a clear error when it is missing.

A client that librdkafka destroys waits for its threads to end, and a forked child has none of its parent's: it would
wait for ever, at the latest when it ends. So in a child the parent's clients are never destroyed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client_config import is_secret, without_secrets
from holdfast.kafka.renewed import Renewed, once_usable

#: How long one question of an admin client may take, as Java's does, before it is asked again: a broker that hangs
#: keeps it for so long, and others may lead what it led long before that.
QUESTION_MS = 30_000
_LEARN_WITHIN_S = 5.0
_PASSING = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_CONTROLLER",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
)
_AFTER = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)$")
_KEPT = 32
_lock = threading.Lock()
# All clients of this process that are alive.
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


class ConnectionErrors:
    """What a client tells of its connections, by ``error_cb``: why a question is not answered. The question itself ends
    with a time limit, whatever the reason. Called by the thread that polls; several may ask one client, so each goes
    by what was said since it asked.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._said: deque[tuple[int, str, bool]] = deque(maxlen=_KEPT)  # number, text, that all brokers are down
        self.count = 0

    def add(self, error: Any) -> str:
        """The error, for a log."""
        text = without_secrets(error.str(), self._config)
        self.count += 1
        self._said.append((self.count, text, error.code() == error._ALL_BROKERS_DOWN))
        return text

    def last_in_words(self, since: int = 0) -> str:
        """For errors, after what was asked: the last that came after so many; empty where there was none. That all
        brokers are down says of none why, and of one refused connection librdkafka may tell twice: with the reason's
        remedy and, when it closes, without.
        """
        last = ""
        for number, text, all_down in self._said.copy():
            if number > since and not (last and (all_down or _reason(text) in _reason(last))):
                last = text
        return f". The client's last word on its connections: {last}" if last else ""


def _reason(text: str) -> str:
    """Of what librdkafka says of a connection, without whose it is and how long it took."""
    return _AFTER.sub("", text.partition(": ")[2] or text)


_Key = tuple[int, tuple[tuple[str, str], ...]]
_admin_clients: dict[_Key, tuple[Renewed[Any], ConnectionErrors]] = {}
# Process, when, and the client: of files that have been renewed since.
_retired: list[tuple[int, float, Any]] = []
# Longer than any question.
_RETIRED_FOR_MS = 600_000.0

logger = logging.getLogger("holdfast.kafka")

# Properties of consumers and producers that librdkafka would warn about in an admin client.
_NOT_ADMIN = (
    "acks",
    "auto.",
    "batch.",
    "check.crcs",
    "compression.",
    "consume.",
    "coordinator.",
    "delivery.",
    "enable.auto",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "linger.ms",
    "max.partition.fetch",
    "max.poll",
    "message.timeout",
    "partition.assignment",
    "partitioner",
    "queue.buffering",
    "queued.",
    "request.required.acks",
    "session.timeout",
    "sticky.partitioning",
    "transaction",
)


def confluent_kafka() -> ModuleType:
    """The package; `Unavailable` says how to install it."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise Unavailable(
            f"Kafka sources and sinks need the package confluent-kafka ({error})."
            " Install it on the driver and on all executors: pip install 'holdfast-spark[kafka]'"
        ) from error
    return confluent_kafka


def open_client(kind: type, config: Mapping[str, Any]) -> Any:
    """A client of librdkafka.

    Parameters
    ----------
    kind
        ``Producer``, ``Consumer`` or ``AdminClient``.

    Raises
    ------
    InvalidRequest
        It does not take the configuration.
    """
    try:
        client = _with_weak_references(kind)(dict(config), logger=logger)
    except (confluent_kafka().KafkaException, ValueError, TypeError) as error:
        raise _refused(error, {name: value for name, value in config.items() if isinstance(value, str)}) from None
    _clients.add(client)
    return client


@cache
def _with_weak_references(kind: type) -> type:
    return type(kind.__name__, (kind,), {})


def _leave_to_parent() -> None:
    """After a fork, in the child: one reference too many, so that nobody drops the last."""
    for client in _clients:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    _clients.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def admin_client(config: Mapping[str, str], clock: Clock | None = None) -> Any:
    """This process's admin client for a cluster, made at the first call, and anew when its certificates have been
    renewed. So it is asked for with each question, and kept by nobody.

    Its answers come in a thread of librdkafka's. Were the last reference to a client dropped there,
    by a callback or by the garbage collector, librdkafka would abort the whole process. So it lives as long as the
    process, or, after a renewal, until all its answers have come: then it goes here, in a thread of ours.
    """
    key, now_ms = _key(config), (clock or SystemClock()).elapsed_ms()
    if key not in _admin_clients:
        errors = ConnectionErrors(config)
        # Those of other clusters do not wait for it. Of two threads that make it one is used, the other's goes at once.
        first = once_usable(config, lambda: Renewed(config, lambda: _made(config, errors)))
        with _lock:
            _admin_clients.setdefault(key, (first, errors))
        del first
    with _lock:
        renewed = _admin_clients[key][0]
        before, client = renewed.made, renewed.now()
        if client is not before:
            _retired.append((key[0], now_ms, before))
        del before
        # Those of a process that forked this one are its own.
        leave = [one for one in _retired if one[0] == key[0] and now_ms >= one[1] + _RETIRED_FOR_MS]
        _retired[:] = [one for one in _retired if one not in leave]
    leave.clear()
    return client


def _made(config: Mapping[str, str], errors: ConnectionErrors) -> Any:
    def said(error: Any) -> None:
        logger.warning("Kafka at %s: %s", config["bootstrap.servers"], errors.add(error))

    return open_client(confluent_kafka().admin.AdminClient, {**dict(_key(config)[1]), "error_cb": said})


def heard(config: Mapping[str, str]) -> int:
    """Let this process's admin client say what it has to say, to the log: until it is listened to it keeps it all, in
    memory. Before and after each question. How much it has said of its connections so far.
    """
    renewed, errors = _admin_clients.get(_key(config), (None, None))
    if renewed is None or errors is None:
        return 0
    renewed.made.poll(0)
    return errors.count


def why_silent(config: Mapping[str, str], since: int) -> str:
    """Why a question was not answered, to be put after it; empty where the client does not say. ``since``: what was
    heard before it.
    """
    heard(config)
    _, errors = _admin_clients.get(_key(config), (None, None))
    return errors.last_in_words(since) if errors is not None else ""


def _key(config: Mapping[str, str]) -> _Key:
    taken = {name: value for name, value in config.items() if not name.startswith(_NOT_ADMIN)}
    return os.getpid(), tuple(sorted(taken.items()))


def question_ms(config: Mapping[str, str]) -> int:
    """The time limit of one question: the user's for one request, where it is given."""
    return int(config.get("socket.timeout.ms", QUESTION_MS))


def passes(error: Any) -> bool:
    """Whether an error is one that goes by itself while brokers come and go, as Kafka's protocol says, or as long as
    nobody can be reached. librdkafka knows that of producers' errors only.
    """
    codes = confluent_kafka().KafkaError
    return bool(error.retriable()) or error.code() in {getattr(codes, name) for name in _PASSING}


def learn_brokers(admin: Any) -> None:
    """Who is there now, after a question that nobody answered. Topics are described by the broker that the last answer
    named as the controller, and with KRaft that is any: a client that was told of one that hangs waits for it alone.
    """
    with suppress(confluent_kafka().KafkaException):
        admin.list_topics(timeout=_LEARN_WITHIN_S)


def _refused(error: Exception, config: Mapping[str, str]) -> InvalidRequest:
    """What to raise when librdkafka does not take a configuration. Values of secrets are never in it."""
    text = without_secrets(str(error), config)
    names = ", ".join(sorted(f"kafka.{name}" + (" (secret)" if is_secret(name) else "") for name in config))
    return InvalidRequest(
        f"The Kafka client refused its configuration: {text}. The options kafka.* are passed to librdkafka, under its"
        f" names (CONFIGURATION.md in librdkafka); given were {names}"
    )
