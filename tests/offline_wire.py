"""A wire without a network: its questions are run at once, on a clock that goes on by a millisecond at each look."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from holdfast.kafka.wire import Wire


class OfflineWire(Wire):
    """What a test's own wire begins with: that one answers instead of brokers, and never waits."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "broker:9092"}, clock=self)
        self.now_ms_ = 0.0

    def elapsed_ms(self) -> float:
        self.now_ms_ += 1
        return self.now_ms_

    def now_ms(self) -> int:
        return int(self.now_ms_)

    def _connected(self, within_ms: float) -> Any:
        return self

    def run(self, question: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        try:
            question().send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("an answer does not wait here")

    async def gather(self, questions: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        answers: list[Any] = []
        for question in questions:
            try:
                answers.append(await question)
            except Exception as error:
                answers.append(error)
        return answers
