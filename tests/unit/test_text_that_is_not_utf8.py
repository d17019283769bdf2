"""Spark's strings are any bytes; Python's, pandas' and JSON's are not: where they become these, the column is named."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import bind, make_context, make_store, users_error

import holdfast as hf
from holdfast.cli.rows import show_table
from holdfast.errors import InvalidRequest
from holdfast.sink.kafka.layout import Columns, Layout

OUT = pa.schema([("user", pa.string()), ("found", pa.string())])


def texts(*values: bytes | None) -> pa.Array:
    """As Spark has them."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


WRONG = texts(b"right", None, b"\xff\xfe", b"\xff")


def rows(**columns: Any) -> pa.RecordBatch:
    given = {"user": ["ada", "bob", "ada", "cyd"], **columns}
    return pa.record_batch(given)


class Tables(hf.KeyedProcessor):
    total = hf.ValueState(pa.string())

    def process(self, key: tuple[Any, ...], given: Any, ctx: hf.Context) -> Iterator[Any]:
        yield key[0], str(len(given))


class Frames(Tables):
    rows = "pandas"


class Reads(Tables):
    def process(self, key: tuple[Any, ...], given: Any, ctx: hf.Context) -> Iterator[Any]:
        yield key[0], self.total.value()


class Writes(hf.BatchProcessor):
    total = hf.ValueState(pa.string())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.put(batch, batch["text"])


def run(processor: Any, batch: pa.RecordBatch, store: Any = None) -> list[Any]:
    context = make_context()
    with bind(processor, OUT, store or make_store()) as bound:
        produced = [*bound.process(batch, context), *bound.finish(context)]
    return [tuple(row.values()) for _, out in produced for row in out.to_pylist()]


@pytest.mark.parametrize("wrap", [None, "list", "struct"])
def test_a_frame_of_such_text_is_refused_with_its_column_and_key(wrap: str | None) -> None:
    """Arrow's own error came through, which named neither: Wrapping … failed."""
    text: Any = WRONG
    if wrap == "list":
        text = pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), text)
    elif wrap == "struct":
        text = pa.StructArray.from_arrays([text], ["text"])
    batch = rows(amount=[1, None, 2, 3], text=text, other=["x"] * 4)
    assert run(Tables(), batch) == [("ada", "2"), ("bob", "1"), ("cyd", "1")]
    with pytest.raises(InvalidRequest, match=r"input column 'text': a value of .*rows = \"arrow\"") as caught:
        run(Frames(), batch)
    _, note = users_error(caught.value)
    assert "key ('ada',)" in note
    with pytest.raises(InvalidRequest) as caught:
        run(Frames(), batch[3:])
    assert "key ('cyd',)" in users_error(caught.value)[1]
    assert run(Frames(), batch[:2]) == [("ada", "1"), ("bob", "1")]


def test_a_key_and_a_state_of_such_text_are_refused_where_they_are_read() -> None:
    store = make_store()
    run(Writes(), rows(text=WRONG), store)
    with pytest.raises(InvalidRequest, match=r"state 'total': a value of string has no Python value"):
        run(Reads(), rows(text=WRONG), store)
    with pytest.raises(InvalidRequest, match=r"key column 'user': a value of string has no Python value"):
        run(Tables(), pa.record_batch({"user": WRONG[2:]}))


def test_timers_of_such_names_are_refused_where_they_fire_key_by_key() -> None:
    class Sets(hf.BatchProcessor):
        timers = hf.Timers("processing")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.timers.register(batch, ctx.timestamp + dt.timedelta(seconds=1), batch["text"])

        def on_timers(self, timers: Any, ctx: hf.Context) -> None: ...

    class Fires(hf.KeyedProcessor):
        timers = hf.Timers("processing")

        def process(self, key: tuple[Any, ...], given: Any, ctx: hf.Context) -> None: ...

        def on_timer(self, key: tuple[Any, ...], time: Any, namespace: str, ctx: hf.Context) -> None: ...

    store, context = make_store(), make_context(timestamp_ms=1_800_000_000_000)
    run(Sets(), rows(text=texts(b"a", b"b", b"\xff", b"c")), store)
    with pytest.raises(InvalidRequest, match="timers, namespaces: a value of string has no Python value"):
        with bind(Fires(), OUT, store) as bound:
            list(bound.finish(context))


KAFKA = Columns(key=None, value="value", headers=None, topic=None, partition=None)


@pytest.mark.parametrize(
    ("kafka", "table"),
    [
        ({"value": "*"}, {"n": [1] * 4, "bad": WRONG}),
        ({"value": ("bad",)}, {"bad": pa.StructArray.from_arrays([WRONG], ["bad"])}),
        ({"topic": "bad"}, {"value": [b""] * 4, "bad": texts(b"a", b"b", b"c", b"\xff")}),
        (
            {"headers": "bad"},
            {"value": [b""], "bad": pa.MapArray.from_arrays([0, 1], texts(b"\xff"), pa.array([b""]))},
        ),
    ],
)
def test_no_record_has_json_or_names_that_are_not_utf8(kafka: dict[str, Any], table: dict[str, Any]) -> None:
    batch = pa.record_batch(table)
    with pytest.raises(InvalidRequest, match="Column 'bad' has text that is not UTF-8"):
        list(Layout(Columns(**{**vars(KAFKA), **kafka}), None, batch.schema).records(batch))


def test_a_record_may_be_any_bytes() -> None:
    batch = pa.record_batch({"value": WRONG})
    [found] = Layout(KAFKA, None, batch.schema).records(batch)
    assert list(found.values) == [b"right", None, b"\xff\xfe", b"\xff"]


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_line_names_the_column(as_json: bool) -> None:
    with pytest.raises(InvalidRequest, match="column 'text': a value of string has no Python value.*--to"):
        show_table([rows(text=WRONG)], None, as_json)
