"""The Kafka sink against real brokers: what it owes beside the contract of all sinks (tests/contract/test_sink.py)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka.partitioner import murmur2
from tests.integration.kafka.conftest import PASSWORD
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_committed, read_messages, wait_until_stable

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, SinkTask, SinkWriter
from holdfast.errors import Fenced, Incompatible, InvalidRequest, Unavailable, Undecided
from holdfast.kafka.oauth import UnsecuredTokens
from holdfast.kafka.transactions import EMPTY, ONGOING, Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka.fitness import Fitness
from holdfast.testing import KafkaBroker

QUERY = "5b1fd7a2-6d4e-4b0a-9f56-7a5c1f0e9d11"
LIMITS = CommitLimits(trigger_ms=1000, retry_max_ms=120_000, retry_backoff_ms=100)
_numbers = itertools.count()


_claims: dict[tuple[str, str], Mapping[str, Any]] = {}


def scope(sink: KafkaSink, query: str = QUERY) -> Scope:
    """Of a driver that has claimed the sink: once for each name."""
    one, at = Scope(query, "run", 1, sink.name), (sink.name, str(sink.options.client["bootstrap.servers"]))
    if at not in _claims:
        Fitness(sink.options).check()
        _claims[at] = sink.claim(one, Driver("run", "localhost", 1, 0), [], lambda traces: None)
    return replace(one, claim=_claims[at])


def rows(first: int = 0, count: int = 2, **more: list[Any]) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict({"key": [f"k{n}" for n in numbers], "value": [f"v{n}" for n in numbers], **more})


def make(servers: str, topic: str | None, **given: Any) -> KafkaSink:
    """A sink whose transactions nobody else has."""
    return KafkaSink(servers, topic, **{"name": f"sink-{next(_numbers)}", **given})


def opened(sink: KafkaSink, batch: int = 0, partition: int = 0, attempt: int = 0) -> SinkWriter:
    return sink.open(SinkTask(scope(sink), batch, partition, attempt, attempt))


def prepared(sink: KafkaSink, data: pa.RecordBatch | None = None, **task: int) -> Committable:
    writer = opened(sink, **task)
    writer.write(rows() if data is None else data)
    found = writer.prepare()
    assert found is not None
    return found


# --- what becomes of a transaction --------------------------------------------------------------------------------


def test_a_transaction_that_timed_out_is_lost_and_can_be_written_again(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(kafka.servers, topic, options={"kafka.transaction.timeout.ms": 1000})
    one = prepared(sink)
    states = Transactions({"bootstrap.servers": kafka.servers}, 10_000)
    eventually(lambda: states.describe([one.body["transactional_id"]])[0].state != ONGOING)  # type: ignore[union-attr]
    assert sink.commit(scope(sink), [one]) == [Outcome.LOST]
    again = prepared(sink, attempt=1)
    assert sink.commit(scope(sink), [again]) == [Outcome.DONE]
    assert read_committed(kafka.servers, topic) == [b"v0", b"v1"]


def test_a_zombie_that_wakes_up_after_its_successor_committed_changes_nothing(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(kafka.servers, topic)
    zombie = opened(sink)
    zombie.write(rows(100))
    successor = prepared(sink)
    assert sink.commit(scope(sink), [successor]) == [Outcome.DONE]
    with pytest.raises(Fenced, match=r"another writer or a recovery took over"):
        for _ in range(50):
            zombie.write(rows(100))
            time.sleep(0.05)
    zombie.abort()
    assert read_committed(kafka.servers, topic) == [b"v0", b"v1"]


def test_what_a_successor_took_over_is_lost(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(kafka.servers, topic)
    first = prepared(sink, rows(100))
    second = prepared(sink)
    assert sink.commit(scope(sink), [first, second]) == [Outcome.LOST, Outcome.DONE]
    assert read_committed(kafka.servers, topic) == [b"v0", b"v1"]


def test_what_kafka_no_longer_knows_is_decided_by_a_person(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(kafka.servers, topic)
    names = [f"holdfast-{QUERY}-{sink.name}-e1-{partition}-0-0" for partition in range(2)]
    forgotten = [
        Committable(partition, 0, 1, 1, {"transactional_id": name, "producer_id": 4711, "producer_epoch": 3})
        for partition, name in enumerate(names)
    ]
    with pytest.raises(Undecided, match=rf"no longer knows 2 transactions.*{names[0]} \(producer id 4711, epoch 3\)"):
        sink.commit(scope(sink), forgotten)
    half = make(kafka.servers, topic, name=sink.name, when_undecided={names[0]: "done"})
    with pytest.raises(Undecided) as raised:
        half.commit(scope(sink), forgotten)
    assert f'when_undecided={{"{names[0]}": "done", "{names[1]}": "?"}}' in str(raised.value), "to be filled in"
    told = {names[0]: "done", names[1]: "lost"}
    decided = make(kafka.servers, topic, name=sink.name, when_undecided=told)
    assert decided.commit(scope(sink), forgotten) == [Outcome.DONE, Outcome.LOST]
    sink.abort(scope(sink), forgotten)


def test_recovery_sweeps_its_own_query_and_sink_only_and_unblocks_readers(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink, neighbour = make(kafka.servers, topic, name="one"), make(kafka.servers, topic, name="one-1")
    strays = [prepared(sink, partition=number) for number in range(3)]
    kept = prepared(neighbour, rows(10))
    other = Scope("another-query", "run", 1, "one")
    assert sink.recover(other, []) == 0
    assert sink.recover(scope(sink), strays) == 0
    assert kafka.end_of(topic) == 0, "an open transaction stalls all readers"
    assert sink.recover(scope(sink), strays[:1]) == 2
    assert neighbour.commit(scope(neighbour), [kept]) == [Outcome.DONE]
    assert sink.commit(scope(sink), strays) == [Outcome.DONE, Outcome.LOST, Outcome.LOST]
    eventually(lambda: sorted(read_committed(kafka.servers, topic)) == [b"v0", b"v1", b"v10", b"v11"])


def test_recovery_leaves_ended_transactions_to_their_record(kafka: KafkaWorld) -> None:
    sink = make(kafka.servers, kafka.topic())
    one = prepared(sink)
    sink.commit(scope(sink), [one])
    assert sink.recover(scope(sink), []) == 0
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE], "a record that still names it must not read 'lost'"


def test_a_task_without_rows_leaves_no_transaction_open(kafka: KafkaWorld) -> None:
    sink = make(kafka.servers, kafka.topic())
    writer = opened(sink)
    writer.write(rows(0, 0))
    assert writer.prepare() is None
    listed = Transactions({"bootstrap.servers": kafka.servers}, 10_000).listing(f".*-{sink.name}-e1-0-0-0")
    assert [state for _, state in listed] == [EMPTY]


def test_producers_and_names_do_not_grow_with_the_batches(kafka: KafkaWorld) -> None:
    sink = make(kafka.servers, kafka.topic())
    threads = []
    for batch in range(24):
        sink.commit(scope(sink), [prepared(sink, batch=batch)])
        threads.append(len(os.listdir("/proc/self/task")))
    assert max(threads[4:]) <= max(threads[:4]) + 1
    listed = Transactions({"bootstrap.servers": kafka.servers}, 10_000).listing(f".*-{sink.name}-e.*")
    assert len(listed) == 2


# --- what is written ----------------------------------------------------------------------------------------------


def test_records_have_keys_headers_topics_and_partitions_from_columns(kafka: KafkaWorld) -> None:
    first, second = kafka.topic(partitions=3), kafka.topic(partitions=3)
    kind = pa.map_(pa.string(), pa.binary())
    data = rows(
        count=3,
        to=[first, second, second],
        at=[2, None, 0],
        heads=pa.array([[("h", b"1"), ("g", None)], [], None], kind),
    )
    sink = make(kafka.servers, None, topic_column="to", partition_column="at", headers="heads")
    assert sink.commit(scope(sink), [prepared(sink, data)]) == [Outcome.DONE]
    [one] = read_messages(kafka.servers, first)
    assert (one.partition(), one.key(), one.value()) == (2, b"k0", b"v0")
    assert one.headers() == [("h", b"1"), ("g", None)]
    found = {message.value(): message for message in read_messages(kafka.servers, second)}
    assert found[b"v2"].partition() == 0
    assert found[b"v1"].partition() == (murmur2(b"k1") & 0x7FFFFFFF) % 3, "where Kafka's Java client would put it"
    assert found[b"v1"].headers() is None


def test_order_is_kept_over_many_rows_in_little_memory(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(
        kafka.servers,
        topic,
        options={"kafka.queue.buffering.max.messages": 500, "kafka.compression.type": "lz4"},
    )
    done = prepared(sink, rows(count=30_000))
    assert (done.rows, done.size_bytes) == (30_000, sum(2 * len(f"k{n}") for n in range(30_000)))
    sink.commit(scope(sink), [done])
    assert read_committed(kafka.servers, topic) == [f"v{n}".encode() for n in range(30_000)]


def test_a_record_that_cannot_be_written_fails_the_task(kafka: KafkaWorld) -> None:
    small = kafka.topic(max__message__bytes="2000")
    sink = make(kafka.servers, small)
    writer = opened(sink)
    with pytest.raises(InvalidRequest, match=rf"topic {small}: a record cannot be written: .*max.message.bytes"):
        writer.write(pa.RecordBatch.from_pydict({"key": ["k"], "value": ["x" * 5000]}))
        writer.prepare()
    writer.abort()
    placed = make(kafka.servers, small, partition_column="at")
    writer = opened(placed)
    with pytest.raises(InvalidRequest, match="a record cannot be written: .*nknown partition"):
        writer.write(rows(at=[0, 7]))
        writer.prepare()
    writer.abort()
    assert read_committed(kafka.servers, small) == []


def test_a_topic_that_takes_less_at_once_than_is_sent_at_once_says_what_to_set(kafka: KafkaWorld) -> None:
    """Each record is small. Java's client sends fewer at once by itself; librdkafka does not."""
    small = kafka.topic(max__message__bytes="20000")
    writer = opened(make(kafka.servers, small))
    with pytest.raises(InvalidRequest, match=r"Where each record is small, .*: set kafka\.batch\.size"):
        writer.write(rows(count=9000))
        writer.prepare()
    writer.abort()
    sink = make(kafka.servers, small, options={"kafka.batch.size": 10_000})
    assert sink.commit(scope(sink), [prepared(sink, rows(count=9000))]) == [Outcome.DONE]


