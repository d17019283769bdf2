"""Options of the Kafka source: what is read as what, what is refused and how, what is never shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import InvalidRequest
from holdfast.kafka.client_config import without_secrets
from holdfast.source.kafka.bounds import EARLIEST, LATEST, Bound
from holdfast.source.kafka.options import SourceOptions


def parse(streaming: bool = True, **options: Any) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"} | options
    return SourceOptions.parse({name: value for name, value in given.items() if value != "-"}, streaming)


def test_defaults() -> None:
    options = parse()
    assert options.subscription.topics == ("t",)
    assert (options.starting, options.ending) == (LATEST, LATEST)
    assert options.client == {"bootstrap.servers": "broker:9092", "isolation.level": "read_committed"}
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert parse(streaming=False).starting == EARLIEST


def test_names_are_read_without_regard_to_case() -> None:
    given = {
        "KAFKA.Bootstrap.Servers": "b:1",
        "SUBSCRIBE": "a, b",
        "MaxOffsetsPerTrigger": "5",
        "failondataloss": "FALSE",
    }
    options = SourceOptions.parse(given, streaming=True)
    assert options.subscription.topics == ("a", "b")
    assert options.max_offsets_per_trigger == 5
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "Earliest"}, EARLIEST),
        (
            {"startingOffsets": '{"t":{"0":23,"1":-2,"2":-1}}'},
            Bound(offsets={("t", 0): 23, ("t", 1): -2, ("t", 2): -1}),
        ),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, Bound(timestamp_ms=5, latest_if_none=False)),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsetsByTimestampStrategy": "LATEST"},
            Bound(timestamps_ms={("t", 0): 7}),
        ),
    ],
)
def test_starts(options: dict[str, Any], expected: Bound) -> None:
    assert parse(**options).starting == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "-"}, "exactly one of the options subscribe, subscribePattern and assign, found none"),
        ({"subscribePattern": "x"}, "found subscribe and subscribePattern"),
        ({"subscribe": " , "}, "expected topic names with commas between"),
        ({"subscribe": "-", "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": "-", "assign": "t"}, r'assign is not JSON .*\{"topicA":\[0,1\]'),
        ({"subscribe": "-", "assign": '{"t":["0"]}'}, r'expected JSON such as \{"topicA":\[0,1\]'),
        ({"kafka.bootstrap.servers": "-"}, "kafka.bootstrap.servers is missing"),
        ({"startingOffsets": "sometimes"}, "expected earliest, latest or JSON such as"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-2 for earliest or -1 for latest"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "expected earliest"),
        ({"startingTimestamp": "-5"}, "expected milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"t":5}'}, "a timestamp in ms"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "expected error or latest"),
        ({"endingOffsets": "latest"}, "Option endingOffsets: a stream has no end"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe': expected true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is 0: expected a whole number, 1 or more"),
        ({"maxOffsetsPerTrigger": "many"}, "expected a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9, more than maxOffsetsPerTrigger, which is 8"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"maxOffsetPerTriger": "1"}, "not an option of holdfast-kafka. The nearest is 'maxOffsetsPerTrigger'"),
        (
            {"kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset cannot be set: use the option startingOffsets",
        ),
        ({"kafka.ssl.truststore.location": "x"}, "known to Kafka's Java client only: use kafka.ssl.ca.location"),
        ({"kafka.sasl.jaas.config": "com.sun.Krb5 required;"}, "expected a login with username and password"),
        (
            {"kafka.sasl.jaas.config": 'X required username="id" password="hmac" tokenauth="true";'},
            "tokenauth=true: librdkafka knows no delegation tokens",
        ),
        (
            {"kafka.sasl.jaas.config": "X required tokenauth = True username=id password=hmac;"},
            "tokenauth=true: librdkafka knows no delegation tokens",
        ),
        (
            {"kafka.isolation.level": "serializable"},
            "kafka.isolation.level is 'serializable': expected read_committed or read_uncommitted",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "would read nothing"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "nothing could be read"),
        ({"maxOffsetsPerTrigger": "5"}, "a batch read has no triggers"),
    ],
)
def test_what_a_batch_read_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse(streaming=False, **options)


def test_client_properties() -> None:
    jaas = r"""org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\"b;c" ;"""
    given: dict[str, Any] = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": jaas,
        "kafka.fetch.max.wait.ms": "70",
        "kafka.isolation.level": "read_uncommitted",
    }
    assert parse(**given).client == {
        "bootstrap.servers": "broker:9092",
        "fetch.wait.max.ms": "70",
        "isolation.level": "read_uncommitted",
        "sasl.password": 'a"b;c',
        "sasl.username": "me",
        "security.protocol": "SASL_SSL",
    }
    given = {"kafka.sasl.jaas.config": "X required username=me password='p w';"}
    plain = parse(**given).client
    assert (plain["sasl.username"], plain["sasl.password"]) == ("me", "p w")
    given = {"kafka.sasl.jaas.config": """X required username=me password='tokenauth="true"' tokenauth=false;"""}
    assert parse(**given).client["sasl.password"] == 'tokenauth="true"', "no token: it is in the password"


def test_a_pattern_does_not_mean_the_witnesses_of_sinks() -> None:
    """A query that reads all topics and writes to one read a record more for each transaction of its own, for good."""
    existing = ["clicks", "holdfast-clicks", "holdfast-witness"]
    for pattern in (".*", "holdfast-.*"):
        subscription = parse(subscribe="-", subscribePattern=pattern).subscription
        assert subscription.names(existing) == [name for name in existing[:2] if name.startswith(pattern[:-2])]
        assert not subscription.covers(("holdfast-witness", 0))
    named = parse(subscribe="holdfast-witness").subscription
    assert named.names(existing) == ["holdfast-witness"], "who wants to see them"
    assert named.covers(("holdfast-witness", 0))


@pytest.mark.parametrize("level", ["READ_COMMITTED", " Read_Uncommitted "])
def test_the_isolation_level_is_read_without_regard_to_case(level: str) -> None:
    """As the client reads it. The plan took capitals for read_uncommitted, and ended batches in open transactions."""
    given: dict[str, Any] = {"kafka.isolation.level": level}
    assert parse(**given).client["isolation.level"] == level.strip().lower()


def test_secrets_are_not_in_its_text() -> None:
    given: dict[str, Any] = {"kafka.sasl.password": "hidden", "kafka.ssl.key.password": "hushed"}
    options = parse(**given)
    assert "hidden" not in repr(options)
    assert without_secrets("login failed: hidden, hushed, me", options.client) == "login failed: ***, ***, me"


@pytest.mark.parametrize("secrets", [("s3cret", "s3cret-prod"), ("s3cret-prod", "s3cret"), ("prod", "s3cret-prod")])
def test_a_secret_that_has_another_one_in_it_is_hidden_whole(secrets: tuple[str, str]) -> None:
    """What was left of it beside the other one was shown."""
    config = dict(zip(("ssl.key.password", "sasl.password"), secrets))
    assert without_secrets("login with s3cret-prod refused", config) == "login with *** refused"


def test_assign() -> None:
    options = parse(subscribe="-", assign=json.dumps({"b": [1, 0], "a": [2]}))
    assert options.subscription.partitions == (("a", 2), ("b", 0), ("b", 1))
    assert str(options.subscription) == "assign a-2, b-0, b-1"
