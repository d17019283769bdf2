"""A librdkafka producer as the writers use it: hand over records, watch what fails, wait until all is acknowledged.

Used by one thread. librdkafka calls back in the thread that polls or flushes, so nothing here is locked. Acknowledged
records cost no call: only failures are reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from holdfast.clock import Clock
from holdfast.errors import Fenced, InvalidRequest, Unavailable
from holdfast.kafka.client import ConnectionErrors, confluent_kafka, open_client
from holdfast.kafka.client_config import without_secrets
from holdfast.kafka.renewed import stamps
from holdfast.sink.kafka.layout import Records

_FULL_WAIT_S = 0.05
_ASK_WITHIN_S = 30.0
_FLUSH_STEP_S = 0.2
_CAUSE_POLLS = 20
# The codes that say: another producer has this id now.
_FENCED_CODES = (47, 90)
_DEAD_STATES = ("AbortableError", "FatalError")
# What a refused record is looked into for; by the names of librdkafka's errors.
_LOOK_AT = {
    "MSG_SIZE_TOO_LARGE": (
        "the topic's max.message.bytes and kafka.message.max.bytes. Where each record is small, the topic takes less at"
        " once than is sent at once: set kafka.batch.size (1000000, in bytes) to less than its max.message.bytes"
    ),
    "INVALID_RECORD": (
        "the topic's cleanup.policy: one that is compacted takes no record without a key (key= of KafkaSink, and no"
        " nulls in that column); and its message.timestamp.* settings"
    ),
}


class SendingProducer:
    """One producer and what has failed of it."""

    def __init__(self, config: Mapping[str, Any], what: str, clock: Clock) -> None:
        self._kafka = confluent_kafka()
        self._config = {name: value for name, value in config.items() if isinstance(value, str)}
        self.files = stamps(self._config)
        self._what = what
        self._clock = clock
        self._failure: Any = None
        self._failed_topic: str | None = None
        self._failed_topics: set[str] = set()  # of all records that failed, for whichever reason
        self._fatal: Any = None
        self.connection_errors = ConnectionErrors(self._config)
        self._heard = 0  # of these, before all was acknowledged
        self.producer_id = -1
        self.producer_epoch = -1
        self._state = ""
        full = {
            **config,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "error_cb": self._said,
        }
        self._is_transactional = "transactional.id" in config
        if self._is_transactional:
            full["stats_cb"] = self._counted
        self.client: Any = open_client(self._kafka.Producer, full)

    def begin(self) -> None:
        """Begin the transaction; nothing is sent yet."""
        try:
            self.client.begin_transaction()
        except self._kafka.KafkaException as error:
            self._fail(error.args[0])

    def drop(self) -> None:
        """Destroy the client, in this thread: that takes a millisecond and sends nothing.

        Its callbacks hold this object and it holds the client: without this, only the garbage collector would end it.
        """
        self.client = None

    def send(self, records: Records, topic: str | None, headers: list[list[tuple[str, bytes | None]]] | None) -> None:
        """Hand over records, in their order; waits while the queue is full.

        Parameters
        ----------
        topic
            Where ``records`` name none.
        headers
            In place of those of ``records``.

        Raises
        ------
        Fenced, InvalidRequest, Unavailable
            A record failed, this one or one before.
        """
        shown = headers if headers is not None else records.headers
        try:
            if topic is not None and shown is None and records.partitions is None:
                self._send_plain(records, topic)
            else:
                self._send_any(records, topic, shown)
        except self._kafka.KafkaException as error:
            self._fail(error.args[0])
        self._poll(0)

    def _send_plain(self, records: Records, topic: str) -> None:
        produce, values = self.client.produce, records.values
        keys = records.keys if records.keys is not None else (None,) * len(values)
        for value, key in zip(values, keys):
            try:
                produce(topic, value, key)
            except BufferError:
                self._once_there_is_room(topic, value, key)

    def _send_any(self, records: Records, topic: str | None, headers: Any) -> None:
        produce, values = self.client.produce, records.values
        none = (None,) * len(values)
        topics = records.topics if records.topics is not None else (topic,) * len(values)
        keys = records.keys if records.keys is not None else none
        partitions = records.partitions if records.partitions is not None else (-1,) * len(values)
        for name, value, key, partition, of_record in zip(topics, values, keys, partitions, headers or none):
            try:
                produce(name, value, key, partition, headers=of_record)
            except BufferError:
                self._once_there_is_room(name, value, key, partition, headers=of_record)
            except self._kafka.KafkaException as error:
                if not self._was_added(error.args[0], name, partition):
                    raise
                self._once_there_is_room(name, value, key, partition, headers=of_record)

    def _was_added(self, error: Any, topic: str | None, partition: int) -> bool:
        """Whether a record was refused since its partition is newer than what the client knows: it looks every five
        minutes. Who asks, tells it.
        """
        is_unknown = error.code() == self._kafka.KafkaError._UNKNOWN_PARTITION
        return bool(is_unknown and topic is not None and partition < self.partitions_of(topic))

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0: it is not there, which whoever sends to it is told.

        Raises
        ------
        Fenced, InvalidRequest, Unavailable
            As for `send`.
        """
        try:
            return len(self.client.list_topics(topic, _ASK_WITHIN_S).topics[topic].partitions)
        except self._kafka.KafkaException as error:
            self._fail(error.args[0])

    def send_one(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Hand over one record to one partition.

        Raises
        ------
        Fenced, InvalidRequest, Unavailable
            As for `send`.
        """
        try:
            self.client.produce(topic, value, key, partition)
        except BufferError:
            self._once_there_is_room(topic, value, key, partition)
        except self._kafka.KafkaException as error:
            self._fail(error.args[0])

    def flush(self, within_ms: float) -> None:
        """Wait until all brokers have acknowledged all records.

        Raises
        ------
        Fenced, InvalidRequest, Unavailable
            A record failed, or the time is over.
        """
        deadline_ms = self._clock.elapsed_ms() + within_ms
        while True:
            try:
                left = self.client.flush(_FLUSH_STEP_S)
            except self._kafka.KafkaException as error:
                self._fail(error.args[0])
            self.raise_failure()
            if not left:
                self._heard = self.connection_errors.count
                return
            if self._clock.elapsed_ms() > deadline_ms:
                raise Unavailable(
                    f"{self._what}: {left} records were not acknowledged in {within_ms / 1000:g} s"
                    f"{self.connection_errors.last_in_words(self._heard)}"
                )

    def wait_for_identity(self, within_ms: float) -> tuple[int, int]:
        """Producer id and epoch, which librdkafka tells in its statistics only."""
        deadline_ms = self._clock.elapsed_ms() + within_ms
        while self.producer_id < 0:
            self._poll(0.005)
            if self._clock.elapsed_ms() > deadline_ms:
                raise Unavailable(f"{self._what}: the producer did not learn its id in {within_ms / 1000:g} s")
        return self.producer_id, self.producer_epoch

    def raise_failure(self) -> None:
        """Raises what has failed so far."""
        if self._fatal is not None:
            self._fail(self._fatal)
        if self._failure is not None:
            self._fail(self._failure)
        if self._state in _DEAD_STATES:
            error = self._error_of_transaction()
            if error is not None:
                self._fail(error)
            raise Unavailable(f"{self._what}: the transaction cannot go on (librdkafka says {self._state})")

    def _poll(self, within_s: float) -> None:
        try:
            self.client.poll(within_s)
        except self._kafka.KafkaException as error:
            self._fail(error.args[0])
        self.raise_failure()

    def _once_there_is_room(self, topic: str | None, value: Any, key: Any, *more: Any, **headers: Any) -> None:
        """Hand over a record for which the queue was too full."""
        is_empty = False
        while True:
            self._poll(_FULL_WAIT_S)
            try:
                self.client.produce(topic, value, key, *more, **headers)
                return
            except BufferError:
                if is_empty:  # and was, as this was refused
                    size_bytes = len(value or b"") + len(key or b"")
                    raise InvalidRequest(
                        f"{self._what}, topic {topic}: a record of {size_bytes} bytes is larger than all that a task"
                        " may have on its way: set kafka.queue.buffering.max.kbytes to more than the largest record has"
                    ) from None
                is_empty = not len(self.client)

    def _fail(self, error: Any) -> NoReturn:
        codes = self._kafka.KafkaError
        if self._is_consequence(error):
            error = self._cause_of(error)
        code, text = error.code(), without_secrets(error.str() or str(error), self._config)
        where = f", topic {self._failed_topic}" if self._failed_topic else ""
        if code in (*_FENCED_CODES, codes._FENCED):
            raise Fenced(f"{self._what}: another writer or a recovery took over its transactional id ({text})")
        if code in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_RECORD, codes._UNKNOWN_PARTITION, codes._INVALID_ARG):
            look_at = _LOOK_AT.get(error.name(), "the partition column")
            raise InvalidRequest(f"{self._what}{where}: a record cannot be written: {text}. See {look_at}")
        if code == codes.TOPIC_AUTHORIZATION_FAILED:
            # In a transaction partitions are added together, and all are refused: who is to blame is not told.
            topics = ", ".join(map(repr, sorted(self._failed_topics)[:8])) or "the topics it writes to"
            raise Unavailable(f"{self._what}: {text}. Grant the user of this query WRITE on {topics}")
        hint = " Create the topic, or grant the user of this query DESCRIBE on it." if "topic" in text.lower() else ""
        is_unreachable = code in (codes._MSG_TIMED_OUT, codes._TIMED_OUT, codes._TRANSPORT, codes._ALL_BROKERS_DOWN)
        why = self.connection_errors.last_in_words(self._heard) if is_unreachable else ""
        raise Unavailable(f"{self._what}{where}: {text} ({error.name()}){why}.{hint}")

    def _cause_of(self, error: Any) -> Any:
        """What made librdkafka give up, or refuse what comes after a record that failed: it says so in callbacks of
        their own, which may be on their way.
        """
        for _ in range(_CAUSE_POLLS):
            if self._fatal is not None:
                return self._fatal
            if self._failure is not None and not self._is_consequence(self._failure):
                return self._failure
            try:
                self.client.poll(0.01)
            except self._kafka.KafkaException as raised:
                return raised.args[0]
        return self._error_of_transaction() or error

    def _error_of_transaction(self) -> Any:
        """What the transaction failed by, such as a partition that could not be added to it: librdkafka tells it only
        who calls a function of transactions next. None: nothing that it tells.
        """
        if not self._is_transactional:
            return None
        try:
            self.client.begin_transaction()  # nothing is sent by it, whatever the state
        except self._kafka.KafkaException as raised:
            error = raised.args[0]
            return None if self._is_consequence(error) else error
        return None

    def _is_consequence(self, error: Any) -> bool:
        """Whether it says only that something else went wrong before."""
        codes = self._kafka.KafkaError
        given_up = (codes._FATAL, codes._PURGE_QUEUE, codes._PURGE_INFLIGHT)
        return error.code() in (*given_up, codes._STATE)

    def _delivered(self, error: Any, message: Any) -> None:
        # What waited behind a record that failed may be told before it.
        if error is not None:
            self._failed_topics.add(message.topic())
        if error is not None and (self._failure is None or self._is_consequence(self._failure)):
            self._failure, self._failed_topic = error, message.topic()

    def _said(self, error: Any) -> None:
        # Errors of connections come here too; librdkafka mends those itself.
        self.connection_errors.add(error)
        if error.fatal():
            self._fatal = error

    def _counted(self, text: str) -> None:
        said = json.loads(text)["eos"]
        self._state = said["txn_state"]
        if said["producer_id"] >= 0:
            self.producer_id, self.producer_epoch = said["producer_id"], said["producer_epoch"]