def test_what_comes_after_a_record_that_failed_is_told_with_its_cause(kafka: KafkaWorld) -> None:
    """The client refuses it before it has said of the other one: the cause was lost, and the task tried again."""
    writer = opened(make(kafka.servers, kafka.topic(max__message__bytes="20000")))
    writer.write(rows(count=2000))
    time.sleep(2)  # until the brokers have refused it, which nobody has asked for yet
    with pytest.raises(InvalidRequest, match=r"Where each record is small, .*: set kafka\.batch\.size"):
        writer.write(rows())
    writer.abort()


def test_a_record_without_a_key_in_a_compacted_topic_is_told_as_such(kafka: KafkaWorld) -> None:
    writer = opened(make(kafka.servers, kafka.topic(cleanup__policy="compact"), key=None))
    with pytest.raises(InvalidRequest, match="compacted takes no record without a key") as told:
        writer.write(rows())
        writer.prepare()
    assert "max.message.bytes" not in str(told.value)
    writer.abort()


def test_a_record_that_is_larger_than_the_queue_is_told_and_not_waited_for(kafka: KafkaWorld) -> None:
    """There was no room for it, and never would be: the task waited for ever."""
    options = {"kafka.queue.buffering.max.kbytes": 1000, "kafka.message.max.bytes": 3_000_000}
    sink = make(kafka.servers, kafka.topic(max__message__bytes="4000000"), options=options)
    fits = pa.RecordBatch.from_pydict({"key": ["k"] * 4, "value": ["x" * 900_000] * 4})
    assert sink.commit(scope(sink), [prepared(sink, fits)]) == [Outcome.DONE]
    writer = opened(sink, batch=1)
    with pytest.raises(InvalidRequest, match=r"a record of 2000001 bytes is larger .*queue\.buffering\.max\.kbytes"):
        writer.write(pa.RecordBatch.from_pydict({"key": ["k"], "value": ["x" * 2_000_000]}))
    writer.abort()


