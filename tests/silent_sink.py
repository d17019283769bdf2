"""A FileSink whose other side does not answer when a batch is to be made visible."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.errors import Unavailable
from holdfast.sink.files import FileSink


@dataclass(frozen=True)
class SilentFileSink(FileSink):
    """Says when it has been asked, in the driver's process."""

    asked: ClassVar[threading.Event] = threading.Event()

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        self.asked.set()
        raise Unavailable("no answer")
