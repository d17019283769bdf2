"""How much one batch takes, and how it is split over tasks: arithmetic only, the same answer for the same input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from holdfast.source.kafka.offsets import Positions, Range
from holdfast.source.kafka.subscription import Partition


def limited(start: Positions, latest: Positions, records_max: int) -> dict[Partition, int]:
    """End positions that take about ``records_max`` offsets in all, each partition in proportion to what it has.

    As in Spark's own source, a partition with data always gets at least one, so that none starves.

    Parameters
    ----------
    start, latest
        Both have the same partitions, and ``latest`` is nowhere behind.
    """
    sizes = {key: latest[key] - start[key] for key in latest}
    total = sum(sizes.values())
    if total <= records_max:
        return dict(latest)
    ends = {}
    for key, size in sizes.items():
        share = records_max * size / total
        ends[key] = start[key] + min(size, math.ceil(share) if share < 1 else math.floor(share))
    return ends


def split(ranges: Sequence[Range], partitions_min: int | None, records_max: int | None) -> list[Range]:
    """Cut ranges so that there are at least ``partitions_min``, none with more than ``records_max`` offsets.

    A consumer is quickest on a whole range, so nothing is cut unless it is asked for. A replay by a later version must
    cut in the same way: docs/formats/kafka_offset.md.
    """
    if records_max is not None:
        ranges = [part for whole in ranges for part in _cut(whole, math.ceil((whole.end - whole.start) / records_max))]
    total = sum(whole.end - whole.start for whole in ranges)
    if partitions_min is None or len(ranges) >= partitions_min or total == 0:
        return list(ranges)
    parts: list[Range] = []
    for whole in ranges:
        parts += _cut(whole, max(1, round((whole.end - whole.start) / total * partitions_min)))
    # Rounding may leave a few short: halve the largest until there are enough, or nothing is left to halve.
    while len(parts) < partitions_min:
        largest = max(range(len(parts)), key=lambda at: parts[at].end - parts[at].start)
        if parts[largest].end - parts[largest].start < 2:
            break
        parts[largest : largest + 1] = _cut(parts[largest], 2)
    return parts


def _cut(whole: Range, count: int) -> list[Range]:
    size = whole.end - whole.start
    count = max(1, min(count, size))
    edges = [whole.start + size * part // count for part in range(count + 1)]
    return [whole._replace(start=since, end=until) for since, until in pairwise(edges)]
