"""The map side: every row once, in its slot, in its order, in blobs that keep to their limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from holdfast import _core
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.spark.blobs import Blob
from holdfast.spark.pack import BALLAST_EVERY_BYTES, Pack, PackPlan, messages

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.int64())])
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def plan(**changes: Any) -> PackPlan:
    defaults: dict[str, Any] = {
        "operator": "totals",
        "schema": SCHEMA,
        "key_schema": pa.schema([SCHEMA.field("user")]),
        "null_keys": False,
        "max_parallelism": 64,
        "labels": lambda: (),
        "event_time_column": None,
        "memory_max_bytes": 1 << 20,
        "blob_max_bytes": 1 << 20,
        "arrow_rows_max": 10_000,
    }
    return PackPlan(**{**defaults, **changes})


def batches(rows: int, step: int, users: int = 50) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, step):
        ids = range(start, min(start + step, rows))
        yield pa.record_batch(
            [[f"user{i % users}" for i in ids], [START + timedelta(seconds=i) for i in ids], list(ids)], schema=SCHEMA
        )


def packed(
    pack_plan: PackPlan, labels: tuple[int, ...], source: Iterator[pa.RecordBatch], partition: int = 0
) -> list[pa.RecordBatch]:
    return list(Pack(pack_plan, labels, partition).run(source))


def slot_rows(rows: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> dict[int, list[tuple[Blob, pa.RecordBatch]]]:
    found: dict[int, list[tuple[Blob, pa.RecordBatch]]] = {}
    for row_batch in rows:
        for label, data in zip(row_batch.column(0).to_pylist(), row_batch.column(2)):
            if data.is_valid:
                blob = Blob.open(data.as_buffer(), "test")
                found.setdefault(label, []).append((blob, blob.read(schema)))
    return found


@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("memory_max_bytes", [1, 20_000, 1 << 30])
def test_every_row_is_in_its_slot_once_and_in_order(slots: int, memory_max_bytes: int) -> None:
    labels = tuple(100 + slot for slot in range(slots))
    found = slot_rows(packed(plan(memory_max_bytes=memory_max_bytes), labels, batches(5_000, 700), partition=9))
    amounts: list[int] = []
    codec = _core.KeyCodec(pa.schema([SCHEMA.field("user")]))
    for label, blobs in found.items():
        assert [blob.sequence for blob, _ in blobs] == list(range(len(blobs)))
        assert {blob.map_partition for blob, _ in blobs} == {9}
        rows = pa.Table.from_batches([batch for _, batch in blobs])
        assert rows["amount"].to_pylist() == sorted(rows["amount"].to_pylist())
        groups = pa.array(codec.key_groups(rows.select(["user"]).combine_chunks().to_batches()[0], 64)).to_pylist()
        assert {_core.slot_of(group, 64, slots) for group in groups} == {label - 100}
        amounts += rows["amount"].to_pylist()
    assert sorted(amounts) == list(range(5_000))


def test_no_input_gives_no_rows() -> None:
    assert packed(plan(event_time_column="ts"), (1, 2), iter([])) == []
    assert (
        packed(
            plan(event_time_column="ts"),
            (1, 2),
            iter([SCHEMA.empty_table().to_batches()[0]] if SCHEMA.empty_table().to_batches() else []),
        )
        == []
    )


@pytest.mark.parametrize("blob_max_bytes", [4096, 10_000, 1 << 20])
def test_no_blob_is_larger_than_its_limit(blob_max_bytes: int) -> None:
    rows = packed(plan(blob_max_bytes=blob_max_bytes), (1, 2), batches(20_000, 10_000))
    sizes = [blob.data.size - 40 for blobs in slot_rows(rows).values() for blob, _ in blobs]
    assert max(sizes) <= blob_max_bytes
    assert sum(sizes) / len(sizes) > min(blob_max_bytes / 2, 50_000)


def test_one_long_row_is_a_blob_of_its_own() -> None:
    wide = pa.record_batch([["a", "b" * 50_000, "c"], [START] * 3, [1, 2, 3]], schema=SCHEMA)
    parts = list(messages(wide, 4096))
    assert [rows for rows, _ in parts] == [1, 1, 1]
    assert parts[1][1].size > 50_000


def test_small_limits_end() -> None:
    assert sum(rows for rows, _ in messages(next(batches(100, 100)), 8)) == 100


def test_blobs_are_followed_by_ballast_in_proportion() -> None:
    rows = packed(plan(arrow_rows_max=1_000_000), (5, 6), batches(20_000, 10_000))
    found_in = slot_rows(rows)
    assert set(found_in) == {5, 6}
    for label, blobs in found_in.items():
        nulls = sum(
            1
            for batch in rows
            for found, data in zip(batch.column(0).to_pylist(), batch.column(2))
            if found == label and not data.is_valid
        )
        expected = sum(blob.data.size for blob, _ in blobs) * 1_000_000 / BALLAST_EVERY_BYTES
        assert expected * 0.95 - len(blobs) <= nulls <= expected


def test_the_watermark_travels_in_one_marker_row() -> None:
    rows = packed(plan(event_time_column="ts", memory_max_bytes=5_000), (5, 6), batches(1_000, 100))
    table = pa.Table.from_batches(rows)
    marked = table.filter(table["event_time"].is_valid())
    assert marked.to_pylist() == [{"slot": 5, "event_time": START + timedelta(seconds=999), "blob": None}]


YEAR_US = 31_556_952_000_000
YEAR_ONE_US = -62_135_596_800_000_000


@pytest.mark.parametrize(
    ("times_us", "marked_us"),
    [
        ([YEAR_ONE_US], None),
        ([-1], None),
        ([0], 0),
        ([YEAR_ONE_US, 5], 5),
        ([(9999 - 1970) * YEAR_US], 9_223_286_400_000_000),
        ([(57_964 - 1970) * YEAR_US], 9_223_286_400_000_000),
        ([9_223_286_400_000_000], 9_223_286_400_000_000),
    ],
)
@pytest.mark.parametrize("memory_max_bytes", [1, 1 << 20])
def test_the_marker_carries_no_time_that_the_slot_cannot_read(
    times_us: list[int], marked_us: int | None, memory_max_bytes: int
) -> None:
    """Spark hands it to the slot as pandas nanoseconds, in the session's time zone: past them the query was lost."""
    times = pa.array(times_us, pa.int64()).cast(SCHEMA.field("ts").type)
    source = pa.record_batch([["a"] * len(times), times, times_us], schema=SCHEMA)
    rows = packed(plan(event_time_column="ts", memory_max_bytes=memory_max_bytes), (5,), iter([source, source]))
    found = pa.Table.from_batches(rows)["event_time"].drop_null().cast(pa.int64()).to_pylist()
    assert found == ([] if marked_us is None else [marked_us])
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        pa.array(found, pa.timestamp("us", zone)).to_pandas(coerce_temporal_nanoseconds=True).dt.tz_localize(None)
    assert [rows["amount"].to_pylist() for _, rows in slot_rows(rows)[5]] in ([times_us] * 2, [times_us * 2])


