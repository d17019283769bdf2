"""Offsets of the Kafka source, limits and splits: what holds for all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corrupt
from holdfast.source.kafka.admission import limited, split
from holdfast.source.kafka.offsets import Range, SourceOffset, Split, ranges_between

PARTITIONS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 12))
BAD_SPLIT = [
    {"format": 1, "offsets": {"t": {"0": 5}}, "split": split}
    for split in (5, [4], {"minPartitions": 0}, {"minPartitions": "4"}, {"maxRecordsPerPartition": True})
]
BAD_GONE = [{"format": 1, "offsets": {"t": {"0": 5}}, "gone": gone} for gone in (5, {"t": 5}, {"t": ["x"]})]
BAD_UNKNOWN = [{"format": 1, "offsets": {"t": {"0": 5}}, "unknown_since": since} for since in (5, ["t"], {"t": "x"})]
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 10**12), max_size=8)


@given(
    POSITIONS,
    POSITIONS,
    st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=5)),
    st.none() | st.text(),
    st.frozensets(PARTITIONS, max_size=4),
    st.none() | st.builds(Split, st.none() | st.integers(1), st.none() | st.integers(1)),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 10**14)),
)
def test_offsets_survive_sparks_log(
    positions: dict[tuple[str, int], int],
    starts: dict[tuple[str, int], int],
    ids: dict[str, str],
    source: str | None,
    gone: frozenset[tuple[str, int]],
    split_by: Split | None,
    unknown_since: dict[str, int],
) -> None:
    offset = SourceOffset(positions, starts, ids, source, gone, split_by, unknown_since)
    text = json.dumps(offset.to_json())
    again = SourceOffset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text, "Spark compares texts"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"format": 2},
        {"t": {"0": 1}},
        {"format": 1},
        {"format": 1, "offsets": {"t": 5}},
        *BAD_GONE,
        *BAD_UNKNOWN,
        *BAD_SPLIT,
    ],
)
def test_what_is_no_offset_of_this_source(content: dict[str, object]) -> None:
    with pytest.raises(Corrupt, match=r"offset of holdfast-kafka"):
        SourceOffset.from_json(content)


@pytest.mark.parametrize("where", ["offsets", "starts"])
def test_an_offset_below_zero_is_damaged_and_read_from_nowhere(where: str) -> None:
    """-1001 stood in checkpoints of queries that were started while a broker was away."""
    content = {"format": 1, "offsets": {"t": {"0": 5}}, where: {"t": {"0": -1001}}}
    with pytest.raises(Corrupt, match=r"t-0 is at -1001, expected 0 or more"):
        SourceOffset.from_json(content)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({}, None),  # as before a batch's split was kept
        ({"split": {}}, Split(None, None)),
        ({"split": {"minPartitions": 4, "maxRecordsPerPartition": 1000}}, Split(4, 1000)),
    ],
)
def test_the_form_of_today_is_read_for_ever(said: dict[str, Any], known: Split | None) -> None:
    content = {
        "format": 1,
        "source": "5f0c",
        "offsets": {"t": {"0": 17, "1": 3}},
        "starts": {"t": {"1": 2}},
        "topic_ids": {"t": "L66ZqLN4SduipjAxJCnRZQ"},
        **said,
    }
    offset = SourceOffset.from_json(content)
    assert offset.to_json() == content
    assert offset.split == known
    before = SourceOffset({("t", 0): 10, ("t", 1): 0})
    assert ranges_between(before, offset) == [
        Range("t", 0, 10, 17, "L66ZqLN4SduipjAxJCnRZQ"),
        Range("t", 1, 2, 3, "L66ZqLN4SduipjAxJCnRZQ"),
    ]


@given(
    st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1), st.integers(1, 900)
)
def test_limits(sizes: dict[tuple[str, int], tuple[int, int]], records_max: int) -> None:
    start = {key: since for key, (since, _) in sizes.items()}
    latest = {key: since + size for key, (since, size) in sizes.items()}
    ends = limited(start, latest, records_max)
    taken = {key: ends[key] - start[key] for key in ends}
    assert all(0 <= taken[key] <= sizes[key][1] for key in taken)
    assert all(taken[key] > 0 for key in taken if sizes[key][1] > 0), "none starves"
    assert sum(taken.values()) <= records_max + len(taken)
    if sum(size for _, size in sizes.values()) <= records_max:
        assert ends == latest


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 500)), min_size=1, max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 100),
)
def test_splits(sizes: list[tuple[int, int]], partitions_min: int | None, records_max: int | None) -> None:
    ranges = [Range("t", at, since, since + size) for at, (since, size) in enumerate(sizes)]
    parts = split(ranges, partitions_min, records_max)
    assert parts == split(ranges, partitions_min, records_max), "a replay splits in the same way"
    offsets = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert offsets == [(part.partition, offset) for part in ranges for offset in range(part.start, part.end)]
    if partitions_min is not None:
        assert len(parts) >= min(partitions_min, len(offsets))
    if records_max is not None:
        assert all(part.end - part.start <= records_max for part in parts)


@pytest.mark.parametrize(
    ("sizes", "partitions_min", "records_max", "ends"),
    [
        ([10, 20, 5], None, None, [10, 20, 5]),
        ([10, 20, 5], None, 8, [5, 10, 6, 13, 20, 5]),
        ([10, 20, 5], 9, None, [3, 6, 10, 4, 8, 12, 16, 20, 5]),
        ([10, 20, 5], 7, 8, [5, 10, 6, 9, 13, 20, 5]),
        ([7, 7, 7], 4, None, [3, 7, 7, 7]),
        ([2, 1], 9, None, [1, 2, 1]),
    ],
)
def test_splits_of_today_are_made_for_ever(
    sizes: list[int], partitions_min: int | None, records_max: int | None, ends: list[int]
) -> None:
    """What a task wrote is known by its number: a later version that cut otherwise would write other rows there."""
    ranges = [Range("t", at, 0, size) for at, size in enumerate(sizes)]
    assert [part.end for part in split(ranges, partitions_min, records_max)] == ends
