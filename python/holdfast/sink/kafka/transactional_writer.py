"""One partition of one batch in one Kafka transaction, which some other process ends.

The producer is new for each transaction and is dropped when the transaction is prepared: acknowledged by the brokers,
its producer id and epoch known. Dropping it leaves the transaction open; ``close()`` would abort it, and a producer
that lived on would keep its epoch while another process ends the transaction, so that a late repeat of that end could
end its next one.

A crash before ``prepare`` returns leaves an open transaction that no record names: recovery aborts it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.commit.sink import Committable, SinkTask
from holdfast.errors import Fenced, HoldfastError, InternalError, InvalidRequest, Unavailable
from holdfast.kafka.client import ConnectionErrors, confluent_kafka, logger
from holdfast.kafka.client_config import without_secrets
from holdfast.kafka.renewed import once_usable
from holdfast.kafka.transactional_ids import TransactionalId, epoch_in_name
from holdfast.sink.kafka.layout import Layout
from holdfast.sink.kafka.options import SinkOptions
from holdfast.sink.kafka.sending import SendingProducer
from holdfast.sink.kafka.witness import Place, witness_text
from holdfast.units import format_duration

INITIALISE_WITHIN_S = 60.0
IDENTITY_WITHIN_MS = 10_000.0
_ABORT_WITHIN_S = 5.0
STATISTICS_MS = "20"
_INVALID_TIMEOUT, _FORBIDDEN = 50, (31, 53)


def transactional_id(task: SinkTask, *, witnessed: bool) -> str:
    """The name of a task's transaction."""
    scope = task.scope
    epoch = epoch_in_name(scope.epoch, witnessed=witnessed)
    return str(TransactionalId(scope.query_id, scope.sink, epoch, task.partition, task.batch_id % 2, task.attempt))


