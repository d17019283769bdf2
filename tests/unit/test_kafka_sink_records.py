"""Rows become records: keys, values, headers, topics, partitions; JSON against Python's own."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples

from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest
from holdfast.sink.kafka.json_text import json_objects, json_string
from holdfast.sink.kafka.layout import ROWS_AT_ONCE, Columns, Layout, Records
from holdfast.sink.kafka.sending import SendingProducer

COLUMNS = Columns(key="key", value="value", headers=None, topic=None, partition=None)


def columns(**given: Any) -> Columns:
    return Columns(**{**vars(COLUMNS), **given})


def records(
    table: dict[str, Any], value_format: str | None = None, schema: pa.Schema | None = None, **given: Any
) -> Records:
    batch = pa.RecordBatch.from_pydict(table, schema=schema)
    [found] = Layout(columns(**given), value_format, batch.schema).records(batch)
    return found


def test_binary_and_text_go_as_they_are() -> None:
    found = records({"key": ["a", None], "value": [b"\x00\xff", None]})
    assert list(found.keys or ()) == [b"a", None]
    assert list(found.values) == [b"\x00\xff", None]
    assert found.size_bytes == 3
    assert list(records({"key": [b"k"], "value": ["Grüße"]}).values) == ["Grüße".encode()]


def test_other_types_are_json() -> None:
    found = records({"key": [1, None], "value": [{"a": 1}, None]})
    assert list(found.keys or ()) == [b"1", None]
    assert list(found.values) == [b'{"a":1}', None], "a null in the one value column is a tombstone"


def test_text_can_be_asked_for_as_json() -> None:
    assert list(records({"key": ["k"], "value": ['say "hi"']}, "json").values) == [b'"say \\"hi\\""']


def test_several_columns_are_one_object() -> None:
    table = {"key": ["k", "l"], "a": [1, None], "b": ["x", "y"], "c": [True, False]}
    assert list(records(table, value=("b", "a")).values) == [b'{"b":"x","a":1}', b'{"b":"y","a":null}']
    assert records(table, value="*").values[0] == b'{"a":1,"b":"x","c":true}'
    assert records(table, value="*", key=None).values[1] == b'{"key":"l","a":null,"b":"y","c":false}'


def test_topic_partition_and_headers_come_from_columns() -> None:
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.string()),
            ("to", pa.string()),
            ("at", pa.int64()),
            ("heads", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    table = {
        "key": ["a", "b", "c"],
        "value": ["1", "2", "3"],
        "to": ["x", "y", "x"],
        "at": [3, None, 0],
        "heads": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None],
    }
    found = records(table, schema=schema, topic="to", partition="at", headers="heads")
    assert list(found.topics or ()) == ["x", "y", "x"]
    assert list(found.partitions or ()) == [3, -1, 0]
    assert list(found.headers or ()) == [[("h", b"1"), ("h", None)], None, None]


def test_headers_may_be_a_map_of_text() -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("h", pa.map_(pa.string(), pa.string()))])
    found = records({"key": ["a"], "value": ["1"], "h": [[("x", "é"), ("y", None)]]}, schema=schema, headers="h")
    assert list(found.headers or ()) == [[("x", "é".encode()), ("y", None)]]


HEADS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("kind", [HEADS, pa.map_(pa.string(), pa.binary())], ids=["list", "map"])
def test_another_sinks_mark_that_came_with_the_input_is_left_out(kind: pa.DataType) -> None:
    """It was passed on, and the deduplication that the guide shows went by it: it dropped rows never shown."""
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("heads", kind)])
    mark, other = ("holdfast-dedup", b"other-query:kafka:7:0:0"), ("h", b"1")
    heads = [[mark, other], [other, mark, mark], [mark], [other]]
    given: list[Any] = [list(dict(row).items()) for row in heads]
    if kind is HEADS:
        given = [[{"key": name, "value": value} for name, value in row] for row in heads]
    found = records({"key": list("abcd"), "value": list("1234"), "heads": given}, schema=schema, headers="heads")
    assert list(found.headers or ()) == [[other], [other], None, [other]]


class Message:
    """One of partition 0, as a consumer gives it."""

    def __init__(self, *marks: str) -> None:
        self._marks = marks

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("holdfast-dedup", mark.encode()) for mark in self._marks] or None

    def partition(self) -> int:
        return 0


def test_the_example_goes_by_the_mark_of_the_sink_that_wrote_the_record() -> None:
    """Earlier releases passed on, behind their own, what came with the input."""
    program = Path(__file__).resolve().parents[2] / "examples" / "dedup.py"
    is_repeat = runpy.run_path(str(program))["is_repeat"]
    input_row = "first-query:kafka:7:0:0"
    first, second = (Message(f"second-query:kafka:0:0:{index}", input_row) for index in range(2))
    assert [is_repeat(one) for one in (first, second, first, Message())] == [False, False, True, False]


@pytest.mark.parametrize("heads", [[None], [{"key": None, "value": b"1"}]], ids=["null", "no name"])
def test_a_header_without_a_name_is_refused(heads: list[Any]) -> None:
    """Kafka's client wrote it as one whose name is the text None."""
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("heads", HEADS)])
    with pytest.raises(InvalidRequest, match="Column 'heads' has headers, and one of them is null, or has no name"):
        records({"key": ["a"], "value": ["1"], "heads": [heads]}, schema=schema, headers="heads")


