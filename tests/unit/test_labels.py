"""Slot labels: even over the shuffle partitions, by Spark's own hash (compared with Spark in tests/integration)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from holdfast.spark.labels import spark_hash, spread_labels

# SELECT hash(0L), hash(1L), hash(-1L), hash(1099511627776L) in Spark 4.3
SPARK_HASHES = [-1670924195, -1712319331, -939490007, -1596767687]


@pytest.mark.parametrize(
    ("slots", "partitions"), [(1, 1), (2, 2), (1, 200), (200, 200), (8, 3), (7, 8), (64, 200), (4096, 500)]
)
def test_slots_spread_evenly(slots: int, partitions: int) -> None:
    labels = spread_labels(slots, partitions)
    assert len(set(labels)) == len(labels) == slots
    hashes = spark_hash(np.array(labels, np.int64)).astype(np.int64)
    assert [int(h) % partitions for h in hashes] == [slot % partitions for slot in range(slots)]
    counts = Counter(int(h) % partitions for h in hashes)
    assert max(counts.values()) - min(counts.get(p, 0) for p in range(partitions)) <= 1


OTHERS: dict[tuple[int, int], Iterable[int]] = {
    (8, 2): range(1, 9),
    (12, 4): range(1, 13),
    (16, 2): [*range(1, 13), 14, 15, 16],
    (64, 8): [16, 24, 32, 40, 64, 4, 2, 7],
    (200, 200): [100, 50, 40, 150, 7],
    (4096, 500): [250, 100, 1000, 1500, 3000],
}


@pytest.mark.parametrize(("slots", "partitions"), OTHERS)
def test_slots_spread_evenly_over_other_numbers_of_partitions_too(slots: int, partitions: int) -> None:
    """As a checkpoint has them that Spark has repartitioned."""
    hashes = spark_hash(np.array(spread_labels(slots, partitions), np.int64)).astype(np.int64)
    for other in OTHERS[slots, partitions]:
        assert [int(h) % other for h in hashes] == [slot % other for slot in range(slots)], other


def test_labels_do_not_change_between_runs_or_releases() -> None:
    assert spread_labels(4, 4) == spread_labels(4, 4)
    assert spark_hash(np.array([0, 1, -1, 1 << 40], np.int64)).tolist() == SPARK_HASHES
