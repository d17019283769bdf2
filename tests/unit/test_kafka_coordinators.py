"""Names by which all coordinators of transactions are asked."""

from __future__ import annotations

import pytest

from holdfast.kafka.coordinators import partition_of, probes


@pytest.mark.parametrize(
    ("name", "hash_code"), [("", 0), ("hello", 99162322), ("Aa", 2112), ("polygenelubricants", -(1 << 31))]
)
def test_a_name_is_in_the_partition_that_java_gives_it(name: str, hash_code: int) -> None:
    assert partition_of(name, 50) == (0 if hash_code == -(1 << 31) else abs(hash_code) % 50)


@pytest.mark.parametrize("partitions", [1, 3, 50, 200])
def test_there_is_a_probe_for_each_partition(partitions: int) -> None:
    assert sorted(partition_of(name, partitions) for name in probes("holdfast-q-", partitions)) == list(
        range(partitions)
    )
