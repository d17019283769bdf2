"""The topic of witnesses, at start: made if it is missing, and whether it keeps what it must keep. See docs/rfcs/0006.

Compacted, so that it stays small; never deleting by time or size, so that an answer does not expire; stored without
compression, so that any client reads it; small segments, since only what is no longer written to is compacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client import confluent_kafka, logger
from holdfast.kafka.client_config import without_secrets

if TYPE_CHECKING:
    from holdfast.sink.kafka.fitness import Fitness

PARTITIONS = 16
REPLICAS = 3
NOT_ALLOWED = (29, 31)
_CONFIG = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "segment.bytes": str(16 << 20),
    "segment.ms": str(6 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": str(3_600_000),
}


class WitnessTopic:
    """One topic, asked about by a sink's `Fitness`."""

    def __init__(self, topic: str, fitness: Fitness) -> None:
        self._topic = topic
        self._fitness = fitness
        self._kafka = confluent_kafka()

    def ensure(self, replicas: int) -> None:
        """Makes it, if it is missing, and checks it.

        Parameters
        ----------
        replicas
            Of the rows' own topic. It gets as many, and three where there are three brokers: other queries, whose rows
            have more replicas, leave their witnesses here too.

        Raises
        ------
        InvalidRequest
            It would forget, or cannot be read.
        Unavailable
            It is missing, and this user may not create it.
        """
        if not self._exists(replicas):
            self._create(replicas)
        self._check()

    def _exists(self, replicas: int) -> bool:
        codes = self._kafka.KafkaError
        names = self._kafka.TopicCollection([self._topic])

        def question(within_s: float) -> Any:
            return self._fitness.admin.describe_topics(names, request_timeout=within_s)[self._topic].result()

        try:
            known = (*NOT_ALLOWED, codes.UNKNOWN_TOPIC_OR_PART)
            found = self._fitness.ask(f"describe topic {self._topic}", question, known)
        except self._kafka.KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED:
                raise Unavailable(
                    f"This user may not use topic {self._topic!r} at Kafka at {self._fitness.servers}, in which"
                    " transactions leave their witnesses. Grant READ and WRITE on it, and CREATE if it is not made by"
                    " hand; or do without, with KafkaSink(witness_topic=None): see docs/guide/security.md"
                ) from None
            return False
        fewest = min((len(part.replicas) for part in found.partitions), default=replicas)
        if fewest < replicas:
            logger.warning(
                "Topic %s has %d replicas, and the rows' own has %d: while those brokers are away nothing is committed,"
                " and if they lose their disks, what was committed may be taken for lost. Give it as many"
                " (kafka-reassign-partitions.sh), or name another one with KafkaSink(witness_topic=)",
                self._topic,
                fewest,
                replicas,
            )
        return True

    def _create(self, replicas: int) -> None:
        kafka = self._kafka
        metadata = self._fitness.ask(
            "name its brokers", lambda within_s: self._fitness.admin.list_topics(timeout=within_s)
        )
        replicas = max(replicas, min(REPLICAS, len(metadata.brokers)))
        new = kafka.admin.NewTopic(self._topic, PARTITIONS, replicas, config=_CONFIG)

        def question(within_s: float) -> Any:
            made = self._fitness.admin.create_topics([new], operation_timeout=within_s, request_timeout=within_s)
            return made[self._topic].result()

        settings = " ".join(f"--config {name}={value}" for name, value in _CONFIG.items())
        try:
            self._fitness.ask(
                f"create topic {self._topic}", question, (*NOT_ALLOWED, kafka.KafkaError.TOPIC_ALREADY_EXISTS)
            )
            logger.info("Created topic %s, in which transactions leave their witnesses", self._topic)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                return  # another query was faster
            text = without_secrets(error.args[0].str(), {})
            raise Unavailable(
                f"Topic {self._topic!r}, in which transactions leave their witnesses, is missing at Kafka at"
                f" {self._fitness.servers}, and this user may not create it ({text}). Create it, with {PARTITIONS}"
                f" partitions and {settings}; or grant CREATE; or do without, with KafkaSink(witness_topic=None): see"
                " docs/guide/transactions.md"
            ) from None

    def _check(self) -> None:
        admin = self._kafka.admin
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, self._topic)

        def question(within_s: float) -> Any:
            return self._fitness.admin.describe_configs([resource], request_timeout=within_s)[resource].result()

        try:
            # Made a moment ago, not all brokers know it: by whom, and with which settings, is not known either.
            found = self._fitness.ask(f"describe topic {self._topic}'s settings", question, NOT_ALLOWED)
        except self._kafka.KafkaException as error:
            logger.info("The settings of topic %s are not known: %s", self._topic, error.args[0].str())
            return
        policies = {one.strip() for one in str(found["cleanup.policy"].value).split(",")}
        compression = str(found["compression.type"].value)
        if policies != {"compact"} or compression != "uncompressed":
            raise InvalidRequest(
                f"Topic {self._topic!r} at Kafka at {self._fitness.servers} cannot hold witnesses: it has"
                f" cleanup.policy={','.join(sorted(policies))} and compression.type={compression}. Expected"
                " cleanup.policy=compact alone, since what is deleted by time or size no longer says what was"
                " committed, and compression.type=uncompressed. Alter it, or name another one with"
                " KafkaSink(witness_topic=)"
            )