def test_a_task_that_takes_longer_than_its_transaction_lives_is_told_so(kafka: KafkaWorld) -> None:
    """It was told that another driver had taken over, and its user to look for one."""
    topic = kafka.topic()
    writer = opened(make(kafka.servers, topic, options={"kafka.transaction.timeout.ms": 1000}))
    writer.write(rows())
    eventually(lambda: len(read_messages(kafka.servers, topic, "read_uncommitted")) == 2)
    wait_until_stable(kafka.servers, topic)
    with pytest.raises(Unavailable, match=r"has been open for .*, and the brokers abort a transaction after 1 s"):
        writer.write(rows(2))
        writer.prepare()
    writer.abort()
    assert read_committed(kafka.servers, topic) == []


def test_at_least_once_marks_each_record_so_that_repeats_can_be_told(kafka: KafkaWorld) -> None:
    topic = kafka.topic(partitions=2)
    sink = make(kafka.servers, topic, mode="at-least-once")
    for _ in range(2):
        done = prepared(sink, rows(count=4), batch=3, partition=1)
        assert sink.commit(scope(sink), [done]) == [Outcome.DONE]
    assert sink.recover(scope(sink), []) == 0
    sink.abort(scope(sink), [done])
    marks = [message.headers()[0] for message in read_messages(kafka.servers, topic)]
    assert {name for name, _ in marks} == {"holdfast-dedup"}
    texts = sorted(value.decode() for _, value in marks)
    assert texts == sorted(2 * [f"{QUERY}:{sink.name}:3:1:{index}" for index in range(4)])
    assert opened(sink).prepare() is None


