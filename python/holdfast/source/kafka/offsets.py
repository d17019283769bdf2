"""What Spark's offset log holds of this source: positions, and all that a replay needs to read the same again.

Spark persists where a batch ends, not where the first one starts, and knows nothing of partitions that came later. So
an offset carries, besides its positions, where those partitions start that its predecessor does not have: all of them
in the first batch. A replay, even of batch 0 from "latest", then reads exactly the offsets that the first attempt read.

As JSON::

    {"format": 1, "source": "5f0c…", "offsets": {"topic": {"0": 17}}, "starts": {…}, "topic_ids": {"topic": "L66Z…"}}

``starts`` is left out when empty. ``source`` is a random id made with the first offset: it names the consumer group.
``gone``, as ``{"topic": [0, 1]}``, left out when empty, are partitions that were not there, or not subscribed to, when
the offset was made with failOnDataLoss false: their loss is accepted, and not told again. Should one come back, it
goes on at its position. ``unknown_since``, as ``{"topic": 1767225600000}``, left out when empty, has those topics of
them that do not exist, and since when, in milliseconds since 1970: after an hour the offset names them no more.

``split``, as ``{"minPartitions": 4, "maxRecordsPerPartition": 1000}``, each where it is set, says how the batch that
ends here is split over tasks. What a task wrote is known by its number, so a replay goes by this, whatever the options
say by then. Offsets of earlier versions lack it. Normative: docs/formats/kafka_offset.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.errors import Corrupt
from holdfast.source.kafka.subscription import Partition

FORMAT = 1

_SPLIT_NAMES = ("minPartitions", "maxRecordsPerPartition")  # as the options

Positions = Mapping[Partition, int]


class Range(NamedTuple):
    """Records of one partition from ``start`` to before ``end``; ``topic_id`` tells a topic from its namesake."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class Split(NamedTuple):
    """How a batch is split over tasks; None: not asked for."""

    partitions_min: int | None = None
    records_max: int | None = None


@dataclass(frozen=True)
class SourceOffset:
    """One offset of the source.

    Attributes
    ----------
    positions
        The next record to read, by partition.
    starts
        Where partitions start that the offset before does not have.
    topic_ids
        The broker's id of each topic; it changes when a topic is deleted and created again.
    source_id
        Names the query's consumer group; None when not known (Spark 4.0 after a restart).
    gone
        Partitions whose loss was accepted.
    split
        How the batch that ends here is split. None when not known: an earlier Holdfast planned it, or it ends nowhere
        but is where a query starts.
    unknown_since
        Topics of ``gone`` that do not exist, and since when (ms since 1970).
    """

    positions: Positions
    starts: Positions = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    source_id: str | None = None
    gone: frozenset[Partition] = frozenset()
    split: Split | None = None
    unknown_since: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For Spark: equal offsets give equal texts."""
        content: dict[str, Any] = {"format": FORMAT}
        if self.source_id is not None:
            content["source"] = self.source_id
        content["offsets"] = _nested(self.positions)
        if self.starts:
            content["starts"] = _nested(self.starts)
        content["topic_ids"] = dict(sorted(self.topic_ids.items()))
        if self.gone:
            content["gone"] = {
                topic: [number for _, number in some]
                for topic, some in groupby(sorted(self.gone), key=lambda key: key[0])
            }
        if self.unknown_since:
            content["unknown_since"] = dict(sorted(self.unknown_since.items()))
        if self.split is not None:
            named = zip(_SPLIT_NAMES, self.split)
            content["split"] = {name: limit for name, limit in named if limit is not None}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SourceOffset:
        """From Spark. `Corrupt` when it is no offset of this source."""
        if content.get("format") != FORMAT:
            raise Corrupt(
                f"Expected an offset of holdfast-kafka, format {FORMAT}, found {json.dumps(content)[:200]}."
                " Another source or a newer Holdfast wrote this checkpoint: use that one, or a new checkpoint"
            )
        try:
            return cls(
                positions=_flat(content["offsets"]),
                starts=_flat(content.get("starts", {})),
                topic_ids=dict(content.get("topic_ids", {})),
                source_id=content.get("source"),
                gone=frozenset(
                    (topic, int(number)) for topic, some in content.get("gone", {}).items() for number in some
                ),
                split=_split(content.get("split")),
                unknown_since={topic: int(at_ms) for topic, at_ms in content.get("unknown_since", {}).items()},
            )
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise Corrupt(f"An offset of holdfast-kafka in the checkpoint is damaged ({error!r}): {content}") from None


def ranges_between(start: SourceOffset, end: SourceOffset) -> list[Range]:
    """What a batch reads: exactly what ``end`` says, whatever ``start`` is by now; unknown starts are left out."""
    ranges = []
    for (topic, partition), until in sorted(end.positions.items()):
        key = (topic, partition)
        since = end.starts.get(key, start.positions.get(key))
        if since is not None and since < until:
            ranges.append(Range(topic, partition, since, until, end.topic_ids.get(topic, "")))
    return ranges


def _nested(positions: Positions) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    flat = {(topic, int(number)): int(offset) for topic, by in nested.items() for number, offset in by.items()}
    for (topic, number), offset in flat.items():
        if offset < 0:
            raise ValueError(f"{topic}-{number} is at {offset}, expected 0 or more")
    return flat


def _split(named: Mapping[str, int] | None) -> Split | None:
    if named is None:
        return None
    found = Split(*(named.get(name) for name in _SPLIT_NAMES))
    for limit in found:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"a batch was split by {dict(named)}, expected whole numbers, 1 or more")
    return found
