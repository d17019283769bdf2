"""Options of the Kafka sink: what is taken, what is refused and with which words, what is never shown."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from holdfast.commit.sink import CommitLimits, Scope, SinkTask
from holdfast.errors import InvalidRequest
from holdfast.kafka.transactional_ids import TransactionalId, pattern_of
from holdfast.kafka.wire_config import wire_config
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka.fitness import check_timeouts
from holdfast.sink.kafka.transactional_writer import transactional_id

SERVERS = "broker:9092"
QUERY = "0b6c8a3e-5f0b-4a51-9d5e-0f8d8b1c2d3e"
PASSWORD = "correct-horse-battery"


def sink(**given: Any) -> KafkaSink:
    return KafkaSink(SERVERS, **{"topic": "t", **given})


def test_a_producer_gets_what_the_user_set_over_what_the_sink_would() -> None:
    made = sink(options={"kafka.linger.ms": 50, "Kafka.Compression.Type": "zstd"}).options.producer()
    assert (made["linger.ms"], made["compression.type"], made["partitioner"]) == ("50", "zstd", "murmur2_random")
    assert made["transaction.timeout.ms"] == "900000"
    assert made["message.timeout.ms"] == "120000"


def test_a_message_may_not_wait_for_longer_than_its_transaction_lives() -> None:
    options = sink(options={"kafka.transaction.timeout.ms": "5000"}).options
    assert options.message_timeout_ms == 5000
    assert sink(options={"kafka.delivery.timeout.ms": 700}).options.message_timeout_ms == 700


@pytest.mark.parametrize(("mode", "idempotent"), [("exactly-once", None), ("at-least-once", "true"), ("none", None)])
def test_the_mode_decides_about_idempotence(mode: str, idempotent: str | None) -> None:
    assert sink(mode=mode).options.producer().get("enable.idempotence") == idempotent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": None}, "topic= or topic_column=, one of them; found neither"),
        ({"topic_column": "topic"}, "one of them; found both"),
        ({"mode": "twice"}, "mode='twice': expected one of 'exactly-once'"),
        ({"value_format": "avro"}, "value_format='avro'"),
        ({"when_undecided": "guess"}, "when_undecided='guess'"),
        ({"when_undecided": "done"}, "Transactions of one batch can have ended differently"),
        ({"when_undecided": {"holdfast-a": "?"}}, "'holdfast-a' is said to be '\\?': expected a transactional id"),
        ({"witness_topic": "a b"}, "witness_topic='a b'"),
        ({"witness_topic": "t"}, "witness_topic='t' is the topic that rows go to"),
        ({"name": "a b"}, "name='a b': expected letters"),
        ({"name": "-a"}, "name='-a'"),
        ({"options": {"topic": "x"}}, "'topic' is not passed to Kafka"),
        ({"options": {"kafka.transactional.id": "x"}}, "kafka.transactional.id cannot be set: the sink names"),
        ({"options": {"kafka.enable.idempotence": False}}, "cannot be set: the option mode decides"),
        ({"options": {"kafka.acks": 1}}, "kafka.acks=1 would lose records"),
        ({"options": {"kafka.bootstrap.servers": "other:1"}}, "contradicts KafkaSink's first argument"),
        ({"options": {"kafka.buffer.memory": "1"}}, "known to Kafka's Java client only"),
        ({"options": {"kafka.transaction.timeout.ms": "soon"}}, "transaction.timeout.ms='soon': expected a number"),
        ({"options": {"kafka.security.protocol": "TLS"}}, "security.protocol='TLS': expected one of PLAINTEXT"),
        (
            {"options": {"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "OAUTHBEARER"}},
            "sasl.mechanism=OAUTHBEARER needs a source of tokens",
        ),
        (
            {"options": {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN"}},
            "needs kafka.sasl.username",
        ),
        (
            {"options": {"kafka.security.protocol": "ssl", "kafka.ssl.keystore.location": "k.p12"}},
            "ssl.keystore.location: exactly-once output .* PEM only",
        ),
        (
            {"options": {"kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.kerberos.keytab": "/etc/me.keytab"}},
            "sasl.kerberos.keytab: exactly-once output .* ticket cache",
        ),
        (
            {"options": {"kafka.security.protocol": "ssl", "kafka.ssl.ca.location": "/no/such.pem"}},
            "kafka.ssl.* cannot be used: .*No such file",
        ),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        sink(**given).options.producer()


def test_other_modes_take_security_that_only_librdkafka_knows() -> None:
    oauth = {"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "OAUTHBEARER"}
    assert sink(mode="at-least-once", options=oauth).options.producer()["sasl.mechanism"] == "OAUTHBEARER"
    assert sink(mode="none", options={"kafka.acks": 1}).options.producer()["acks"] == "1"


def test_secrets_show_nowhere_and_travel_to_the_tasks() -> None:
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": PASSWORD,
    }
    made = sink(options=login)
    for shown in (repr(made), str(made), repr(made.options), f"{made!r:>200}"):
        assert PASSWORD not in shown
    assert pickle.loads(pickle.dumps(made)).options.client["sasl.password"] == PASSWORD
    with pytest.raises(InvalidRequest) as raised:
        strange = sink(options={**login, "kafka.no.such.thing": "1"}, witness_topic=None)
        strange.open(SinkTask(Scope("q", "r", 1, "kafka"), 0, 0, 0, 0))
    assert PASSWORD not in str(raised.value)
    assert "kafka.sasl.password (secret)" in str(raised.value)


def test_javas_login_is_understood() -> None:
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{PASSWORD}";'
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
    }
    found = wire_config(sink(options=options).options.client)
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("SCRAM-SHA-512", "me")
    assert found["sasl_plain_password"] == PASSWORD


def test_tls_is_said_again_for_the_client_that_ends_transactions() -> None:
    trusting = wire_config(
        {"bootstrap.servers": "a:1, b:2", "security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}
    )
    assert trusting["bootstrap_servers"] == ["a:1", "b:2"]
    assert trusting["ssl_context"].verify_mode is ssl.CERT_NONE
    careful = wire_config({"bootstrap.servers": "a:1", "security.protocol": "ssl"})["ssl_context"]
    assert careful.verify_mode is ssl.CERT_REQUIRED
    assert careful.check_hostname
    unnamed = {
        "bootstrap.servers": "a:1",
        "security.protocol": "ssl",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert not wire_config(unnamed)["ssl_context"].check_hostname


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    with pytest.raises(InvalidRequest, match="kafka.ssl.* cannot be used"):
        wire_config(
            {"bootstrap.servers": "a:1", "security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
        )


def test_a_trigger_longer_than_the_transaction_timeout_is_refused_unless_it_is_meant() -> None:
    hour = CommitLimits(trigger_ms=3_600_000, retry_max_ms=120_000, retry_backoff_ms=100)
    with pytest.raises(InvalidRequest, match=r"the trigger is 1 h, and a transaction may be open for 15 min only"):
        check_timeouts(sink().options, hour)
    check_timeouts(sink(options={"kafka.transaction.timeout.ms": 600_000}).options, hour)
    check_timeouts(sink().options, CommitLimits(1000, 120_000, 100))
    check_timeouts(sink().options, CommitLimits(None, 120_000, 100))


def test_transactions_have_two_names_for_each_partition_and_attempt() -> None:
    scope = Scope(QUERY, "run", 37, "out-1")
    tasks = [SinkTask(scope, batch, 7, 2, 99) for batch in range(10)]
    names = {transactional_id(task, witnessed=True) for task in tasks}
    assert names == {f"holdfast-{QUERY}-out-1-e5-7-0-2", f"holdfast-{QUERY}-out-1-e5-7-1-2"}
    names = {transactional_id(task, witnessed=False) for task in tasks}
    assert names == {f"holdfast-{QUERY}-out-1-e37-7-0-2", f"holdfast-{QUERY}-out-1-e37-7-1-2"}


@pytest.mark.parametrize("sink_name", ["kafka", "a-b", "a-1", "0", "x.y_z"])
@pytest.mark.parametrize("query", [QUERY, "q1"])
def test_a_transactions_name_is_read_back(query: str, sink_name: str) -> None:
    made = TransactionalId(query, sink_name, 41, 12, 1, 3)
    assert TransactionalId.parse(str(made)) == made


@pytest.mark.parametrize(
    "text", ["", "holdfast", "mine-1-2-3", f"holdfast-{QUERY}-kafka-e1-1-2-0", "holdfast-q-e1-1-0-0"]
)
def test_other_names_are_not_ours(text: str) -> None:
    assert TransactionalId.parse(text) is None


def test_a_sinks_names_are_not_those_of_its_neighbours() -> None:
    import re

    pattern = re.compile(pattern_of(QUERY, "out"))
    assert pattern.fullmatch(f"holdfast-{QUERY}-out-e1-0-1-0")
    for other in ("out-1", "out-x", "ou", "Out", "out.", "xout"):
        assert not pattern.fullmatch(f"holdfast-{QUERY}-{other}-e1-0-1-0"), other
    assert not re.fullmatch(pattern_of(QUERY, "o.t"), f"holdfast-{QUERY}-out-e1-0-1-0")
