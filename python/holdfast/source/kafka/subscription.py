"""Which topics and partitions a source reads: ``subscribe``, ``subscribePattern`` or ``assign``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.errors import InvalidRequest
from holdfast.kafka.transactional_ids import WITNESS_TOPIC

# A position in Kafka: (topic, partition). Plain tuples sort, hash and travel well.
Partition = tuple[str, int]


@dataclass(frozen=True)
class Subscription:
    """Exactly one of the three ways is set.

    Attributes
    ----------
    topics
        Names, for ``subscribe``.
    pattern
        A regular expression that a whole topic name must match, for ``subscribePattern``.
    partitions
        For ``assign``.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()

    def names(self, existing: Iterable[str]) -> list[str]:
        """The topics to look at, sorted; ``existing`` is what the broker lists."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            return sorted(name for name in existing if matches(name) and not self.leaves_out(name))
        return sorted({topic for topic, _ in self.partitions} or self.topics)

    def leaves_out(self, topic: str) -> bool:
        """Whether a pattern does not mean a topic, though it may match: what sinks leave there are no rows. Who wants
        to see it names it.
        """
        return self.pattern is not None and topic == WITNESS_TOPIC

    def wanted(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Of the partitions that these topics have, those that the source reads."""
        return sorted(set(partitions) & set(self.partitions) if self.partitions else partitions)

    def covers(self, partition: Partition) -> bool:
        """Whether the source would read a partition, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition[0]) is not None and not self.leaves_out(partition[0])
        return partition in self.partitions if self.partitions else partition[0] in self.topics

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        if self.partitions:
            return "assign " + ", ".join(f"{topic}-{partition}" for topic, partition in self.partitions)
        return "subscribe " + ", ".join(self.topics)


def parse_subscription(texts: Mapping[str, str]) -> Subscription:
    """From the options, their names in lower case."""
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in texts]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise InvalidRequest(
            f"Expected exactly one of the options subscribe, subscribePattern and assign, found {found}"
        )
    text = texts[given[0].lower()].strip()
    if not text:
        raise InvalidRequest(f"Option {given[0]} is empty: expected what to read")
    if given[0] == "subscribe":
        topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        if not topics:
            raise InvalidRequest(f"subscribe is {text!r}: expected topic names with commas between")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidRequest(f"subscribePattern {text!r} is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    return Subscription(partitions=_assigned(text))


def _assigned(text: str) -> tuple[Partition, ...]:
    expected = """expected JSON such as {"topicA":[0,1],"topicB":[2]}"""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"assign is not JSON ({error}): {expected}") from None
    if not isinstance(content, dict) or not all(isinstance(numbers, list) for numbers in content.values()):
        raise InvalidRequest(f"assign is {text}: {expected}")
    partitions = {(topic, number) for topic, numbers in content.items() for number in numbers}
    if not partitions or not all(type(number) is int and number >= 0 for _, number in partitions):
        raise InvalidRequest(f"assign is {text}: {expected}")
    return tuple(sorted(partitions))