def test_headers_whose_fields_stand_in_another_order_are_refused() -> None:
    """Both are text, and were taken for each other."""
    turned = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("heads", turned)])
    with pytest.raises(InvalidRequest, match="headers='heads': expected array<struct<key string"):
        records({"key": ["a"], "value": ["1"], "heads": [[]]}, schema=schema, headers="heads")


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        ({"value": ["1"]}, {}, r"KafkaSink\(key='key'\): expected one column of this name, found 0.*Pass key=None"),
        ({"key": ["k"]}, {}, r"KafkaSink\(value='value'\).*There are key"),
        ({"key": ["k"], "value": [1]}, {"value_format": "bytes"}, "value='value': expected binary, found int64"),
        ({"key": ["k"], "value": [b"1"]}, {"value_format": "string"}, "expected string, found binary"),
        ({"key": ["k"], "value": ["1"], "x": ["1"]}, {"value": ("value", "x"), "value_format": "string"}, "one column"),
        ({"key": ["k"], "value": ["1"], "to": [None]}, {"topic": "to"}, "expected string, found null"),
        ({"key": ["k"], "value": ["1"], "at": ["1"]}, {"partition": "at"}, "expected a whole number, found string"),
        ({"key": ["k"], "value": ["1"], "h": ["1"]}, {"headers": "h"}, "expected array<struct<key string"),
        ({"key": ["k"], "value": [dt.timedelta(1)]}, {}, "'value' is duration.* has no JSON form"),
        ({"key": ["k"]}, {"value": "*"}, "takes all columns that are nothing else, and there are none"),
        ({"key": ["k"], "value": ["1"], "to": ["x"], "at": [-1]}, {"partition": "at"}, "negative in some row"),
        (
            {"key": ["k", "l"], "value": ["1", "2"], "at": [3_000_000_000, None]},
            {"partition": "at"},
            "'at' names the partition of each record, and it is 3000000000, more than .* in some row",
        ),
        ({"key": ["k"], "value": ["1"], "to": [""]}, {"topic": "to"}, "null or empty in some row"),
    ],
)
def test_what_does_not_fit_is_refused(table: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        records(table, **given)


def test_a_large_batch_comes_in_parts_in_its_order() -> None:
    count = 2 * ROWS_AT_ONCE + 7
    batch = pa.RecordBatch.from_pydict({"key": [str(n) for n in range(count)], "value": [str(n) for n in range(count)]})
    parts = list(Layout(COLUMNS, None, batch.schema).records(batch))
    assert [len(part) for part in parts] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 7]
    assert [int(value or b"") for part in parts for value in part.values] == list(range(count))


