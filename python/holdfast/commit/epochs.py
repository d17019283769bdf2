"""Epochs: which of the drivers that ran on a checkpoint owns it. The newest; all others are fenced. Format:
docs/formats/commit_record.md.

`<checkpoint>/holdfast/<query id>/epochs/<number, 12 digits>.json`, created if absent at the start of a run, one above
the highest there is. A file says who: that is for people.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from holdfast.commit.record_log import query_prefix
from holdfast.errors import Fenced
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

FORMAT = "holdfast.epoch"
VERSION = 1
_NAME = re.compile(r"(\d{12,})\.json")
_KEPT = 8  # of earlier drivers: for people who ask who was when


@dataclass(frozen=True)
class Driver:
    """Who drives a run. ``started_ms``: milliseconds since 1970, by its own clock; nothing depends on it."""

    run_id: str
    host: str
    pid: int
    started_ms: int


class Epochs:
    """The epochs of one query. Owner: the driver's thread."""

    def __init__(self, store: FileStore, query_id: str, driver: Driver) -> None:
        self._store = store
        self._prefix = f"{query_prefix(query_id)}/epochs/"
        self._driver = driver
        self.mine = 0

    def claim(self) -> int:
        """Takes the checkpoint over: every driver before this one is fenced from now on. The number of the epoch."""
        text = seal(FORMAT, VERSION, asdict(self._driver)).encode()
        while True:
            number = max(self._numbers(), default=0) + 1
            if self._store.create_if_absent(self._name(number), text):
                break  # where an answer was lost and this is called again, the driver has two: the higher one counts
        self.mine = number
        return number

    def trim(self) -> None:
        """Forgets the oldest drivers, the oldest first: see :meth:`check`."""
        for number in sorted(self._numbers()):
            if number <= self.mine - _KEPT:
                self._store.delete([self._name(number)])

    def check(self) -> None:
        """Fenced when another driver has taken the checkpoint over.

        Without a list, which object stores bill as a write: who comes next takes the very next number. That one may be
        forgotten since, but never before this driver's own.
        """
        own, next_one = (self._store.get(self._name(number)) for number in (self.mine, self.mine + 1))
        if own is None or next_one is not None:
            newest = max(self._numbers(), default=0)
            if newest > self.mine:
                raise Fenced(self._fenced(newest))

    def numbers(self) -> list[int]:
        """All that are remembered, sorted."""
        return sorted(self._numbers())

    def driver_of(self, number: int) -> Driver | None:
        """Who had an epoch; None when that is forgotten."""
        name = self._name(number)
        data = self._store.get(name)
        where = f"the epoch {name} in {self._store.uri}"
        return None if data is None else Driver(**unseal(data, FORMAT, VERSION, where))

    def _fenced(self, newest: int) -> str:
        other = self.driver_of(newest)
        who = f"run {other.run_id}, process {other.pid} on {other.host}" if other else "of whom nothing more is known"
        return (
            f"another driver took over the checkpoint {self._store.uri}: epoch {newest} ({who}); this is epoch "
            f"{self.mine}, run {self._driver.run_id}. Nothing of this driver becomes visible any more. Stop one of the "
            f"two: a checkpoint belongs to one query that runs once"
        )

    def _numbers(self) -> list[int]:
        matches = [_NAME.fullmatch(file.name.rpartition("/")[2]) for file in self._store.list(self._prefix)]
        return [int(match.group(1)) for match in matches if match]

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012d}.json"
