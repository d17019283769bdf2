"""How long a store that is elsewhere is asked again: one loop for all, with growing pauses, and one form of its errors.

What an answer means is each store's own affair (`Answers`): object stores' in answers.py, WebHDFS's in
webhdfs_answers.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Unavailable
from holdfast.storage.options import StorageOptions

T = TypeVar("T")
_LOGGER = logging.getLogger("holdfast.storage")
_BACKOFF_MS_MAX = 10_000


class TryAgainError(Exception):
    """An answer that contradicts another, as while two write at once: asked again."""


class Answers(Protocol):
    """What the errors of one kind of store mean."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Of its client, beside OSError. Others are mistakes of ours, and pass."""

    def is_missing(self, error: BaseException) -> bool:
        """Whether the store answered that there is no such file."""

    def is_final(self, error: BaseException) -> bool:
        """Whether to try again would help nobody."""

    def told(self, error: BaseException) -> str:
        """An error in one line, without secrets."""

    def way_out(self, error: BaseException) -> str:
        """What the caller can do about it."""


@dataclass(frozen=True)
class Patience:
    """How long a store is asked again, and by which clock. ``sleep`` takes seconds."""

    uri: str
    options: StorageOptions
    answers: Answers
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (*self.answers.errors, OSError, TryAgainError)

    def call(self, doing: str, name: str, action: Callable[[], T], *, may_miss: bool = False) -> T:
        """What ``action`` gives. It may be called several times, also after one whose answer was lost.

        Raises
        ------
        FileNotFoundError
            There is no such file, where that is an answer (``may_miss``).
        Unavailable
            The store does not answer, or refuses: says which.
        """
        started_ms = self.clock.elapsed_ms()
        pause_ms = max(1, self.options.retry_backoff_ms)
        attempts = 0
        while True:
            attempts += 1
            try:
                return action()
            except self._errors as error:
                if may_miss and self.answers.is_missing(error):
                    raise
                told, way_out = self.answers.told(error), self.answers.way_out(error)
                what = f"{doing} {name!r} in {self.uri} failed"
                if self.answers.is_final(error):
                    raise Unavailable(f"{what}: {told}; {way_out}") from None
                spent_ms = self.clock.elapsed_ms() - started_ms
                if spent_ms + pause_ms > self.options.retry_max_ms:
                    raise Unavailable(
                        f"{what} {attempts} times in {spent_ms / 1000:.1f} s; the limit is "
                        f"{self.options.retry_max_ms / 1000:g} s (spark.holdfast.storage.retry.max). Last: "
                        f"{told}; {way_out}"
                    ) from None
                _LOGGER.warning("%s and is tried again in %d ms: %s", what, pause_ms, told)
            self.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _BACKOFF_MS_MAX)
