"""Reading one range: every visible record in it, once, in order, whatever lies between."""

from __future__ import annotations

import ctypes
import random
import re
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, eventually, read_all, values

from holdfast.errors import Corrupt, Unavailable
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.reading import read_range


def test_columns_are_those_of_sparks_own_source(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(
        topic, [b"v", None, b""], key=b"k", headers=[("a", b"1"), ("a", None)], timestamp_ms=1_700_000_000_123
    )
    kafka.produce(topic, [b"w"], timestamp_ms=1)
    table = read_all(kafka.source(subscribe=topic, includeHeaders=True), Range(topic, 0, 0, 4), pool)
    assert table.column_names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    first, last = table.slice(0, 1).to_pylist()[0], table.slice(3, 1).to_pylist()[0]
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=timezone.utc),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }
    assert table["value"].to_pylist() == [b"v", None, b"", b"w"]
    assert (last["key"], last["headers"], last["offset"]) == (None, None, 3)


def test_the_brokers_own_timestamps_are_told_apart(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic(message__timestamp__type="LogAppendTime")
    kafka.produce(topic, [b"v"], timestamp_ms=1)
    row = read_all(kafka.source(subscribe=topic), Range(topic, 0, 0, 1), pool).to_pylist()[0]
    assert row["timestampType"] == 1
    assert row["timestamp"] > datetime(2020, 1, 1, tzinfo=timezone.utc)


def produce_with_header(servers: str, topic: str, name: bytes) -> None:
    """One record, by librdkafka itself: its Python client takes texts only for names of headers."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (library,) = folder.glob("librdkafka-*")
    client = ctypes.CDLL(str(library))
    for function in (client.rd_kafka_conf_new, client.rd_kafka_new):
        function.restype = ctypes.c_void_p
    config, said = ctypes.c_void_p(client.rd_kafka_conf_new()), ctypes.create_string_buffer(500)
    assert client.rd_kafka_conf_set(config, b"bootstrap.servers", servers.encode(), said, 500) == 0, said.value
    producer = ctypes.c_void_p(client.rd_kafka_new(0, config, said, ctypes.c_size_t(500)))
    assert producer, said.value
    copied = (7, 2)  # RD_KAFKA_VTYPE_MSGFLAGS, RD_KAFKA_MSG_F_COPY
    parts = (*copied, 1, topic.encode(), 4, b"v", ctypes.c_size_t(1), 9, name, b"h", ctypes.c_ssize_t(1), 0)
    assert client.rd_kafka_producev(producer, *parts) == 0
    assert client.rd_kafka_flush(producer, 30_000) == 0
    client.rd_kafka_destroy(producer)


def test_a_header_whose_name_is_no_text_is_an_error_that_names_the_record(
    kafka: KafkaWorld, pool: ConsumerPool
) -> None:
    """It was a SystemError in each attempt, and named nothing."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 3), headers=[("a", b"1")])
    produce_with_header(kafka.servers, topic, "é".encode())
    produce_with_header(kafka.servers, topic, "é".encode("latin-1"))
    kafka.produce(topic, values(5, 8), headers=[("a", b"1")])
    with_headers = kafka.source(subscribe=topic, includeHeaders=True)
    table = read_all(with_headers, Range(topic, 0, 0, 4), pool)
    assert table["headers"].to_pylist()[3] == [{"key": "é", "value": b"h"}]
    with pytest.raises(Corrupt, match=rf"{topic}-0: the record at offset 4 has a header .* without includeHeaders"):
        read_all(with_headers, Range(topic, 0, 0, 8), pool)
    assert read_all(kafka.source(subscribe=topic), Range(topic, 0, 0, 8), pool).num_rows == 8


def test_any_range_of_any_log(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """Plain, committed and aborted stretches at random; every range reads what it should, also one after another."""
    draw = random.Random(7)
    topic = kafka.topic()
    visible: dict[int, bytes] = {}
    offset = 0
    for stretch in range(12):
        content = [f"{stretch}/{at}".encode() for at in range(draw.choice([1, 2, 50, 400]))]
        kind = draw.choice(["plain", "committed", "aborted"])
        if kind == "plain":
            kafka.produce(topic, content)
        else:
            kafka.transaction(topic, content, commit=kind == "committed")
        if kind != "aborted":
            visible.update(enumerate(content, offset))
        offset += len(content) + (kind != "plain")
    options = kafka.source(subscribe=topic)
    edges = sorted({0, offset, *(draw.randrange(offset) for _ in range(25))})
    ranges = [Range(topic, 0, a, b) for a, b in pairwise(edges)]
    shuffled = draw.sample(ranges, len(ranges))
    for part in [*ranges, *shuffled, Range(topic, 0, 0, offset)]:
        found = [
            (at, value)
            for batch in read_range(options, part, pool)
            for at, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist())
        ]
        assert found == [(at, value) for at, value in sorted(visible.items()) if part.start <= at < part.end], part


def test_read_uncommitted_sees_aborted_records(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.transaction(topic, [b"a", b"b"], commit=False)
    level: dict[str, Any] = {"kafka.isolation.level": "read_uncommitted"}
    uncommitted = kafka.source(subscribe=topic, **level)
    assert read_all(uncommitted, Range(topic, 0, 0, 3), pool)["value"].to_pylist() == [b"a", b"b"]


def test_a_compacted_log_has_gaps(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic(
        cleanup__policy="compact",
        segment__ms="100",
        min__cleanable__dirty__ratio="0.01",
        max__compaction__lag__ms="100",
    )
    options = kafka.source(subscribe=topic)

    def compacted() -> bool:
        kafka.produce(topic, values(0, 20), key=b"same")
        end = kafka.end_of(topic)
        found = [
            value
            for batch in read_range(options, Range(topic, 0, 0, end), pool)
            for value in batch["value"].to_pylist()
        ]
        assert found[-1] == b"v19"
        return len(found) < end

    eventually(compacted, within_s=90)


def test_consumers_live_on_and_keep_what_they_prefetched(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 300))
    options = kafka.source(subscribe=topic)
    clients = set()
    for start in range(0, 300, 100):
        assert read_all(options, Range(topic, 0, start, start + 100), pool)["value"].to_pylist() == values(
            start, start + 100
        )
        (consumer,) = pool._idle
        clients.add(id(consumer.client))
    assert len(clients) == 1


def test_a_task_that_stops_half_way_leaves_the_pool_in_order(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 30_000))
    options = kafka.source(subscribe=topic)
    abandoned: Any = read_range(options, Range(topic, 0, 0, 30_000), pool)
    next(abandoned)
    abandoned.close()
    assert read_all(options, Range(topic, 0, 5, 25_000), pool)["value"].to_pylist() == values(5, 25_000)


def test_large_messages_come_in_small_batches(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [bytes([number]) * 900_000 for number in range(70)])
    batches = list(read_range(kafka.source(subscribe=topic), Range(topic, 0, 0, 70), pool))
    assert [value[0] for batch in batches for value in batch["value"].to_pylist()] == list(range(70))
    # Less than a batch's worth was pending, and librdkafka queues about as much again.
    assert max(batch.nbytes for batch in batches) < 48 << 20


@pytest.mark.parametrize("first", [40, 100])
def test_retention_overtakes_the_reader(kafka: KafkaWorld, pool: ConsumerPool, first: int) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 100))
    kafka.delete_before(topic, first)
    part = Range(topic, 0, 10, 60)
    with pytest.raises(
        Corrupt, match=rf"{topic}-0 \[10, 60\).*offset 10 is not there.*\[{first}, 100\).*failOnDataLoss"
    ):
        list(read_range(kafka.source(subscribe=topic), part, pool))
    lossy = kafka.source(subscribe=topic, failOnDataLoss="false")
    found = [value for batch in read_range(lossy, part, pool) for value in batch["value"].to_pylist()]
    assert found == values(min(first, 60), 60)