def test_the_example_drops_what_is_there_twice(kafka: KafkaWorld) -> None:
    topic = kafka.topic(partitions=2)
    sink = make(kafka.servers, topic, mode="at-least-once")
    for batch in (0, 1, 1, 1, 2):
        prepared(sink, rows(10 * batch, 10), batch=batch)
        prepared(sink, rows(100 + 10 * batch, 5), batch=batch, partition=1)
    program = Path(__file__).resolve().parents[3] / "examples" / "dedup.py"
    command = [sys.executable, str(program), "--bootstrap-servers", kafka.servers, "--topic", topic]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    expected = [*range(30), *(100 + 10 * batch + n for batch in range(3) for n in range(5))]
    assert sorted(shown[:-1]) == sorted(f"k{n} v{n}" for n in expected)
    assert shown[-1] == "30 repeats dropped"


def test_the_example_drops_what_is_there_twice_of_records_without_keys(kafka: KafkaWorld) -> None:
    """Kafka's clients draw a partition for such; a replay must draw the same."""
    topic = kafka.topic(partitions=4)
    sink = make(kafka.servers, topic, mode="at-least-once", key=None)
    for _ in range(3):
        prepared(sink, rows(0, 50))
    program = Path(__file__).resolve().parents[3] / "examples" / "dedup.py"
    command = [sys.executable, str(program), "--bootstrap-servers", kafka.servers, "--topic", topic]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert sorted(shown[:-1]) == sorted(f" v{n}" for n in range(50))
    assert {message.partition() for message in read_messages(kafka.servers, topic)} == {0, 1, 2, 3}


@pytest.mark.parametrize("mode", ["at-least-once", "none", "exactly-once"])
def test_a_partition_that_was_added_is_written_to_at_once(mode: str, kafka: KafkaWorld) -> None:
    """Producers live on and look for partitions every five minutes: so long each such row was refused for good."""
    topic = kafka.topic(partitions=1)
    sink = make(kafka.servers, topic, mode=mode, partition_column="to")
    prepared(sink, rows(count=1, to=[0]))
    writer = opened(sink, batch=1)
    writer.write(rows(count=1, to=[0]))
    kafka.add_partitions(topic, 2)
    writer.write(rows(count=1, to=[1]))
    assert writer.prepare() is not None
    prepared(sink, rows(count=1, to=[1]), batch=2)
    writer = opened(sink, batch=3)
    with pytest.raises(InvalidRequest, match="a record cannot be written: .*nknown partition.*the partition column"):
        writer.write(rows(count=1, to=[2]))
        writer.prepare()
    writer.abort()
    found = read_messages(kafka.servers, topic, "read_uncommitted")
    assert sorted(message.partition() for message in found) == [0, 0, 1, 1]


