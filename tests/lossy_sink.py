"""A FileSink whose other side forgets what was prepared, once, as a broker does after its time limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.sink.files import FileSink


@dataclass(frozen=True)
class LossyFileSink(FileSink):
    """Loses ``partitions`` of batch ``batch_id`` just before they are committed for the first time."""

    batch_id: int = 0
    partitions: tuple[int, ...] = ()

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        marker = Path(self.path) / "_lost"
        if committables and committables[0].body["batch_id"] == self.batch_id and not marker.exists():
            marker.touch()
            for one in committables:
                if one.partition in self.partitions:
                    os.unlink(os.path.join(self.path, one.body["staged"]))
        return super().commit(scope, committables)