def test_silence_is_an_error_in_the_end(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    short: dict[str, Any] = {"kafkaConsumer.pollTimeoutMs": "800", "kafka.fetch.wait.max.ms": "100"}
    options = kafka.source(subscribe=topic, **short)
    open_transaction = kafka.begin(topic, [b"v"])
    try:
        with pytest.raises(Unavailable, match=rf"{topic}-0 \[0, 1\).*800 ms \(kafkaConsumer.pollTimeoutMs\)"):
            list(read_range(options, Range(topic, 0, 0, 1), pool))
    finally:
        open_transaction.abort_transaction(30)


def test_a_watched_client_says_how_far_it_has_skipped(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """By which tests/model/test_kafka_reading_model.py goes on past aborted records for as long as it takes."""
    topic = kafka.topic()
    kafka.transaction(topic, values(0, 300), commit=False)
    wanted = Range(topic, 0, 0, 301)
    consumer = pool.lease(kafka.source(subscribe=topic).client, wanted)
    pool.watch(consumer, wanted, 200)
    seen = []

    def has_skipped() -> bool:
        message = consumer.client.poll(0.1)
        seen.extend([] if message is None or message.error() else [message])
        return consumer.fetched_to == 301

    eventually(has_skipped)
    assert not seen and consumer.cursor.position == 0, "nothing visible came, and nothing is proven by it"
    pool.give_back(consumer, intact=False)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_record_that_the_brokers_disk_has_changed_is_an_error_with_its_place(
    kafka: KafkaWorld, pool: ConsumerPool, codec: str, fail: str
) -> None:
    """It was handed out as it was by then, without a word: brokers send what is in their files as it is."""
    topic = kafka.topic(compression__type=codec)
    for start in (10, 20, 30):
        kafka.produce(topic, values(start, start + 10, prefix="value-"))
    [log] = kafka.broker.data.rglob(f"{topic}-0/*.log")
    with log.open("r+b") as file:
        content = file.read()
        _, second, _ = (found.start() for found in re.finditer(b"value-.5|\x1f\x8b", content))
        at = second + 6 if codec == "uncompressed" else second + 20
        file.seek(at)
        file.write(bytes([content[at] ^ 0x40]))
    options = kafka.source(subscribe=topic, failOnDataLoss=fail)
    assert read_all(options, Range(topic, 0, 0, 10), pool)["value"].to_pylist() == values(10, 20, prefix="value-")
    with pytest.raises(Corrupt, match=rf"{topic}-0 .* from offset 10 on is damaged: .*offset 10 "):
        read_all(options, Range(topic, 0, 5, 25), pool)
