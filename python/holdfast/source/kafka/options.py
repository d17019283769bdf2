"""Options of the Kafka source: those of Spark's own, read once, checked together. Knows neither Spark nor a broker."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.errors import InvalidRequest
from holdfast.source.kafka.bounds import EARLIEST, LATEST, Bound, parse_bound
from holdfast.source.kafka.consumer_config import consumer_config
from holdfast.source.kafka.offsets import Split
from holdfast.source.kafka.subscription import Subscription, parse_subscription
from holdfast.units import parse_duration

KNOWN_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "commitGroupOffsets",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
# Spark hands some of its own along with the user's.
_NOT_OURS = ("path", "paths", "__", "spark.")


@dataclass(frozen=True)
class SourceOptions:
    """All options of one source, checked.

    ``client`` is the configuration of librdkafka; it may hold secrets, so it is left out of the text of this object.
    """

    subscription: Subscription
    client: dict[str, str] = field(repr=False)
    starting: Bound
    ending: Bound
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    split: Split = field(default_factory=Split)
    include_headers: bool = False
    group_id_prefix: str = "holdfast-kafka-source"
    commit_group_offsets: bool = True
    poll_timeout_ms: int = 120_000
    fetch_retries: int = 3
    fetch_retry_ms: int = 10

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool) -> SourceOptions:
        """Read the options as Spark hands them over: names without regard to case, values as text.

        Raises
        ------
        InvalidRequest
            An option is missing, unknown, contradicts another, or has a value that it does not allow.
        """
        texts = {name.lower(): value for name, value in given.items()}
        _refuse_unknown(texts)
        if streaming:
            _refuse(texts, ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"), "a stream has no end")
        else:
            batch_only = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
            _refuse(texts, batch_only, "a batch read has no triggers")
        minimum = _count(texts, "minOffsetsPerTrigger")
        maximum = _count(texts, "maxOffsetsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise InvalidRequest(
                f"minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, which is {maximum}"
            )
        starting = parse_bound(texts, "starting", LATEST if streaming else EARLIEST)
        ending = parse_bound(texts, "ending", LATEST)
        if not streaming and starting == LATEST:
            raise InvalidRequest(
                "startingOffsets 'latest' in a batch read would read nothing: use 'earliest', JSON or a timestamp"
            )
        if ending == EARLIEST:
            raise InvalidRequest("endingOffsets 'earliest' would read nothing: use 'latest', JSON or a timestamp")
        return cls(
            subscription=parse_subscription(texts),
            client=consumer_config(texts),
            starting=starting,
            ending=ending,
            fail_on_data_loss=_flag(texts, "failOnDataLoss", True),
            max_offsets_per_trigger=maximum,
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=_duration(texts, "maxTriggerDelay", 900_000),
            split=Split(_count(texts, "minPartitions"), _count(texts, "maxRecordsPerPartition")),
            include_headers=_flag(texts, "includeHeaders", False),
            group_id_prefix=texts.get("groupidprefix", cls.group_id_prefix),
            commit_group_offsets=_flag(texts, "commitGroupOffsets", True),
            poll_timeout_ms=_number(texts, "kafkaConsumer.pollTimeoutMs", 120_000),
            fetch_retries=_number(texts, "fetchOffset.numRetries", 3),
            fetch_retry_ms=_number(texts, "fetchOffset.retryIntervalMs", 10),
        )


def _refuse_unknown(texts: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN_OPTIONS}
    for name in texts:
        if name in known or name.startswith("kafka.") or name.startswith(_NOT_OURS):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise InvalidRequest(
            f"{name!r} is not an option of holdfast-kafka."
            f" The nearest is {known[near]!r}; see docs/guide/kafka_source.md"
        )


def _refuse(texts: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    given = [name for name in names if name.lower() in texts]
    if given:
        raise InvalidRequest(f"Option {', '.join(given)}: {why}. Remove it")


def _flag(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} is {text!r}: expected true or false")
    return text == "true"


def _number(texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name.lower(), str(default)).strip()
    if not text.isascii() or not text.isdigit():
        raise InvalidRequest(f"{name} is {text!r}: expected a whole number, 0 or more")
    return int(text)


def _count(texts: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in texts:
        return None
    number = _number(texts, name, 0)
    if number == 0:
        raise InvalidRequest(f"{name} is 0: expected a whole number, 1 or more")
    return number


def _duration(texts: Mapping[str, str], name: str, default_ms: int) -> int:
    text = texts.get(name.lower())
    if text is None:
        return default_ms
    try:
        return parse_duration(int(text) if text.strip().isdigit() else text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}: {error}") from None