def test_at_least_once_keeps_a_users_headers_behind_its_own(kafka: KafkaWorld) -> None:
    """But none of its own name, which another sink wrote: readers go by that one, and dropped rows never shown."""
    topic = kafka.topic()
    heads = [("holdfast-dedup", b"other-query:kafka:7:0:0"), ("h", b"1")]
    data = rows(count=1, heads=pa.array([heads], pa.map_(pa.string(), pa.binary())))
    for mode in ("at-least-once", "none"):
        prepared(make(kafka.servers, topic, mode=mode, headers="heads"), data)
    marked, plain = (message.headers() for message in read_messages(kafka.servers, topic))
    assert [name for name, _ in marked] == ["holdfast-dedup", "h"] and dict(marked)["holdfast-dedup"] != heads[0][1]
    assert plain == [("h", b"1")]


def test_mode_none_only_writes(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    sink = make(kafka.servers, topic, mode="none", options={"kafka.acks": 1})
    prepared(sink)
    [first, _] = read_messages(kafka.servers, topic)
    assert (first.key(), first.value(), first.headers()) == (b"k0", b"v0", None)


def test_a_change_of_mode_in_the_middle_of_a_batch_is_refused(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    modes = {mode: make(kafka.servers, topic, name=f"modes-{topic}", mode=mode) for mode in ("exactly-once", "none")}
    for mode, other in (("exactly-once", "none"), ("none", "exactly-once")):
        one = prepared(modes[mode])
        with pytest.raises(Incompatible, match=f"was written with mode='{mode}'"):
            modes[other].commit(scope(modes[other]), [one])
        # Once the batch is finished, the mode may change: what it names is no transaction, or nothing to look for.
        assert modes[other].recover(scope(modes[other]), [one]) == (1 if other == "exactly-once" else 0)


# --- at start -----------------------------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_said_at_start(kafka: KafkaWorld) -> None:
    with pytest.raises(InvalidRequest, match=r"topic 'no-such-topic', which Kafka at .* does not have"):
        make(kafka.servers, "no-such-topic").check(rows().schema, LIMITS)
    make(kafka.servers, kafka.topic()).check(rows().schema, LIMITS)
    make(kafka.servers, None, topic_column="value").check(rows().schema, LIMITS)


def test_a_timeout_that_the_brokers_do_not_allow_is_said_at_start_and_in_a_task(kafka: KafkaWorld) -> None:
    sink = make(kafka.servers, kafka.topic(), options={"kafka.transaction.timeout.ms": 3_600_001})
    with pytest.raises(InvalidRequest, match=r"is 3600001, and Kafka at .* allows 3600000 \(transaction.max.timeout"):
        sink.check(rows().schema, LIMITS)
    plain = make(
        kafka.servers, sink.options.topic, witness_topic=None, options={"kafka.transaction.timeout.ms": 3_600_001}
    )
    writer = plain.open(SinkTask(Scope(QUERY, "run", 1, plain.name), 0, 0, 0, 0))
    with pytest.raises(InvalidRequest, match=r"the brokers refuse kafka.transaction.timeout.ms=3600001"):
        writer.write(rows())
    writer.abort()


def test_brokers_that_do_not_answer_are_said_at_start() -> None:
    from holdfast.sink.kafka.fitness import Fitness

    with pytest.raises(Unavailable, match=r"Kafka at 127.0.0.1:1 did not describe topic t"):
        Fitness(make("127.0.0.1:1", "t").options, answer_within_ms=1000).check()


@pytest.mark.parametrize(
    "epoch", [1, 15, 16, *(pytest.param(late, marks=pytest.mark.slow) for late in (2, 17, 32, 40))]
)
def test_looks_for_late_strays_leave_alone_what_this_driver_and_newer_ones_have_open(
    kafka: KafkaWorld, epoch: int
) -> None:
    """They run beside a batch: were its own transactions aborted, it would be lost again and again."""
    sink = make(kafka.servers, kafka.topic())
    claim = scope(sink).claim
    mine, newer = Scope(QUERY, "run", epoch, sink.name, claim), Scope(QUERY, "heir", epoch + 1, sink.name, claim)
    found: dict[Scope, Any] = {}
    for one in (mine, newer):
        writer = sink.open(SinkTask(one, 0, 0, 0, 0))
        writer.write(rows())
        found[one] = writer.prepare()
    assert sink.abort_late(mine, (), own=False) == 0
    assert sink.abort_late(newer, (), own=False) == 1
    assert sink.commit(mine, [found[mine]]) == [Outcome.LOST]
    assert sink.commit(newer, [found[newer]]) == [Outcome.DONE]


# --- security -----------------------------------------------------------------------------------------------------


def test_transactions_are_ended_over_tls_with_a_login(
    secure: KafkaBroker, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    topic = KafkaWorld(secure).topic(name="sink-over-tls")
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": str(certificate / "broker.pem"),
    }
    sink = make(secure.address("BOTH"), topic, options=login)
    sink.check(rows().schema, LIMITS)
    assert sink.commit(scope(sink), [prepared(sink)]) == [Outcome.DONE]
    stray = prepared(sink, batch=1)
    assert sink.recover(scope(sink), []) == 1
    sink.abort(scope(sink), [stray])
    assert read_committed(secure.bootstrap_servers, topic) == [b"v0", b"v1"]
    assert PASSWORD not in caplog.text
    assert "me\\x00" + PASSWORD not in caplog.text


def test_transactions_are_ended_with_a_scram_login(secure: KafkaBroker) -> None:
    world = KafkaWorld(secure)
    topic = world.topic(name="sink-with-scram")
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for done in world.admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("scrammer", kind, PASSWORD.encode())]
    ).values():
        done.result(120)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="scrammer" password="{PASSWORD}";'
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
    }
    sink = make(secure.address("LOGIN"), topic, options=login)
    assert sink.commit(scope(sink), [prepared(sink)]) == [Outcome.DONE]
    assert read_committed(secure.bootstrap_servers, topic) == [b"v0", b"v1"]


