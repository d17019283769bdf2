"""What a processor knows of its batch: the same at every replay."""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import Any

import numpy as np
import pytest
from tests.unit.state_bench import make_context

from holdfast.errors import InvalidRequest
from holdfast.state import Counters


def test_time_is_the_batch_s_own() -> None:
    ctx = make_context(timestamp_ms=1_700_000_000_123)
    assert ctx.timestamp == dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.timezone.utc)
    assert ctx.timestamp_ms == 1_700_000_000_123


def test_times_before_1970() -> None:
    assert make_context(timestamp_ms=-1).timestamp == dt.datetime(
        1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.timezone.utc
    )


def test_a_time_past_what_a_datetime_holds_is_its_last_one() -> None:
    """One row of the year 57,964 moves Spark's watermark there: who asked for it as a datetime failed for ever."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=dt.timezone.utc)
    ctx = make_context(timestamp_ms=253_402_300_800_000, watermark_ms=1_767_000_000_000_000)
    assert (ctx.timestamp, ctx.watermark) == (last, last)
    assert ctx.watermark_ms == 1_767_000_000_000_000
    assert make_context(watermark_ms=253_402_300_799_999).watermark == last
    assert make_context(timestamp_ms=-(1 << 62)).timestamp == dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc)


def test_a_replay_draws_the_same_numbers() -> None:
    one, two = make_context(attempt=0), make_context(attempt=3)
    assert np.array_equal(one.random.integers(0, 1 << 60, 10), two.random.integers(0, 1 << 60, 10))


@pytest.mark.parametrize("other", [{"query_id": "q-2"}, {"operator": "others"}, {"batch_id": 2}, {"slot": 1}])
def test_another_slot_or_batch_draws_others(other: dict[str, Any]) -> None:
    one, two = make_context(), make_context(**other)
    assert not np.array_equal(one.random.integers(0, 1 << 60, 10), two.random.integers(0, 1 << 60, 10))


def test_numbers_go_on_within_a_batch() -> None:
    ctx = make_context()
    assert ctx.random is ctx.random
    assert ctx.random.random() != ctx.random.random()


def test_the_seed_is_of_all_releases() -> None:
    """A replay may run on the next release: what seeds it is fixed."""
    assert make_context().random.integers(0, 1 << 60) == 834473566351215654


def test_what_is_not_given() -> None:
    ctx = make_context()
    assert (ctx.watermark_ms, ctx.attempt) == (None, 0)
    assert isinstance(ctx.logger, logging.Logger)
    assert repr(ctx) == "Context(operator 'totals', slot 0 of 4, batch 1, attempt 0)"


def test_counters_add_up_by_name() -> None:
    counters = Counters()
    counters.add("late")
    counters.add("late", 4)
    counters.add("bytes", 0)
    assert counters.values == {"late": 5, "bytes": 0}
    counters.values["late"] = 0
    assert counters.values["late"] == 5
    assert make_context(counters=counters).counters is counters


def test_counters_used_as_pythons_are_say_what_to_call() -> None:
    counters: Any = Counters()
    with pytest.raises(InvalidRequest, match=r"counters\['late'\]: .* ctx.counters.add\('late', n\)"):
        counters["late"] += 1
    with pytest.raises(InvalidRequest, match=r"ctx\.counters\.add"):
        counters["late"] = 1
    with pytest.raises(InvalidRequest, match=r"ctx\.counters\.add"):
        del counters["late"]
    assert counters.values == {}


def test_a_counter_is_a_number_of_64_bits_under_a_short_name() -> None:
    counters = Counters()
    counters.add("rows", np.int64(3))
    counters.add("rows", True)
    counters.add("rows", -5)
    assert counters.values == {"rows": -1}
    assert json.dumps(counters.values) == '{"rows": -1}', "also what numpy counted"
    for name, n in (("rows", 1.5), ("rows", "1"), ("rows", None), (None, 1), (["rows"], 1), ("", 1), ("x" * 129, 1)):
        with pytest.raises(InvalidRequest, match="counters.add"):
            counters.add(name, n)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="64 bits"):
        counters.add("rows", (1 << 63) + 1)
    with pytest.raises(InvalidRequest, match="64 bits"):
        counters.add("rows", -(1 << 63))
    assert counters.values == {"rows": -1}


def test_a_counter_for_each_key_is_left_out_and_said() -> None:
    counters = Counters()
    for key in range(1000):
        counters.add(f"key {key}")
    counters.add("key 0")
    assert len(counters.values) == 64
    assert counters.values["key 0"] == 2, "those that there are go on"
    assert counters.left_out == 936
