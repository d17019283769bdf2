"""Plans of a run of Trigger.AvailableNow against what topics have, whatever brokers that are behind say for a while: no
loss is told, and an end that was said rightly when the run began does not move.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples

from holdfast.source.kafka.cluster import Topics
from holdfast.source.kafka.doubt import Available
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.subscription import Partition

IDS = {"t": "id of t", "u": "id of u"}
READ: dict[Partition, int] = {("t", 0): 10, ("t", 1): 10, ("u", 0): 4, ("u", 1): 4}
AT_START: dict[Partition, int] = {("t", 0): 12, ("t", 1): 10, ("u", 0): 7, ("u", 1): 9}
LATER: dict[Partition, int] = {("t", 0): 20, ("t", 1): 15, ("u", 0): 9, ("u", 1): 30}


class Behind:
    """Brokers that are behind for their first answers: they list less, or a topic of long ago, or say no end or an old
    one. In place of `Cluster`, and of time.
    """

    reads_committed = False

    def __init__(self, draw: random.Random, answers: int) -> None:
        self._draw, self._behind = draw, answers
        self.ms = 0.0
        self.answers: list[Available] = []

    def available(self) -> Available:
        truth = LATER if self.answers else AT_START
        is_behind = len(self.answers) < self._behind
        self.answers.append(self._late(truth) if is_behind else (Topics(sorted(truth), IDS), dict(truth)))
        return self.answers[-1]

    def _late(self, truth: dict[Partition, int]) -> Available:
        old = {topic for topic in IDS if self._draw.random() < 0.2}
        listed = {key: end for key, end in truth.items() if key[0] in old or self._draw.random() < 0.75}
        ends = {key: self._draw.randrange(40) if key[0] in old else self._end(key, end) for key, end in listed.items()}
        ids = {topic: f"old {topic}" if topic in old else IDS[topic] for topic, _ in listed}
        return Topics(sorted(listed), ids), {key: end for key, end in ends.items() if end is not None}

    def _end(self, key: Partition, end: int) -> int | None:
        return self._draw.choice([None, self._draw.randrange(READ[key]), end, end])

    def topics(self) -> Topics:
        return Topics(sorted(READ), IDS)

    def resolve(self, bound: object, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {key: READ[key] for key in partitions}

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        raise AssertionError("what is read uncommitted waits for nothing")

    def commit_group(self, group: str, positions: object) -> None:
        pass

    def pause(self, seconds: float) -> None:
        self.ms += 1000 * seconds

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms


@settings(max_examples=examples(300))
@given(st.integers(0, 6), st.booleans(), st.none() | st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_run_reads_all_that_was_there_whatever_brokers_that_are_behind_say(
    answers: int, fail: bool, limit: int | None, draw: random.Random
) -> None:
    brokers: Any = Behind(draw, answers)
    texts = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t,u", "failOnDataLoss": str(fail).lower()}
    options = {**texts, "kafka.isolation.level": "read_uncommitted"}
    options.update({} if limit is None else {"maxOffsetsPerTrigger": str(limit)})
    planner = StreamPlanner(SourceOptions.parse(options, True), brokers, clock=brokers, pause=brokers.pause)
    offset = planner.initial()
    planner.fix_end()
    topics, said = brokers.answers[0]
    read = dict(READ)
    while True:
        end = planner.latest(offset)
        ranges = planner.ranges(offset, end)
        for part in ranges:
            assert part.start == read[part.topic, part.partition], "nothing is left out, nothing comes twice"
            read[part.topic, part.partition] = part.end
        offset = end
        if not ranges:
            break
    for key, found in read.items():
        was_known = topics.topic_ids.get(key[0]) == IDS[key[0]] and said.get(key) == AT_START[key]
        assert found == AT_START[key] if was_known else found in (AT_START[key], LATER[key]), key
