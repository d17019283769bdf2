"""What an operator says of the session that it is made in."""

from __future__ import annotations

import logging
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.spark import sessions
from holdfast.spark.sessions import arrow_rows_max, fixed_tasks, shuffle_partitions, warn_of_idle_tasks
from holdfast.spark.worker import BatchIdentity


def _session(partitions: int | None, cores: int | None, master: str | None = None, **settings: str) -> Any:
    conf = {} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}
    static = {f"spark.{name.replace('__', '.')}": value for name, value in settings.items()}
    # Of tasks that run at once it says nothing: it is what spark.default.parallelism says.
    known = SimpleNamespace(defaultParallelism=7, master=master or f"local[{cores}]", getConf=lambda: static)
    return SimpleNamespace(conf=conf, **({} if cores is None else {"sparkContext": known}))


@pytest.mark.parametrize(
    ("partitions", "cores", "told"),
    [
        (None, 2, "is 200, for 2 cores: .* about 10 s. Set it to 2,"),
        (200, 4, "is 200, for 4 cores: .* about 5 s. Set it to 4,"),
        (200, 16, None),
        (32, 2, None),
        (200, None, None),  # Spark Connect: nobody tells the cores
    ],
)
def test_many_more_partitions_than_cores_are_told_with_what_they_cost(
    partitions: int | None, cores: int | None, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.spark"):
        warn_of_idle_tasks(_session(partitions, cores), "totals")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (told is not None)
    if told is not None:
        assert messages[0].startswith("operator 'totals': spark.sql.shuffle.partitions ")
        assert re.search(told, messages[0])


def test_a_number_of_partitions_that_somebody_else_chooses_is_refused() -> None:
    """Some platforms take "auto", which is no number to put slots on."""
    assert [shuffle_partitions(found, "o") for found in (None, "", "8")] == [200, 200, 8]
    session = _session(None, 2)
    session.conf["spark.sql.shuffle.partitions"] = "auto"
    said = "operator 'totals': spark.sql.shuffle.partitions is 'auto'; expected a number, .* Set it to"
    with pytest.raises(InvalidRequest, match=said):
        warn_of_idle_tasks(session, "totals")
    with pytest.raises(InvalidRequest, match=said):
        shuffle_partitions("auto", "operator 'totals'")


_FOUR_EXECUTORS = {"executor__instances": "4", "executor__cores": "2"}


@pytest.mark.parametrize(
    ("master", "settings", "told"),
    [
        ("yarn", {}, None),
        ("spark://other:7077", {"executor__cores": "2"}, None),
        ("local-cluster[2,1,1024]", {}, None),
        ("yarn", _FOUR_EXECUTORS, "is 200, for 8 cores: .* Set it to 8,"),
        ("yarn", {**_FOUR_EXECUTORS, "dynamicAllocation__enabled": "true"}, None),
        ("local", {}, "is 200, for 1 cores"),
        ("local[ 2 , 3 ]", {}, "is 200, for 2 cores"),
    ],
)
def test_a_cluster_whose_executors_have_not_come_is_not_told_to_make_do_with_two_partitions(
    master: str, settings: dict[str, str], told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark says 2 cores as long as it knows of none, and the number that was set then is fixed for good."""
    with caplog.at_level(logging.WARNING, "holdfast.spark"):
        warn_of_idle_tasks(_session(200, 2, master, **settings), "totals")
    assert len(caplog.records) == (told is not None)
    assert told is None or re.search(told, caplog.records[0].getMessage())


@pytest.mark.parametrize(("limit", "cores"), [(None, 6), (2.5, 3), (16.0, 6)])
def test_all_cores_are_those_that_the_jvm_may_use(
    limit: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "usable_cores", lambda: 6)
    monkeypatch.setattr(sessions, "core_limit", lambda: limit)
    assert sessions.local_cores("local[*]") == cores
    assert sessions.local_cores("local[*, 4]") == cores
    assert sessions.local_cores("local-cluster[2,1,1024]") is None


def test_the_ballast_of_packed_rows_stays_small_beside_them() -> None:
    """It goes by the limit of Spark's Arrow batches, and "no limit" is often said by the largest number there is."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    assert [arrow_rows_max(conf) for conf in ({}, {setting: "1"}, {setting: "100000"})] == [10_000, 1, 100_000]
    for rows, why in (("0", "no limit"), ("-1", "no limit"), ("100001", "at most 100000"), ("2147483647", "at most")):
        with pytest.raises(InvalidRequest, match=f"maxRecordsPerBatch is {rows}[,;] .*{why}.* Set it to 10000"):
            arrow_rows_max({setting: rows})


class _Conf(dict[str, str]):
    """A session's settings."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"


@pytest.mark.parametrize("own", [None, "true", "false"])
def test_a_query_that_a_listener_starts_as_another_one_starts_does_not_wait_for_it(own: str | None) -> None:
    """Both waited for ever, and every later start with them."""
    conf = _Conf({} if own is None else {ADAPTIVE: own})
    before, found = dict(conf), []

    def on_query_started() -> None:  # in a thread of its own; the first start returns when it has
        with fixed_tasks(SimpleNamespace(conf=conf)):  # type: ignore[arg-type]
            found.append(conf[ADAPTIVE])
        found.append(conf[ADAPTIVE])

    with fixed_tasks(SimpleNamespace(conf=conf)):  # type: ignore[arg-type]
        listener = threading.Thread(target=on_query_started, daemon=True)
        listener.start()
        listener.join(10)
        assert found == ["false", "false"], "the first one may not have its settings yet"
    assert conf == before


def test_of_starts_side_by_side_the_last_one_out_gives_the_session_its_own() -> None:
    conf = _Conf({ADAPTIVE: "true"})
    first, second, other = (fixed_tasks(SimpleNamespace(conf=conf)) for _ in range(3))  # type: ignore[arg-type]
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert conf[ADAPTIVE] == "false"
    other.__enter__()
    second.__exit__(None, None, None)
    assert conf[ADAPTIVE] == "false"
    other.__exit__(None, None, None)
    assert conf == {ADAPTIVE: "true"}


def test_a_start_that_fails_gives_the_session_its_own() -> None:
    conf = _Conf({ADAPTIVE: "true"})
    with pytest.raises(InvalidRequest), fixed_tasks(SimpleNamespace(conf=conf)):  # type: ignore[arg-type]
        raise InvalidRequest("no query of that name")
    assert conf == {ADAPTIVE: "true"}


def test_what_somebody_sets_while_a_query_starts_stays() -> None:
    conf = _Conf()
    session: Any = SimpleNamespace(conf=conf)
    with fixed_tasks(session):
        conf.set(ADAPTIVE, "true")
    assert conf == {ADAPTIVE: "true"}
    conf.set(ADAPTIVE, "false")
    with fixed_tasks(session):
        conf.set(ADAPTIVE, "true")
        with fixed_tasks(session):
            assert conf[ADAPTIVE] == "false", "whoever set it when: no query is started with another one"
    assert conf == {ADAPTIVE: "true"}
    with fixed_tasks(session):
        conf.clear()  # SQL's RESET
    assert conf == {}


def test_sessions_are_counted_each_by_itself() -> None:
    one, other = _Conf({ADAPTIVE: "true"}), _Conf()
    with fixed_tasks(SimpleNamespace(conf=one)):  # type: ignore[arg-type]
        with fixed_tasks(SimpleNamespace(conf=other)):  # type: ignore[arg-type]
            assert (one[ADAPTIVE], other[ADAPTIVE]) == ("false", "false")
        assert other == {}
    assert one == {ADAPTIVE: "true"}


@pytest.mark.parametrize(("pinned", "refused"), [(None, False), ("TRUE", False), ("false", True), ("1", True)])
def test_threads_that_are_not_pinned_to_the_jvms_are_refused(
    monkeypatch: pytest.MonkeyPatch, pinned: str | None, refused: bool
) -> None:
    """The first batch found no query, and called that a bug of Holdfast."""
    if pinned is None:
        monkeypatch.delenv("PYSPARK_PIN_THREAD", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_PIN_THREAD", pinned)
    df: Any = SimpleNamespace(schema=StructType(), isStreaming=False)
    with pytest.raises(InvalidRequest) as caught:
        hf.write_exactly_once(df, checkpoint="/nowhere")
    assert (f"found PYSPARK_PIN_THREAD={pinned}; start the program without it" in str(caught.value)) == refused


def test_a_task_that_knows_no_batch_names_what_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(getLocalProperty=lambda name: None)
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    with pytest.raises(
        InvalidRequest, match="in a thread of its own.*PYSPARK_PIN_THREAD=false.*start the program without"
    ):
        BatchIdentity.of_task()
