"""A query whose JVM is gone, or is waited for while Ctrl-C is pressed: what its methods say. The JVM is played."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.errors import HoldfastError, Unavailable
from holdfast.spark import query as query_module
from holdfast.spark.query import Query, start


def gone(*_: Any) -> Any:
    raise Py4JNetworkError("Answer from Java side is empty")


def refused(*_: Any) -> Any:
    raise ConnectionRefusedError(111, "Connection refused")


class Output:
    error = None
    closed = 0

    def close(self) -> None:
        self.closed += 1


ASKED: dict[str, Callable[[Query], Any]] = {
    "id": lambda query: query.id,
    "runId": lambda query: query.runId,
    "name": lambda query: query.name,
    "isActive": lambda query: query.isActive,
    "status": lambda query: query.status,
    "recentProgress": lambda query: query.recentProgress,
    "lastProgress": lambda query: query.lastProgress,
    "exception": lambda query: query.exception(),
    "explain": lambda query: query.explain(),
    "awaitTermination": lambda query: query.awaitTermination(),
    "processAllAvailable": lambda query: query.processAllAvailable(),
    "stop": lambda query: query.stop(),
}


class Dead:
    """Every method of a Java object whose JVM is gone fails alike."""

    def __init__(self, how: Callable[..., Any]) -> None:
        self._how = how

    def __getattr__(self, name: str) -> Any:
        return self._how


@pytest.mark.parametrize("how", [gone, refused])
@pytest.mark.parametrize("asked", ASKED)
def test_whatever_is_asked_of_a_query_whose_jvm_is_gone_says_so(asked: str, how: Callable[..., Any]) -> None:
    query = Query(SimpleNamespace(_jsq=Dead(how)))  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="Spark's driver is gone.*Start the program again"):
        ASKED[asked](query)


def test_what_commits_its_output_ends_with_a_query_that_is_stopped_though_its_jvm_is_gone() -> None:
    output = Output()
    with pytest.raises(Unavailable):
        Query(SimpleNamespace(_jsq=Dead(gone)), output).stop()  # type: ignore[arg-type]
    assert output.closed == 1


def test_ctrl_c_stops_a_query_of_which_all_that_is_there_is_waited_for() -> None:
    """It was raised in the middle of a call to the JVM, and the query went on."""
    begun, stopped = threading.Event(), threading.Event()

    def process() -> None:
        begun.set()
        assert stopped.wait(240)

    java: Any = SimpleNamespace(processAllAvailable=process, stop=stopped.set)

    def press() -> None:
        if begun.wait(240):
            os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        Query(SimpleNamespace(_jsq=java)).processAllAvailable()  # type: ignore[arg-type]
    assert stopped.is_set()
    pressing.join()


def test_an_error_while_all_that_is_there_is_waited_for_is_what_it_was() -> None:
    def process() -> None:
        raise ValueError("what the JVM said")

    query = Query(SimpleNamespace(_jsq=SimpleNamespace(processAllAvailable=process)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="what the JVM said"):
        query.processAllAvailable()


class Started:
    """What Spark has of a query that was started."""

    runId = "run"

    def __init__(self) -> None:
        self.stops = 0
        self.returned = False

    def stop(self) -> None:
        self.stops += 1

    def writer(self, act: Callable[[], object]) -> DataStreamWriter:
        of_java = self

        class Writer(DataStreamWriter):
            def __init__(self) -> None:
                """Nothing of the JVM's."""

            def option(self, *_: Any) -> DataStreamWriter:  # type: ignore[override]
                return self

            def start(self, *_: Any, **__: Any) -> Any:
                act()
                of_java.returned = True
                return SimpleNamespace(_jsq=of_java)

        return Writer()


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_query_that_starts_while_ctrl_c_is_pressed_does_not_go_on_without_anybody_who_has_it() -> None:
    """The JVM started it all the same: in a notebook it ran on, and held the checkpoint."""
    java = Started()
    with pytest.raises(KeyboardInterrupt):
        start(java.writer(press))
    assert java.returned
    assert java.stops == 1


@pytest.mark.parametrize(("act", "raised"), [(press, KeyboardInterrupt), (gone, Unavailable)])
def test_a_query_of_which_what_follows_its_start_fails_is_stopped(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], raised: type[BaseException]
) -> None:
    java = Started()

    def note(*_: Any) -> None:
        with query_module._jvm_there():
            act()

    monkeypatch.setattr(query_module, "_prepare", lambda *_: ["a time to live"])
    monkeypatch.setattr(query_module, "_warn_if_elsewhere", note)
    with pytest.raises(raised):
        start(java.writer(lambda: None), checkpoint="/checkpoint")
    assert java.stops == 1


def test_a_query_that_spark_does_not_start_is_nothing_to_stop() -> None:
    java, before = Started(), signal.getsignal(signal.SIGINT)

    def refuse() -> None:
        raise HoldfastError("as Spark")

    with pytest.raises(HoldfastError, match="as Spark"):
        start(java.writer(refuse))
    assert java.stops == 0
    assert signal.getsignal(signal.SIGINT) is before