class GrownTopic:
    """A client that looked at its topic when it had one partition; it has two since."""

    def __init__(self) -> None:
        self.known, self.asked, self.sent = 1, 0, list[int]()

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, headers: Any = None) -> None:
        if partition >= self.known:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.sent.append(partition)

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.known, self.asked = 2, self.asked + 1
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def poll(self, timeout: float) -> None:
        pass


def test_a_partition_that_the_client_does_not_know_is_asked_for_before_its_rows_are_refused() -> None:
    """The client looks every five minutes: for so long, rows of a partition that was added were refused for good."""
    producer = SendingProducer({"bootstrap.servers": "broker:9092"}, "Producer", SystemClock())
    producer.client = client = GrownTopic()

    def send(*partitions: int) -> None:
        count = len(partitions)
        producer.send(Records([b"v"] * count, [b"k"] * count, None, None, partitions, 2 * count), "t", None)

    send(0, 1, 0, 1)
    assert (client.sent, client.asked) == ([0, 1, 0, 1], 1)
    with pytest.raises(InvalidRequest, match="a record cannot be written.*See the partition column"):
        send(0, 2)
    assert (client.sent, client.asked) == ([0, 1, 0, 1, 0], 2)


# --- JSON ---------------------------------------------------------------------------------------------------------

