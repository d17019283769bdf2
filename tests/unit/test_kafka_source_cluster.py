"""What the driver makes of brokers that know less than they will in a moment: nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.errors import Unavailable
from holdfast.source.kafka import cluster as cluster_module
from holdfast.source.kafka.bounds import EARLIEST, LATEST, Bound
from holdfast.source.kafka.cluster import Cluster, Topics
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.subscription import Partition

A, B = ("t", 0), ("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Of topic t, with two partitions; no broker is asked."""
    monkeypatch.setattr(cluster_module, "admin_client", lambda config: None)
    options = SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=True)
    made = Cluster(options)
    monkeypatch.setattr(made, "topics", lambda: Topics([A, B], {"t": "id"}))
    return made


def answer(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *answers: Mapping[Partition, int]) -> None:
    """What leaders say of offsets, question by question; the last answer stays."""
    left = list(answers)

    def list_offsets(specs: Mapping[Partition, Any], within_s: float, committed: bool | None = None) -> Any:
        said = left.pop(0) if len(left) > 1 else left[0]
        return {key: offset for key, offset in said.items() if key in specs}

    monkeypatch.setattr(cluster, "_list_offsets", list_offsets)


@pytest.mark.parametrize("bound", [EARLIEST, LATEST, Bound(timestamp_ms=5)])
def test_a_partition_whose_offsets_nobody_says_is_not_left_out_of_a_read(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, bound: Bound
) -> None:
    """A batch read skipped it and its rows; a stream that starts at the latest read it from its start later."""
    answer(monkeypatch, cluster, {A: 3})
    with pytest.raises(Unavailable, match=r"has t-1, but did not say its offsets"):
        cluster.resolve(bound, [A, B])
    answer(monkeypatch, cluster, {A: 3, B: 4})
    assert cluster.resolve(bound, [A, B]) == {A: 3, B: 4}


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    answer(monkeypatch, cluster, {A: 3}, {A: 3}, {A: 4, B: 4})
    assert cluster.available()[1] == {A: 4, B: 4}
    answer(monkeypatch, cluster, {A: 3})
    assert cluster.available()[1] == {A: 3}, "in the end it is told without it: the planner keeps its place"
