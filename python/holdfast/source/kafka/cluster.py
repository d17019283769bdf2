"""What the driver asks of the brokers: topics, partitions, offsets; and the group's offsets, for lag tools to see.

Each question is asked again within a time limit while brokers come and go; afterwards `Unavailable` says what was asked
of whom. Used by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from functools import partial
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client import admin_client, confluent_kafka, heard, learn_brokers, passes, question_ms, why_silent
from holdfast.kafka.client_config import without_secrets
from holdfast.source.kafka.bounds import EARLIEST_OFFSET, Bound
from holdfast.source.kafka.group_offsets import GroupOffsets
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.subscription import Partition

# As long as the source's tasks wait for records, and a commit for its coordinators:
# whoever of them gives up first ends the query.
ANSWER_WITHIN_MS = 120_000.0
# Offset of a timestamp after that of the last record.
_NO_RECORD = -1
_PAUSE_MS = 100
# How often what is there is asked for once more, where a leader does not know yet of a partition that there is.
_AGAIN_MAX = 5


class Topics:
    """The partitions that a source reads, and the ids of their topics, at one moment."""

    def __init__(self, partitions: Sequence[Partition], topic_ids: Mapping[str, str]) -> None:
        self.partitions = list(partitions)
        self.topic_ids = dict(topic_ids)


class Cluster:
    """The Kafka cluster, as the driver of one source sees it."""

    def __init__(
        self, options: SourceOptions, clock: Clock | None = None, answer_within_ms: float = ANSWER_WITHIN_MS
    ) -> None:
        self._options = options
        self._kafka = confluent_kafka()
        self._clock = clock or SystemClock()
        self._answer_within_ms = answer_within_ms
        admin_client(options.client)  # what it refuses is told now
        self._question_ms = question_ms(options.client)
        self._groups: dict[str, GroupOffsets] = {}

    @property
    def _admin(self) -> Any:
        """To be asked one question."""
        return admin_client(self._options.client)

    @property
    def reads_committed(self) -> bool:
        """Whether what is read ends at the last stable offset."""
        return self._options.client["isolation.level"] == "read_committed"

    def topics(self) -> Topics:
        """What the subscription names and exists by now; a topic that does not exist is left out."""
        subscription = self._options.subscription
        listed: Iterable[str] = ()
        if subscription.pattern is not None:
            listed = self._ask("topics", lambda within_s: list(self._admin.list_topics(timeout=within_s).topics))
        names = subscription.names(listed)
        if not names:
            return Topics([], {})
        described = self._ask("partitions", lambda within_s: self._describe(names, within_s))
        if subscription.pattern is not None:
            # As Kafka's own consumer: what the brokers call internal, whatever a name begins with.
            described = {name: topic for name, topic in described.items() if not topic.is_internal}
        found = _topics(described)
        wanted = subscription.wanted(found.partitions)
        read = {topic for topic, _ in wanted}
        return Topics(wanted, {name: topic_id for name, topic_id in found.topic_ids.items() if name in read})

    def topics_of(self, names: Set[str]) -> Topics:
        """These topics with all their partitions, whatever the subscription names; what does not exist, or may not be
        described any more, is left out.
        """
        denied = self._kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        return _topics(self._ask("partitions", lambda within_s: self._describe(sorted(names), within_s, denied)))

    def existing(self, names: Set[str]) -> dict[str, bool]:
        """Whether each exists, as the brokers say; one that they refuse to describe may. What they do not answer of is
        left out: asked once, as nothing waits for it.
        """
        codes = self._kafka.KafkaError
        says = {codes.UNKNOWN_TOPIC_OR_PART: False, codes.TOPIC_AUTHORIZATION_FAILED: True}
        heard(self._options.client)
        futures = self._admin.describe_topics(
            self._kafka.TopicCollection(sorted(names)), request_timeout=self._question_ms / 1000
        )
        exist: dict[str, bool] = {}
        for name, future in futures.items():
            try:
                future.result()
                exist[name] = True
            except self._kafka.KafkaException as error:
                code = error.args[0].code()
                if code in says:
                    exist[name] = says[code]
        heard(self._options.client)
        return exist

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic as it is now; None: it does not exist."""
        found = self._ask("id of a topic", lambda within_s: self._describe([topic], within_s))
        return str(found[topic].topic_id) if topic in found else None

    def available(self) -> tuple[Topics, dict[Partition, int]]:
        """`topics`, and `latest` of all of them; of some a leader may still not know, after a while."""
        for _ in range(_AGAIN_MAX):
            topics = self.topics()
            latest = self.latest(topics.partitions)
            if len(latest) == len(topics.partitions):
                break
            time.sleep(0.1)
        return topics, latest

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The first offset that each partition still has. Partitions that are gone are left out."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.earliest(), "earliest offsets")

    def latest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The offset after the last to read; with read_committed, the last stable offset. Gone ones are left out."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.latest(), "latest offsets")

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The offset after the last record that is there for good, visible or not. Gone ones are left out."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.latest(), "high watermarks", committed=False)

    def resolve(self, bound: Bound, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Offsets for a bound, one for each partition.

        Raises
        ------
        InvalidRequest
            The bound names other partitions than those, or a timestamp after the last record where that is an error.
        Unavailable
            The leader of one of them does not know it: it was deleted just now, or was only just made.
        """
        # Of an earlier release, or of Spark's own source, a restore may name what a pattern leaves out.
        left_out = self._options.subscription.leaves_out
        if bound.named is not None and {key for key in bound.named if not left_out(key[0])} != set(partitions):
            raise InvalidRequest(
                f"Offsets by partition must name exactly the partitions that {self._options.subscription} reads."
                f" Expected {listed(partitions)}, found {listed(bound.named)}. Where these are of a restore, and"
                " partitions were added since: restore.kafka_offsets(options=…) names them too"
            )
        offsets = self._resolved(bound, partitions)
        unknown = set(partitions) - set(offsets)
        if unknown:
            # To leave it out would be to skip its rows without a word.
            raise Unavailable(
                f"Kafka at {self._options.client['bootstrap.servers']} has {listed(unknown)}, but did not say its"
                " offsets: expected those of each partition. Try again"
            )
        return offsets

    def _resolved(self, bound: Bound, partitions: Sequence[Partition]) -> dict[Partition, int]:
        if bound.timestamp_ms is not None or bound.timestamps_ms is not None:
            return self._at_timestamps(bound, partitions)
        offsets = {key: (bound.offsets[key] if bound.offsets else bound.offset or 0) for key in partitions}
        first = self.earliest([key for key, offset in offsets.items() if offset == EARLIEST_OFFSET])
        last = self.latest([key for key, offset in offsets.items() if EARLIEST_OFFSET < offset < 0])
        return {**{key: offset for key, offset in offsets.items() if offset >= 0}, **first, **last}

    def commit_group(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Tell the brokers how far the query is. Nothing waits for it, and nothing depends on it."""
        if group not in self._groups:
            self._groups[group] = GroupOffsets(self._options.client, group, self._clock)
        self._groups[group].commit(positions)

    def close(self) -> None:
        """Says to groups what was on its way, and gives back their clients' connections and threads."""
        for group in self._groups.values():
            group.close()

    def _at_timestamps(self, bound: Bound, partitions: Sequence[Partition]) -> dict[Partition, int]:
        spec = self._kafka.admin.OffsetSpec.for_timestamp
        specs = {key: spec(bound.timestamp_of(key)) for key in partitions}
        asked = partial(self._list_offsets, specs, least=_NO_RECORD, committed=self.reads_committed)
        found = self._ask("offsets by timestamp", asked)
        after_last = [key for key, offset in found.items() if offset == _NO_RECORD]
        if after_last and not bound.latest_if_none:
            raise InvalidRequest(
                f"No record at or after the starting timestamp in {listed(after_last)}. Use an earlier timestamp, or"
                " startingOffsetsByTimestampStrategy 'latest'"
            )
        # Whose end is not said either has no offset here: its leader knew it a moment ago.
        at_records = {key: offset for key, offset in found.items() if offset != _NO_RECORD}
        return {**at_records, **self.latest(after_last)}

    def _offsets(
        self, partitions: Sequence[Partition], spec: Any, what: str, committed: bool | None = None
    ) -> dict[Partition, int]:
        if not partitions:
            return {}
        committed = self.reads_committed if committed is None else committed
        asked = partial(self._list_offsets, dict.fromkeys(partitions, spec), least=0, committed=committed)
        offsets: dict[Partition, int] = self._ask(what, asked)
        return offsets

    def _list_offsets(
        self, specs: Mapping[Partition, Any], within_s: float, *, least: int, committed: bool
    ) -> dict[Partition, int]:
        """``least``: what is below was not said. Where a leader does not answer in time, librdkafka gives -1001 for its
        partitions, and no error.
        """
        kafka = self._kafka
        futures = self._admin.list_offsets(
            {kafka.TopicPartition(topic, number): spec for (topic, number), spec in specs.items()},
            isolation_level=kafka.IsolationLevel.READ_COMMITTED if committed else kafka.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=within_s,
        )
        answers = self._present((place, future) for place, future in futures.items())
        offsets: dict[Partition, int] = {(place.topic, place.partition): answer.offset for place, answer in answers}
        silent = [key for key, offset in offsets.items() if offset < least]
        if silent:
            code, said = kafka.KafkaError._TIMED_OUT, f"the leaders of {listed(silent)} did not answer"
            raise kafka.KafkaException(kafka.KafkaError(code, said))
        return offsets

    def _describe(self, names: Sequence[str], within_s: float, *left_out: int) -> dict[str, Any]:
        futures = self._admin.describe_topics(self._kafka.TopicCollection(list(names)), request_timeout=within_s)
        return dict(self._present(futures.items(), *left_out))

    def _present(self, futures: Iterable[tuple[Any, Future[Any]]], *left_out: int) -> list[tuple[Any, Any]]:
        """The answers for what exists, and has a leader; and is refused with none of the codes that are left out."""
        error_codes = self._kafka.KafkaError
        # The last: none of all that were asked for exists, or has a leader, as when the brokers have just started.
        gone = (
            *(error_codes.UNKNOWN_TOPIC_OR_PART, error_codes._UNKNOWN_TOPIC, error_codes._UNKNOWN_PARTITION),
            error_codes._NOENT,
            *left_out,
        )
        present = []
        for key, future in futures:
            try:
                present.append((key, future.result()))
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in gone:
                    raise
        return present

    def _ask(self, what: str, question: Callable[[float], Any]) -> Any:
        deadline_ms = self._clock.elapsed_ms() + self._answer_within_ms
        quick_failures, since = 0, heard(self._options.client)
        while True:
            left_ms = deadline_ms - self._clock.elapsed_ms()
            try:
                answer = question(max(1000.0, min(left_ms, self._question_ms)) / 1000)
                heard(self._options.client)
                return answer
            except self._kafka.KafkaException as error:
                why = why_silent(self._options.client, since)
                # What goes by itself is waited for; the rest is asked again a few times.
                is_passing = passes(error.args[0])
                quick_failures += not is_passing
                if self._clock.elapsed_ms() >= deadline_ms or quick_failures > self._options.fetch_retries:
                    raise Unavailable(
                        f"Kafka at {self._options.client['bootstrap.servers']} did not say the {what} of"
                        f" {self._options.subscription}: {without_secrets(str(error), self._options.client)}{why}"
                    ) from None
                time.sleep(max(self._options.fetch_retry_ms, _PAUSE_MS if is_passing else 0) / 1000)
                if is_passing:
                    learn_brokers(self._admin)


def _topics(described: Mapping[str, Any]) -> Topics:
    partitions = [(name, part.id) for name, topic in described.items() for part in topic.partitions]
    return Topics(partitions, {name: str(topic.topic_id) for name, topic in described.items()})


def listed(partitions: Iterable[Partition]) -> str:
    """For messages."""
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "none"