TYPES = pa.schema(
    [
        ("int", pa.int64()),
        ("small", pa.int8()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bool", pa.bool_()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("decimal", pa.decimal128(18, 3)),
        ("list", pa.list_(pa.int32())),
        ("struct", pa.struct([("x", pa.string()), ("y", pa.list_(pa.float64()))])),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("lists", pa.list_(pa.list_(pa.string()))),
    ]
)
_text = st.text(st.characters(codec="utf-8"), max_size=12)
_float = st.floats(allow_nan=True, allow_infinity=True)
_row = st.fixed_dictionaries(
    {
        "int": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "float": st.none() | _float,
        "text": st.none() | _text,
        "bool": st.none() | st.booleans(),
        "bytes": st.none() | st.binary(max_size=8),
        "date": st.none() | st.dates(),
        "decimal": st.none() | st.decimals(-(10**12), 10**12, places=3),
        "list": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "struct": st.none()
        | st.fixed_dictionaries({"x": st.none() | _text, "y": st.none() | st.lists(_float, max_size=2)}),
        "map": st.none()
        | st.lists(st.tuples(_text, st.none() | st.integers(0, 9)), max_size=3, unique_by=lambda e: e[0]),
        "lists": st.none() | st.lists(st.none() | st.lists(st.none() | _text, max_size=2), max_size=3),
    }
)


def plain(value: Any) -> Any:
    """What JSON should read back as."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_row, min_size=1, max_size=5), st.integers(0, 4))
def test_json_reads_back_as_what_was_written(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, TYPES).slice(start)
    expected = [
        {name: dict(value) if name == "map" and value is not None else plain(value) for name, value in row.items()}
        for row in rows[start:]
    ]
    assert [json.loads(text) for text in json_objects(TYPES.names, batch.columns).to_pylist()] == expected


def test_times_are_iso_8601_and_those_with_a_zone_are_in_utc() -> None:
    moment = dt.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)
    stamps = [
        pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
        pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
        pa.array([moment], pa.timestamp("ms", "UTC")),
    ]
    [text] = json_objects(["zone", "local", "ms"], stamps).to_pylist()
    assert json.loads(text) == {
        "zone": "2024-07-01T12:00:00.123456Z",
        "local": "2024-07-01T12:00:00.123456",
        "ms": "2024-07-01T12:00:00.123Z",
    }


def days_of(year: int) -> int:
    """Days from 1970 to the first of a year that ``datetime`` does not know: 400 years have 146,097."""
    eras, within = divmod(year - 1, 400)
    return 146_097 * eras + dt.date(1 + within, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()


KINDS_OF_TIME = [
    pa.date32(),
    pa.date64(),
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us", "Europe/Berlin"),
]


def times_of(kind: pa.DataType, days: list[int | None], ticks: int = 0) -> pa.Array:
    """The first moment of these days, or some of the type's own ticks from it."""
    a_day = {"date32[day]": 1, "date64[ms]": 86_400_000}.get(str(kind)) or {
        "s": 86_400,
        "ms": 86_400_000,
        "us": 86_400_000_000,
    }[kind.unit]
    numbers = [None if day is None else day * a_day + ticks for day in days]
    return pa.array(numbers, pa.int32() if a_day == 1 else pa.int64()).view(kind)


@pytest.mark.parametrize("kind", KINDS_OF_TIME, ids=str)
@pytest.mark.parametrize(("year", "ticks"), [(32_768, 0), (200_000, 0), (-32_767, -1), (-200_000, 0)])
def test_a_time_that_arrow_has_no_text_for_is_refused(kind: pa.DataType, year: int, ticks: int) -> None:
    """Years past 32767 became negative ones, and dates words."""
    first = days_of(year)
    for column in (times_of(kind, [0, None, first], ticks), times_of(kind, [first], ticks)):
        with pytest.raises(InvalidRequest, match=r"^Column 'when' .*years from -32767 to 32767"):
            json_objects(["when"], [column])
    nested = pa.ListArray.from_arrays(pa.array([0, 1]), times_of(kind, [first], ticks))
    with pytest.raises(InvalidRequest, match=r"^Column 'whens' "):
        json_objects(["whens"], [nested])


@pytest.mark.parametrize("kind", KINDS_OF_TIME, ids=str)
def test_the_first_and_the_last_time_that_arrow_has_a_text_for(kind: pa.DataType) -> None:
    edges = pa.concat_arrays([times_of(kind, [days_of(-32_767), None]), times_of(kind, [days_of(32_768)], -1)])
    first, null, last = (json.loads(text)["when"] for text in json_objects(["when"], [edges]).to_pylist())
    assert (first[:12], null, last[:11]) == ("-32767-01-01", None, "32767-12-31")


def test_keys_of_maps_are_text() -> None:
    numbers = pa.array([[(1, "x"), (2, None)]], pa.map_(pa.int32(), pa.string()))
    assert json_objects(["m"], [numbers]).to_pylist() == ['{"m":{"1":"x","2":null}}']


@pytest.mark.parametrize(
    ("kind", "keys", "texts"),
    [
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": 'x"y'}], ['{"a":1,"b":"x\\"y"}']),
        (pa.list_(pa.string()), [['x"y'], [None], []], ['["x\\"y"]', "[null]", "[]"]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)]], ['{"a":1}']),
        (pa.list_(pa.float64()), [[float("nan"), 1.5]], ['["NaN",1.5]']),
        (pa.bool_(), [True], ["true"]),
        (pa.binary(), [b"ab"], ["YWI="]),
        (pa.float64(), [float("nan"), -1.5], ["NaN", "-1.5"]),
        (pa.date32(), [dt.date(2024, 7, 1)], ["2024-07-01"]),
    ],
    ids=str,
)
def test_keys_of_maps_that_are_no_text_are_their_json_in_quotes(
    kind: pa.DataType, keys: list[Any], texts: list[str]
) -> None:
    """The quotes inside of structs and arrays stood as they were: nobody could read the record."""
    column = pa.array([[(key, number) for number, key in enumerate(keys)]], pa.map_(kind, pa.int32()))
    [text] = json_objects(["m"], [column]).to_pylist()
    assert json.loads(text) == {"m": {name: number for number, name in enumerate(texts)}}


def test_dictionaries_are_their_values() -> None:
    assert json_objects(["d"], [pa.array(["a", None, "a"]).dictionary_encode()]).to_pylist() == [
        '{"d":"a"}',
        '{"d":null}',
        '{"d":"a"}',
    ]


@given(_text)
def test_names_are_escaped(name: str) -> None:
    assert json.loads(json_string(name)) == name


def test_no_rows_are_no_objects() -> None:
    assert json_objects(TYPES.names, [pa.nulls(0, field.type) for field in TYPES]).to_pylist() == []