def test_null_event_times_make_no_marker() -> None:
    nulls = pa.record_batch([["a"], [None], [1]], schema=SCHEMA)
    table = pa.Table.from_batches(packed(plan(event_time_column="ts"), (5, 6), iter([nulls])))
    assert table["event_time"].null_count == len(table) == 1


@pytest.mark.parametrize("slots", [1, 3])
def test_a_null_key_is_refused_unless_allowed(slots: int) -> None:
    nulls = pa.record_batch([["a", None], [START] * 2, [1, 2]], schema=SCHEMA)
    labels = tuple(range(slots))
    with pytest.raises(HoldfastError, match="null"):
        packed(plan(), labels, iter([nulls]))
    found = slot_rows(packed(plan(null_keys=True), labels, iter([nulls])))
    assert sum(batch.num_rows for blobs in found.values() for _, batch in blobs) == 2


def test_batches_are_brought_to_the_planned_schema() -> None:
    local = pa.schema(
        [("user", pa.large_string()), ("ts", pa.timestamp("us", "America/New_York")), ("amount", pa.int64())]
    )
    source = pa.Table.from_batches(list(batches(100, 100))).cast(local).to_batches()
    found = slot_rows(packed(plan(), (1,), iter(source)))
    assert pa.Table.from_batches([batch for _, batch in found[1]]).equals(
        pa.Table.from_batches(list(batches(100, 100)))
    )


def test_other_columns_are_an_error() -> None:
    other = pa.record_batch([["a"], [1]], names=["user", "amount"])
    with pytest.raises(InvalidRequest, match="input: the columns are"):
        packed(plan(), (1,), iter([other]))


def test_composite_keys_take_their_columns_in_order() -> None:
    keys = pa.schema([SCHEMA.field("amount"), SCHEMA.field("user")])
    found = slot_rows(packed(plan(key_schema=keys), (1, 2, 3), batches(300, 100)))
    assert sorted(a for blobs in found.values() for _, b in blobs for a in b["amount"].to_pylist()) == list(range(300))


def test_slots_with_timers_are_woken_by_the_first_partition_alone():
    labels = (4, 8, 15)
    rows = packed(plan(wakes=lambda: True), labels, batches(3, 3, users=1))
    assert [row for batch in rows for row in batch.column(0).to_pylist()][-3:] == [4, 8, 15]
    assert rows[-1].column(1).null_count == rows[-1].column(2).null_count == 3
    assert len(slot_rows(rows)) == 1
    assert [batch.num_rows for batch in packed(plan(wakes=lambda: True), labels, iter(()))] == [3]
    assert packed(plan(wakes=lambda: True), labels, iter(()), partition=1) == []
    assert packed(plan(), labels, iter(())) == []
