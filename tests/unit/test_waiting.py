"""Waiting for a query: Ctrl-C, and what is made of errors that no worker raised."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

import holdfast as hf
from holdfast.spark.query import _interruptible, plain_error, started


class Stops:
    """A query, as far as Ctrl-C goes."""

    def __init__(self) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def test_what_is_no_query_is_told() -> None:
    with pytest.raises(hf.InvalidRequest, match=r"expected a StreamingQuery, as DataStreamWriter\.start\(\) gives it"):
        hf.await_termination("console")  # type: ignore[arg-type]


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_the_query_where_it_is_looked_for() -> None:
    query: Any = Stops()
    with pytest.raises(KeyboardInterrupt):
        with _interruptible(query) as look:
            look()
            press()
            assert query.stopped == 0, "nothing is raised in the middle of a call to the JVM"
            look()
    assert query.stopped == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [None, hf.Unavailable("ended")])
def test_ctrl_c_is_not_lost_where_the_query_ends_by_itself(error: Exception | None) -> None:
    with pytest.raises(KeyboardInterrupt):
        with _interruptible(Stops()):  # type: ignore[arg-type]
            press()
            if error is not None:
                raise error


def test_a_second_ctrl_c_does_not_wait_for_a_start_that_hangs() -> None:
    """As where HDFS is away: pressed ten times, nothing happened for minutes."""
    reached = []

    def begin() -> Any:
        press()
        reached.append("the first is kept")
        press()
        reached.append("the second too")

    with pytest.raises(KeyboardInterrupt):
        started(begin, lambda query: None)
    assert reached == ["the first is kept"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_programs_own_stays() -> None:
    pressed = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    query: Any = Stops()
    with _interruptible(query) as look:
        press()
        look()
    assert (pressed, query.stopped) == ([signal.SIGINT], 0)


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("Answer is empty")])
def test_a_jvm_that_is_gone_is_unavailable(error: Exception) -> None:
    assert type(plain_error(error)) is hf.Unavailable


@pytest.mark.parametrize("error", [hf.Fenced("x"), RuntimeError("[STREAM_FAILED] of Spark's own"), ValueError("")])
def test_all_else_stays_what_it_is(error: Exception) -> None:
    assert plain_error(error) is None
