"""``holdfast transactions`` against a real broker: what it says, what it does, its exit codes."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_committed

from holdfast.cli import main
from holdfast.commit.sink import Committable, Outcome, Scope, SinkTask
from holdfast.sink.kafka import KafkaSink

_numbers = itertools.count()


class Output:
    """A query of its own that has prepared some transactions."""

    def __init__(self, kafka: KafkaWorld, partitions: int = 2) -> None:
        self.query = f"query{next(_numbers)}"
        self.topic = kafka.topic()
        self.servers = kafka.servers
        self.sink = KafkaSink(kafka.servers, self.topic, witness_topic=None)
        self.scope = Scope(self.query, "run", 1, "kafka")
        self.prepared = [self.prepare(number) for number in range(partitions)]
        self.ids = [str(one.body["transactional_id"]) for one in self.prepared]

    def prepare(self, partition: int, batch: int = 0) -> Committable:
        writer = self.sink.open(SinkTask(self.scope, batch, partition, 0, 0))
        writer.write(pa.RecordBatch.from_pydict({"key": ["k"], "value": [f"v{partition}"]}))
        found = writer.prepare()
        assert found is not None
        return found

    def run(self, *arguments: str) -> Result:
        command, *rest = arguments
        return CliRunner().invoke(main, ["transactions", command, "--bootstrap-servers", self.servers, *rest])

    def data(self, *arguments: str) -> Any:
        found = self.run(*arguments, "--json")
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    def wait_until(self, ids: list[str], state: str) -> None:
        """The coordinator completes a transaction when all partitions have its marker, a moment after they have it."""
        eventually(lambda: all(self.data("show", one)["state"] == state for one in ids))

    def visible(self) -> list[bytes]:
        return sorted(read_committed(self.servers, self.topic))


@pytest.fixture
def output(kafka: KafkaWorld) -> Output:
    return Output(kafka)


def test_list_shows_what_is_open(output: Output) -> None:
    found = output.data("list", "--query", output.query)
    assert [one["transactional_id"] for one in found] == output.ids
    assert found[0] | {"started_ms": 0, "age_ms": 0, "coordinator": 1} == {
        "transactional_id": output.ids[0],
        "state": "Ongoing",
        "producer_id": output.prepared[0].body["producer_id"],
        "producer_epoch": output.prepared[0].body["producer_epoch"],
        "timeout_ms": 900_000,
        "started_ms": 0,
        "age_ms": 0,
        "coordinator": 1,
        "partitions": [f"{output.topic}-0"],
        "query": output.query,
        "sink": "kafka",
    }
    assert 0 <= found[0]["age_ms"] < 120_000
    text = output.run("list", "--query", output.query)
    assert text.exit_code == 0
    assert f"{output.ids[1]}  Ongoing, open for " in text.output
    assert f"of 15 min, in {output.topic}-0\n2 transactions open" in text.output


def test_list_tells_sinks_apart_and_shows_ended_ones_when_asked(output: Output) -> None:
    output.sink.commit(output.scope, output.prepared[:1])
    output.wait_until(output.ids[:1], "CompleteCommit")
    assert [one["transactional_id"] for one in output.data("list", "--query", output.query)] == output.ids[1:]
    assert len(output.data("list", "--query", output.query, "--all")) == 2
    assert output.data("list", "--query", output.query, "--sink", "other") == []
    assert "0 transactions open" in output.run("list", "--query", "no-such-query").output


def test_show_says_all_that_is_known(output: Output) -> None:
    assert output.data("show", output.ids[0])["state"] == "Ongoing"
    assert f"partitions        {output.topic}-0" in output.run("show", output.ids[0]).output
    unknown = output.run("show", "holdfast-x-kafka-0-0-0")
    assert unknown.exit_code == 1
    assert "Kafka does not know holdfast-x-kafka-0-0-0" in unknown.output


def test_commit_only_says_so_until_it_is_told_yes(output: Output) -> None:
    told = output.run("commit", output.ids[0])
    assert told.exit_code == 0
    assert f"would commit {output.ids[0]}, in {output.topic}-0\n" in told.output
    assert "nothing was changed: add --yes" in told.output
    assert output.data("commit", output.ids[0])["would"] == "commit"
    assert output.visible() == []
    assert output.run("commit", output.ids[0], "--yes").output == f"committed {output.ids[0]}\n"
    assert output.data("commit", output.ids[1], "--yes") == {"committed": [output.ids[1]]}
    assert output.visible() == [b"v0", b"v1"]
    assert output.sink.commit(output.scope, output.prepared) == [Outcome.DONE] * 2


def test_commit_of_what_a_record_names_is_exact_and_may_be_repeated(output: Output) -> None:
    body = output.prepared[0].body
    exact = ["--producer-id", str(body["producer_id"]), "--producer-epoch", str(body["producer_epoch"])]
    for _ in range(2):
        assert output.run("commit", output.ids[0], *exact, "--yes").exit_code == 0
    assert output.visible() == [b"v0"]
    wrong = ["--producer-id", str(body["producer_id"]), "--producer-epoch", "999"]
    for more in ([], ["--yes"]):
        refused = output.run("commit", output.ids[1], *wrong, *more)
        assert refused.exit_code == 1
        assert "it is Ongoing now, of producer" in refused.output


def test_commit_of_what_is_not_open_is_not_done(output: Output) -> None:
    output.sink.abort(output.scope, output.prepared)
    output.wait_until(output.ids, "CompleteAbort")
    refused = output.run("commit", output.ids[0], "--yes")
    assert refused.exit_code == 1
    assert f"{output.ids[0]} is not open: it is CompleteAbort" in refused.output
    body = output.prepared[0].body
    exact = ["--producer-id", str(body["producer_id"]), "--producer-epoch", str(body["producer_epoch"])]
    opposite = output.run("commit", output.ids[0], *exact, "--yes", "--json")
    assert opposite.exit_code == 1
    assert json.loads(opposite.stdout)["answer"] == "opposite"


def test_abort_only_says_so_until_it_is_told_yes(output: Output) -> None:
    told = output.run("abort", "--query", output.query)
    assert told.exit_code == 0
    assert "2 transactions; nothing was changed" in told.output
    assert output.run("abort", "--query", output.query, "--sink", "kafka", "--yes").exit_code == 0
    eventually(lambda: output.data("list", "--query", output.query) == [])  # their markers are a moment behind
    assert output.sink.commit(output.scope, output.prepared) == [Outcome.LOST] * 2
    assert output.visible() == []


def test_abort_takes_ids(output: Output) -> None:
    assert output.data("abort", output.ids[1], "--yes") == {"aborted": [output.ids[1]]}
    assert output.sink.commit(output.scope, output.prepared) == [Outcome.DONE, Outcome.LOST]
    again = output.run("abort", output.ids[1], "--yes")
    assert again.exit_code == 1
    assert f"{output.ids[1]} is not open" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["abort"], "expected transactional ids, or --query"),
        (["abort", "x", "--query", "q"], "expected transactional ids, or --query"),
        (["abort", "x", "--sink", "s"], "--sink goes with --query"),
        (["commit", "x", "--producer-id", "1"], "are given together"),
        (["list", "--option", "client.id=x"], "expected kafka.X=Y"),
        (["list", "--option", "kafka.security.protocol=tls"], "security.protocol='TLS'"),
        (["show"], "Missing argument"),
    ],
)
def test_wrong_usage_is_exit_code_2(kafka: KafkaWorld, arguments: list[str], message: str) -> None:
    command, *rest = arguments
    found = CliRunner().invoke(main, ["transactions", command, "--bootstrap-servers", kafka.servers, *rest])
    assert found.exit_code == 2
    assert message in found.output


def test_settings_come_from_a_file_too(output: Output, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# as for Kafka's own tools\n\nsecurity.protocol = PLAINTEXT\nclient.id=by=file\n")
    assert output.data("list", "--query", output.query, "--command-config", str(file))
    file.write_text("security.protocol=tls\n")
    found = output.run("list", "--command-config", str(file))
    assert (found.exit_code, "security.protocol='TLS'" in found.output) == (2, True)
    given = output.run("list", "--command-config", str(file), "--option", "kafka.security.protocol=plaintext")
    assert given.exit_code == 0
    file.write_text("security.protocol=PLAINTEXT\nsasl.password secret\n")
    found = output.run("list", "--command-config", str(file))
    assert (found.exit_code, f"{file}, line 2: expected X=Y" in found.output) == (2, True)
    assert "secret" not in found.output


def test_brokers_that_are_away_are_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("holdfast.cli.transactions"), "PATIENCE_MS", 1000.0)
    found = CliRunner().invoke(main, ["transactions", "list", "--bootstrap-servers", "127.0.0.1:1"])
    assert found.exit_code == 1
    assert "Kafka at 127.0.0.1:1 did not list its transactions within 1 s" in found.output
