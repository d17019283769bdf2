"""Kafka's protocol, request by request, where librdkafka has no call: requests to the coordinator of a transaction.

One `Wire` a cluster and thread, with an I/O thread of kafka-python's, so that a broker that hangs delays those queries
only that ask it. Any thread may call it, one at a time. Every request has a time limit. It keeps no state that matters:
after a failure of the network the next call starts with a new one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client_config import without_secrets
from holdfast.kafka.oauth import FetchedTokens, TokenRefused, UnsecuredTokens
from holdfast.kafka.renewed import Renewed, once_usable
from holdfast.kafka.requests import find_coordinator, metadata
from holdfast.kafka.wire_config import tls_context, wire_config

_REQUEST_MS = 10_000
_IN_FLIGHT_MAX = 256  # more are refused by the client itself
# Questions at once. The first failures are then told early, and the brokers are not flooded.
_SIDE_BY_SIDE = 64
_BACKOFF_MS = 20.0
_PAUSED_MS = 10.0
_BACKOFF_MAX_MS = 500.0

_lock = threading.Lock()
_wires: dict[tuple[int, threading.Thread, tuple[tuple[str, str], ...]], Wire] = {}

T = TypeVar("T")

# At level DEBUG kafka-python logs what it sends, the password of a login among it.
for _telltale in ("kafka.protocol.parser", "kafka.net.connection", "kafka.net.sasl.scram", "kafka.net.sasl.oauth"):
    logging.getLogger(_telltale).addFilter(lambda record: record.levelno >= logging.INFO)


class Retry(Exception):
    """The broker says: not now. Ask again, and where it says so, ask another one who the coordinator is."""

    def __init__(self, why: str, coordinator_moved: bool = False) -> None:
        super().__init__(why)
        self.coordinator_moved = coordinator_moved


#: Ids of brokers that know no topic ids yet, which say nothing; kafka-python makes the first of the second.
NO_TOPIC_ID = ("None", "00000000-0000-0000-0000-000000000000")


def are_two_topics(before: str, now: str) -> bool:
    """Whether two ids of one name, at two times, are of two topics: it was deleted and made again."""
    return before != now and before not in NO_TOPIC_ID and now not in NO_TOPIC_ID


class Wire:
    """Connections to one cluster.

    Parameters
    ----------
    config
        librdkafka's configuration.
    clock
        For time limits.
    """

    def __init__(self, config: Mapping[str, str], clock: Clock | None = None) -> None:
        self._config = dict(config)
        self._arguments = wire_config(config)
        self._tls = Renewed(config, lambda: tls_context(config)) if "ssl_context" in self._arguments else None
        if self._tls is not None:
            self._arguments["ssl_context"] = self._tls.made
        self._clock = clock or SystemClock()
        # One question at a time: who fails closes the connections, and nobody may wait for an answer over them then.
        self._lock = threading.RLock()
        self._net: Any = None
        self._manager: Any = None
        self._coordinators: dict[str, int] = {}

    @property
    def servers(self) -> str:
        """The brokers as the user named them."""
        return self._config["bootstrap.servers"]

    def call(self, what: str, within_ms: float, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask until there is an answer.

        Parameters
        ----------
        what
            For the error: ``Kafka at … did not <what>``.
        within_ms
            How long to go on asking.
        question
            Makes the coroutine to run in the I/O thread, for each attempt anew. It raises `Retry` to be asked again.

        Raises
        ------
        Unavailable
            No answer within the time, or the login is refused.
        """
        _, errors = kafka_python()
        deadline_ms = self._clock.elapsed_ms() + within_ms
        pause_ms = _BACKOFF_MS
        while True:
            try:
                with self._lock:
                    return self._ask(question, max(1.0, deadline_ms - self._clock.elapsed_ms()))
            except Retry as retry:
                why: Exception = retry
            except errors.IncompatibleBrokerVersion as error:
                raise InvalidRequest(
                    f"Kafka at {self.servers} is too old to {what}: {error}. 3.0 or later is"
                ) from None
            except (errors.KafkaError, OSError, RuntimeError) as error:
                why = error
                if isinstance(error, _refusals(errors)):
                    deadline_ms = 0.0
            if self._clock.elapsed_ms() + pause_ms >= deadline_ms:
                reason = without_secrets(str(why) or type(why).__name__, self._config)
                raise Unavailable(f"Kafka at {self.servers} did not {what} within {within_ms / 1000:g} s: {reason}")
            time.sleep(pause_ms / 1000)
            pause_ms = min(_BACKOFF_MAX_MS, pause_ms * 2)

    def _ask(self, question: Callable[[], Coroutine[Any, Any, T]], within_ms: float) -> T:
        """One attempt. What it cannot rely on any more when it fails, it forgets."""
        _, errors = kafka_python()
        try:
            answer: T = self._connected(within_ms).run(question)
            return answer
        except Retry as retry:
            if retry.coordinator_moved:
                self._coordinators.clear()
            raise
        except errors.NodeNotReadyError:
            self._coordinators.clear()
            raise
        except (errors.KafkaError, OSError, RuntimeError):
            # A connection that was lost, a broker that moved, a login that was refused: begin afresh.
            self._coordinators.clear()
            self.close()
            raise

    async def send(self, request: Any, node: int) -> Any:
        """One request to one broker; only inside of a question of ``call``."""
        await self._while(lambda: self._is_paused(node), f"broker {node}")
        return await self._live().send(request, node_id=node, request_timeout_ms=_REQUEST_MS)

    async def to_coordinator(self, transactional_id: str, request: Any) -> Any:
        """One request to the coordinator of a transactional id; only inside of a question of ``call``."""
        if transactional_id not in self._coordinators:
            await self.find_coordinator(transactional_id)
        return await self.send(request, self._coordinators[transactional_id])

    async def find_coordinator(self, transactional_id: str) -> None:
        """Learns which broker answers for a transactional id; only inside of a question."""
        answer = await self.send(find_coordinator(transactional_id), await self._any_broker())
        if answer.error_code:
            refuse(answer.error_code, f"transactional id {transactional_id}")
        await self.know(answer.node_id)
        self._coordinators[transactional_id] = int(answer.node_id)

    def coordinator_of(self, transactional_id: str) -> int:
        """The broker that was last found to answer for a transactional id; -1: none yet."""
        return self._coordinators.get(transactional_id, -1)

    async def brokers(self) -> list[int]:
        """Ids of all brokers; only inside of a question of ``call``."""
        manager = self._live()
        await manager.cluster.refresh_metadata(await self._any_broker())
        return [broker.node_id for broker in manager.cluster.brokers()]

    async def leaders(self, node: int, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The leader of each (topic, partition) by what a broker knows, -1: none; only inside of a question.

        Topics that do not exist are left out.
        """
        found = await self.leaders_of({topic for topic, _ in places}, node)
        return {place: found[place] for place in places if place in found}

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        """The same for all partitions of topics.

        Parameters
        ----------
        must_see
            A topic that this user may not describe is an error, and not left out as well.
        """
        answer = await self.send(metadata(topics), await self._any_broker() if node is None else node)
        for topic in answer.topics:
            if topic.error_code == _TOPIC_NOT_ALLOWED:
                if must_see:
                    refuse(topic.error_code, f"a description of topic {topic.name}")
            elif topic.error_code not in (0, _NO_SUCH_TOPIC):
                raise Retry(f"a broker describes topic {topic.name}: error {topic.error_code}")
        return {
            (topic.name, partition.partition_index): int(partition.leader_id)
            for topic in answer.topics
            for partition in topic.partitions
        }

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """By name, of topics that exist; only inside of a question. One that was made again has another id."""
        answer = await self.send(metadata(topics), await self._any_broker())
        return {topic.name: str(topic.topic_id) for topic in answer.topics if not topic.error_code}

    async def ping(self, node: int) -> None:
        """Whether a broker answers; only inside of a question."""
        await self.know(node)
        await self.send(metadata([]), node)

    async def gather(self, questions: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """The answers of all, or the exceptions of those that failed; asked side by side."""
        futures = [self._live().call_soon(question) for question in questions]
        answers = []
        for future in futures:
            try:
                answers.append(await future)
            except Exception as error:
                answers.append(error)
        return answers

    async def all_of(self, questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """All answers; the first failure, if there is one, when all have answered. Only inside of a question."""
        asked = list(questions)
        answers: list[Any] = []
        for start in range(0, len(asked), _SIDE_BY_SIDE):
            answers += await self.gather(asked[start : start + _SIDE_BY_SIDE])
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures:
            # A refusal for good says more than a broker that is busy.
            raise min(failures, key=lambda failure: isinstance(failure, Retry))
        return answers

    def version_of(self, request: Any) -> int:
        """The version of a kind of request that the brokers and the client both know."""
        return int(self._live().broker_version_data.api_version(request))

    def close(self) -> None:
        """Give back connections and thread; the next call connects again."""
        with self._lock:
            net, manager = self._net, self._manager
            self._net = self._manager = None
            if manager is not None:
                manager.call_soon(manager.close)
                net.stop(timeout_ms=1000)
                net.close()

    async def _any_broker(self) -> int:
        def all_are_paused() -> bool:
            manager = self._live()
            return manager.least_loaded_node() is None and any(
                self._is_paused(broker.node_id) for broker in manager.cluster.brokers()
            )

        await self._while(all_are_paused, "each broker that can be reached")
        node = self._live().least_loaded_node()
        if node is None:
            raise Retry("no broker can be reached")
        return int(node)

    def _is_paused(self, node: int) -> bool:
        """Whether requests to a broker are refused for now: its quota of them is used up, as it says with an answer, or
        too many are on their way. A connection that there is not, or not yet, is none that is paused.
        """
        try:
            return bool(self._live().get_connection(node).paused)
        except kafka_python()[1].NodeNotReadyError:
            return False

    async def _while(self, is_paused: Callable[[], bool], who: str) -> None:
        """For no longer than a request may take. Else each answer under a quota would be a question's last one: the
        client is paused before it gives the answer on.
        """
        deadline_ms = self._clock.elapsed_ms() + _REQUEST_MS
        while is_paused():
            if self._clock.elapsed_ms() >= deadline_ms:
                raise Retry(f"{who} takes no requests (is its quota for this user, request_percentage, used up?)")
            await self._pause(_PAUSED_MS)

    async def _pause(self, ms: float) -> None:
        await self._net.sleep(ms / 1000)

    async def know(self, node: int) -> None:
        """Learns a broker's address; only inside of a question."""
        if self._live().cluster.broker_metadata(node) is None:
            await self.brokers()
            if self._live().cluster.broker_metadata(node) is None:
                raise Retry(f"broker {node} has no address yet", coordinator_moved=True)

    def _live(self) -> Any:
        manager = self._manager
        if manager is None:
            raise Retry("the connection was closed, since another question failed")
        return manager

    def _connected(self, within_ms: float) -> Any:
        manager_type, _ = kafka_python()
        if self._tls is not None and self._tls.now() is not self._arguments["ssl_context"]:
            # Its connections would go on with certificates that may have ended by now, and say no more than that.
            self.close()
            self._arguments["ssl_context"] = self._tls.made
        if self._manager is None:
            from kafka.net.selector import NetworkSelector

            arguments = {
                "reconnect_backoff_ms": 20,
                "reconnect_backoff_max_ms": 500,
                "request_timeout_ms": _REQUEST_MS,
                "max_in_flight_requests_per_connection": _IN_FLIGHT_MAX,
                "receive_message_max_bytes": 100_000_000,
                **self._arguments,
            }
            if "sasl_oauth_token_provider" in arguments:
                arguments["sasl_oauth_token_provider"] = _token_provider(arguments["sasl_oauth_token_provider"])
            self._net = NetworkSelector(**arguments)
            self._manager = manager_type(self._net, **arguments)
            self._net.start()
        manager = self._manager
        if not manager.bootstrapped:
            manager.run(_greet, manager, within_ms)
            manager.bootstrap(min(within_ms, _REQUEST_MS), refresh=False)
        return manager


def wire_to(config: Mapping[str, str]) -> Wire:
    """The calling thread's connections to a cluster. Those of threads that have ended are given back."""
    key = (os.getpid(), threading.current_thread(), tuple(sorted(config.items())))
    with _lock:
        # A fork copies the dictionary, but neither the threads nor the right to close their connections.
        left = [other for other in _wires if other[0] == key[0] and not other[1].is_alive()]
        ended = [_wires.pop(other) for other in left]
        found = _wires.get(key)
    for wire in ended:
        wire.close()
    if found is None:
        found = once_usable(config, lambda: Wire(config))  # no other thread waits for it, nor makes it
        with _lock:
            _wires[key] = found
    return found


# Kafka's error codes, with what a caller can do about them.
_NO_SUCH_TOPIC, _TOPIC_NOT_ALLOWED = 3, 29
_MOVED = {14: "COORDINATOR_LOAD_IN_PROGRESS", 15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR"}
_BUSY = {
    7: "REQUEST_TIMED_OUT",
    13: "NETWORK_EXCEPTION",
    51: "CONCURRENT_TRANSACTIONS",
    56: "KAFKA_STORAGE_ERROR",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
_FORBIDDEN = {
    _TOPIC_NOT_ALLOWED: "TOPIC_AUTHORIZATION_FAILED: it needs WRITE and DESCRIBE on the topic",
    31: "CLUSTER_AUTHORIZATION_FAILED: it needs IDEMPOTENT_WRITE, or WRITE on its transactional ids",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: it needs WRITE and DESCRIBE on its transactional ids",
}


def refuse(code: int, what: str) -> None:
    """Raises for an error code that has no meaning of its own for the caller."""
    if code in _MOVED or code in _BUSY:
        raise Retry(f"{what}: {_MOVED.get(code) or _BUSY[code]}", coordinator_moved=code in _MOVED)
    if code in _FORBIDDEN:
        raise Unavailable(f"Kafka refuses {what}: {_FORBIDDEN[code]}. Grant it to the user of this query")
    raise Unavailable(f"Kafka answered {what} with error {code}; see Kafka's protocol guide, 'Error codes'")


def _refusals(errors: Any) -> tuple[type[Exception], ...]:
    return (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.AuthorizationError)


async def _greet(manager: Any, within_ms: float) -> None:
    """The first connection, for its error: the client's own start would try a login that is refused again and again."""
    errors = kafka_python()[1]
    brokers = manager.cluster.bootstrap_brokers()
    flags = {"pop_on_close": False, "refresh_metadata_on_err": False, "reset_backoff_on_connect": False}
    for broker in brokers:
        try:
            await manager.get_connection(broker.node_id, timeout_ms=within_ms / len(brokers), **flags)
            return
        except _refusals(errors):
            raise
        except errors.KafkaError:
            continue


def _token_provider(tokens: UnsecuredTokens | FetchedTokens) -> Any:
    """Tokens, as kafka-python asks for them: it looks at the type."""
    from kafka.errors import SaslAuthenticationFailedError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            try:
                return tokens.token()
            except TokenRefused as error:
                raise SaslAuthenticationFailedError(str(error)) from None

        def extensions(self) -> dict[str, str]:
            return tokens.extensions

    return Provider()


def kafka_python() -> tuple[Any, Any]:
    """Its connection manager and its errors; `Unavailable` says how to install it."""
    try:
        import kafka.errors
        from kafka.net.manager import KafkaConnectionManager
    except ImportError as error:
        raise Unavailable(
            f"Exactly-once output to Kafka needs the package kafka-python 3.0.12 or later ({error})."
            " Install it on the driver and on all executors: pip install 'holdfast-spark[kafka]'"
        ) from error
    return KafkaConnectionManager, kafka.errors
