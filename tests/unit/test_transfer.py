"""Jobs that run side by side: what becomes of those that have not begun."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from holdfast.storage import transfer
from holdfast.storage.transfer import run_parallel

JOBS, THREADS = 40, 4


class Steps:
    """Where jobs and the thread that waits for them are: a job that has begun ends once no more may begin."""

    def __init__(self) -> None:
        self.submitted = 0
        self.all_submitted = threading.Event()
        self.shut = threading.Event()
        self.begun: list[int] = []
        self.ended: list[int] = []

    def job(self, number: int, act: Callable[[], None]) -> None:
        self.begun.append(number)
        assert self.all_submitted.wait(60)
        if number == 0:
            act()
        assert self.shut.wait(60)
        self.ended.append(number)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    told = Steps()

    class Told(ThreadPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Future[Any]:
            future = super().submit(*given, **named)
            told.submitted += 1
            if told.submitted == JOBS:
                told.all_submitted.set()
            return future

        def shutdown(self, wait: bool = True, **named: Any) -> None:
            super().shutdown(False, **named)
            told.shut.set()
            super().shutdown(wait)

    monkeypatch.setattr(transfer, "ThreadPoolExecutor", Told)
    return told


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_what_has_not_begun_is_not_done_after_ctrl_c_and_what_runs_is_waited_for(
    steps: Steps, number: signal.Signals, raised: type[BaseException]
) -> None:
    """All that was queued was done before the command ended: `gc --yes` deleted the rest, too."""
    heard = threading.Event()

    def hear(told: int, frame: FrameType | None) -> None:
        if not heard.is_set():
            heard.set()
            raise raised

    def press() -> None:
        while not heard.wait(0.1):  # a thread that is just about to wait may not hear the first one
            os.kill(os.getpid(), number)

    before = signal.signal(number, hear)
    try:
        with pytest.raises(raised):
            run_parallel([lambda one=one: steps.job(one, press) for one in range(JOBS)], THREADS)  # type: ignore[misc]
    finally:
        signal.signal(number, before)
    assert sorted(steps.begun) == sorted(steps.ended) == list(range(THREADS))


def test_what_has_not_begun_is_not_done_after_an_error(steps: Steps) -> None:
    def fail() -> None:
        raise ValueError("of the first job")

    with pytest.raises(ValueError, match="of the first job"):
        run_parallel([lambda one=one: steps.job(one, fail) for one in range(JOBS)], THREADS)  # type: ignore[misc]
    assert len(steps.begun) < JOBS
    assert len(steps.ended) == len(steps.begun) - 1
