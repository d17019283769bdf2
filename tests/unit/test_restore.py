"""What is read of an earlier query's checkpoint: whether its last batch is settled, and where its sources go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.commit.record_log import record_name
from holdfast.errors import Incompatible
from holdfast.inspect import settled
from holdfast.inspect.committed import Committed
from holdfast.inspect.restore import _kept, _positions, _with_new_partitions
from holdfast.inspect.settled import check_settled, wait_until_settled
from holdfast.source.kafka import cluster
from holdfast.source.kafka.cluster import Topics
from holdfast.storage import LocalFileStore

QUERY = "5c2e3f6a-0000-4000-8000-00000000000a"
OURS = {"format": 1, "source": "5f0c", "offsets": {"b": {"0": 17, "1": 0}}, "topic_ids": {"b": "L66Z"}}


def test_kafka_sources_go_on_where_the_batch_ended() -> None:
    assert _positions(json.dumps({"a": {"0": 5}})) == {"a": {"0": 5}}
    assert _positions(json.dumps(OURS)) == {"b": {"0": 17, "1": 0}}


def test_partitions_whose_loss_was_accepted_are_not_named_unless_they_are_back() -> None:
    """A new query was refused what does not exist any more."""
    text = json.dumps({**OURS, "gone": {"b": [1]}})
    assert _kept(text) == {"b": {"0": 17}}
    assert _kept(json.dumps({**OURS, "gone": {"b": [0, 1]}})) == {}
    assert _kept(json.dumps(OURS)) == {"b": {"0": 17, "1": 0}}
    assert _kept(json.dumps({"a": {"0": 5}})) == {"a": {"0": 5}}


@pytest.mark.parametrize(("topic_id", "second"), [("first", 5), ("another", -2)])
def test_a_partition_that_is_back_goes_on_where_it_was_and_a_new_one_at_its_start(
    monkeypatch: pytest.MonkeyPatch, topic_id: str, second: int
) -> None:
    """And one that is back in another topic of that name."""

    class Brokers:
        def __init__(self, options: object) -> None:
            pass

        def topics(self) -> Topics:
            return Topics([("b", 0), ("b", 1), ("b", 3)], {"b": topic_id})

        def close(self) -> None:
            pass

    monkeypatch.setattr(cluster, "Cluster", Brokers)
    read = {"b": {"0": 17, "1": 5, "2": 6}}
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "b"}
    found = _with_new_partitions({"b": {"0": 17}}, read, {"b": "first"}, options)
    assert found == {"b": {"0": 17, "1": second, "3": -2}}


@pytest.mark.parametrize(
    "text",
    [None, "", "7", "null", "[]", "{}", '{"logOffset":3}', '{"a":{"0":"x"}}', '{"a":{"0":true}}', '{"format":1}', "-"],
)
def test_what_are_no_offsets_of_kafka_is_not_taken_for_some(text: str | None) -> None:
    assert _positions(text) is None


def _committed(folder: Path) -> Committed:
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    return Committed(LocalFileStore(str(folder)), None)


def _make_visible(folder: Path, batch_id: int) -> None:
    record = folder / record_name(QUERY, batch_id, 0)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("{}")


def _commit(folder: Path, batch_id: int) -> None:
    for log in ("offsets", "commits"):
        (folder / log).mkdir(exist_ok=True)
        (folder / log / str(batch_id)).write_text("v1\n{}\n-")


class Turns:
    """A clock that does something each time that it is asked."""

    def __init__(self, *turns: Callable[[], None]) -> None:
        self._turns = list(turns)
        self._ms = 0.0

    def now_ms(self) -> int:
        raise AssertionError("no time of day is needed")

    def elapsed_ms(self) -> float:
        self._ms += 4000
        if self._turns:
            self._turns.pop(0)()
        return self._ms


def test_a_savepoint_waits_until_spark_has_committed_what_is_visible(tmp_path: Path) -> None:
    """Whoever began with it would write the output of that batch again."""
    committed = _committed(tmp_path)
    wait_until_settled(committed, Turns())  # there is no output, nor any batch
    _commit(tmp_path, 10)
    _make_visible(tmp_path, 10)
    wait_until_settled(committed, Turns())
    _make_visible(tmp_path, 11)
    asked = Turns(
        lambda: None,
        lambda: _make_visible(tmp_path, 12),  # the query goes on: what becomes visible meanwhile is not waited for
        lambda: _commit(tmp_path, 11),
    )
    wait_until_settled(committed, asked)
    with pytest.raises(Incompatible, match="batch 11, and output is visible of batch 12: .*batch_id="):
        wait_until_settled(committed, Turns())
    _commit(tmp_path, 12)
    wait_until_settled(committed, Turns())


def test_output_of_a_first_batch_that_spark_has_not_committed_makes_no_savepoint(tmp_path: Path) -> None:
    committed = _committed(tmp_path)
    _make_visible(tmp_path, 0)
    with pytest.raises(Incompatible, match="has committed .* no batch, and output is visible of batch 0"):
        wait_until_settled(committed, Turns())


def test_output_that_is_visible_of_a_later_batch_refuses_the_checkpoint(tmp_path: Path) -> None:
    committed = _committed(tmp_path)
    check_settled(committed, 10)
    for batch_id in (10, 11):
        _make_visible(tmp_path, batch_id)
        if batch_id == 10:
            check_settled(committed, 10)
    with pytest.raises(Incompatible, match="up to batch 10, and output is visible of batch 11"):
        check_settled(committed, 10)


def test_what_became_of_the_earlier_query_is_told_with_the_way_on_for_one_that_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to start the earlier query once more, which would have written output twice."""
    committed = _committed(tmp_path)
    _make_visible(tmp_path, 11)
    with pytest.raises(Incompatible, match="of batch 11.*goes on without restore=.* start the earlier query once"):
        check_settled(committed, 10)

    def given_up(*_: object) -> None:
        raise Incompatible("Spark has given that batch up")

    monkeypatch.setattr(settled, "check_not_given_up", given_up)
    with pytest.raises(Incompatible, match="given that batch up.*goes on without restore="):
        check_settled(committed, 10)