def test_transactions_are_ended_with_a_token(secure: KafkaBroker) -> None:
    """Refused until now; librdkafka and the client that ends transactions each make one of their own."""
    topic = KafkaWorld(secure).topic(name="sink-with-token")
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.enable.sasl.oauthbearer.unsecure.jwt": "true",
        "kafka.sasl.oauthbearer.config": "principal=me lifeSeconds=600",
    }
    sink = make(secure.address("LOGIN"), topic, options=login)
    sink.check(rows().schema, LIMITS)
    assert sink.commit(scope(sink), [prepared(sink)]) == [Outcome.DONE]
    assert read_committed(secure.bootstrap_servers, topic) == [b"v0", b"v1"]


def test_transactions_are_ended_with_a_token_of_an_identity_provider(secure: KafkaBroker) -> None:
    """Both clients fetch one; where there is none, the driver says so in time, and without the secret."""
    topic = KafkaWorld(secure).topic(name="sink-with-oidc")
    token = UnsecuredTokens({"sasl.oauthbearer.config": "principal=me lifeSeconds=600"}).token()
    answer = json.dumps({"access_token": token, "expires_in": 600}).encode()
    asked = []

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if answer else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.method": "oidc",
            "kafka.sasl.oauthbearer.client.id": "me",
            "kafka.sasl.oauthbearer.client.secret": PASSWORD,
            "kafka.sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
        }
        sink = make(secure.address("LOGIN"), topic, options=login)
        assert sink.commit(scope(sink), [prepared(sink)]) == [Outcome.DONE]
        assert read_committed(secure.bootstrap_servers, topic) == [b"v0", b"v1"]
        assert len(asked) >= 2
        answer = b""
        without = Transactions({**sink.options.client, "client.id": "another"}, 2000.0)
        with pytest.raises(Unavailable, match="did not list its transactions") as raised:
            without.listing(".*")
        assert PASSWORD not in str(raised.value)
        without.wire.close()
        server.shutdown()


def test_a_refused_login_is_said_without_the_password(secure: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": "wrong-and-secret",
    }
    sink = make(secure.address("LOGIN"), "any", options=login)
    one = Committable(0, 0, 1, 1, {"transactional_id": "holdfast-q-s-0-0-0", "producer_id": 1, "producer_epoch": 0})
    with pytest.raises(Unavailable, match="did not commit 1 transactions") as raised:
        sink.commit(Scope(QUERY, "run", 1, sink.name), [one])
    assert "wrong-and-secret" not in str(raised.value) + caplog.text