class TransactionalWriter:
    """Writes in a transaction; begins to initialise it at once, in a thread, while the task does its own work."""

    def __init__(self, options: SinkOptions, task: SinkTask, clock: Clock | None = None) -> None:
        self._options = options
        self._task = task
        self._clock = clock or SystemClock()
        self._layout: Layout | None = None
        self._rows = self._bytes = 0
        self._topics: set[str] = set()
        self._begun_ms: float | None = None
        self._witness = _place_of(task, options)
        self._id = transactional_id(task, witnessed=self._witness is not None)
        self._what = f"Transaction {self._id} at {options.client['bootstrap.servers']}"
        config = {**options.producer(), "transactional.id": self._id, "statistics.interval.ms": STATISTICS_MS}
        producer = once_usable(config, lambda: SendingProducer(config, self._what, self._clock))
        self._producer: SendingProducer | None = producer
        self._initialised = Initialisation(producer, options, self._what)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `holdfast.commit.sink.SinkWriter`."""
        if not batch.num_rows:
            return
        if self._layout is None:
            self._layout = Layout(self._options.columns, self._options.value_format, batch.schema)
        producer = self._begin()
        for records in self._layout.records(batch):
            with self._within_its_time():
                producer.send(records, self._options.topic, None)
            self._rows += len(records)
            self._bytes += records.size_bytes
            if records.topics is not None:
                self._topics.update(records.topics)

    def prepare(self) -> Committable | None:
        """See `holdfast.commit.sink.SinkWriter`."""
        if self._begun_ms is None or self._producer is None:
            self._initialised.wait_whatever_comes()
            self._drop()
            return None
        with self._within_its_time():
            self._producer.flush(self._options.message_timeout_ms + 10_000)
        producer_id, producer_epoch = self._producer.wait_for_identity(IDENTITY_WITHIN_MS)
        self._drop()
        topics = {self._options.topic} if self._options.topic else self._topics
        body: dict[str, Any] = {
            "transactional_id": self._id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "topics": sorted(topics | {self._witness.topic} if self._witness else topics),
        }
        if self._witness is not None:
            body["witness"] = asdict(self._witness)
        if self._task.scope.claim.get("topic_ids"):
            body["topic_ids"] = dict(self._task.scope.claim["topic_ids"])
        return Committable(
            partition=self._task.partition,
            attempt=self._task.attempt,
            rows=self._rows,
            size_bytes=self._bytes,
            body=body,
        )

    def abort(self) -> None:
        """See `holdfast.commit.sink.SinkWriter`.

        Without a witness it is left open, for a sweep of the driver's. This task may be a late one, under the name of
        what is visible: an abort by request, one epoch later, is what a time limit of that would look like (`fates`).
        """
        producer = self._producer
        if producer is not None and self._begun_ms is not None and self._witness is not None:
            try:
                producer.client.abort_transaction(_ABORT_WITHIN_S)
            except confluent_kafka().KafkaException as error:
                logger.info("%s was not aborted (%s): recovery does it", self._what, error)
        elif producer is not None:
            self._initialised.wait_whatever_comes()
        self._drop()

    def _begin(self) -> SendingProducer:
        if self._producer is None:
            raise InvalidRequest(f"{self._what} was prepared or aborted already: open a new writer")
        if self._begun_ms is None:
            self._initialised.wait()
            self._producer.begin()
            self._begun_ms = self._clock.elapsed_ms()
            if self._witness is not None:
                # First, so that it is acknowledged while rows are on their way.
                place, key = self._witness, self._id.encode()
                self._producer.send_one(place.topic, place.partition, key, witness_text(self._task))
        return self._producer

    @contextmanager
    def _within_its_time(self) -> Iterator[None]:
        """The brokers fence the producer of a transaction that is open for too long, as a rival would."""
        try:
            yield
        except (Fenced, Unavailable) as error:
            limit_ms = self._options.transaction_timeout_ms
            open_ms = int(self._clock.elapsed_ms() - (self._begun_ms or 0.0))
            if open_ms < limit_ms:
                raise
            raise Unavailable(
                f"{self._what}: it has been open for {format_duration(open_ms // 1000 * 1000)}, and the brokers abort a"
                f" transaction after {format_duration(limit_ms)}. Nothing of it is visible;"
                " Spark tries the task again. If each try takes so long, the batch never ends: set"
                " kafka.transaction.timeout.ms in KafkaSink's options to more than a batch ever takes, or make batches"
                f" smaller; see docs/guide/timeouts.md. The client's last word: {error}"
            ) from error

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.drop()
            self._producer = None


def _place_of(task: SinkTask, options: SinkOptions) -> Place | None:
    if options.witness_topic is None:
        return None
    if "witness" not in task.scope.claim:
        raise InternalError(
            f"a task of sink {task.scope.sink!r} was given no place for its witness: it was not claimed"
        )
    return Place.parse(task.scope.claim["witness"])


class Initialisation:
    """``init_transactions`` in a thread: it aborts what is open under the id, and fences whoever wrote it."""

    def __init__(self, producer: SendingProducer, options: SinkOptions, what: str) -> None:
        self._options = options
        self._what = what
        self._failure: HoldfastError | None = None
        self._thread = threading.Thread(
            target=self._run,
            args=(producer.client, producer.connection_errors),
            name="holdfast-init-transactions",
            daemon=True,
        )
        self._thread.start()

    def wait(self) -> None:
        """Until it is done.

        Raises
        ------
        InvalidRequest, Unavailable
            It failed.
        """
        self.wait_whatever_comes()
        if self._failure is not None:
            raise self._failure

    def wait_whatever_comes(self) -> None:
        """Until it has ended, so that a late one can not fence a transaction of the same name after this task."""
        self._thread.join()

    def _run(self, client: Any, errors: ConnectionErrors) -> None:
        kafka = confluent_kafka()
        try:
            # A connection first: librdkafka waits for half a second when it has none to ask for the coordinator. By a
            # question about one topic, where one is known: each task and batch asks it, and clusters have thousands.
            # Twice: the first answer may come over a connection that it drops for those which the answer names.
            topic = self._options.topic or self._options.witness_topic
            for _ in range(2):
                client.list_topics(topic, INITIALISE_WITHIN_S)
            client.init_transactions(INITIALISE_WITHIN_S)
        except kafka.KafkaException as error:
            with suppress(kafka.KafkaException):
                client.poll(0)  # why; nobody else polls before this has ended
            self._failure = self._explained(error.args[0], errors.last_in_words())

    def _explained(self, error: Any, why: str) -> HoldfastError:
        code = error.code()
        text = without_secrets(str(error), self._options.client)
        if code == _INVALID_TIMEOUT:
            return InvalidRequest(
                f"{self._what}: the brokers refuse kafka.transaction.timeout.ms={self._options.transaction_timeout_ms}:"
                " it is more than their transaction.max.timeout.ms. Lower the one or raise the other"
            )
        if code in _FORBIDDEN:
            return Unavailable(
                f"{self._what}: {text}. Grant the user of this query WRITE and DESCRIBE on transactional ids that"
                " start with 'holdfast-'"
            )
        return Unavailable(f"{self._what} could not be initialised: {text}{why}")
