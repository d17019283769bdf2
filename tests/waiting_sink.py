"""A FileSink of which a task fails, once Spark has snapshotted what another task of the batch left in its state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.commit.sink import Committable, SinkTask
from holdfast.sink.files import FileSink

_SECONDS = 240


@dataclass(frozen=True)
class WaitsForSnapshot(FileSink):
    """In batch ``batch_id`` the task of ``partition`` waits until Spark has a snapshot of partition 1's new state; and
    fails then. ``tries``: as many attempts do so.
    """

    batch_id: int = 0
    state: str = ""
    suffix: str = ""
    partition: int = 0
    tries: int = 1 << 30

    def open(self, task: SinkTask) -> Waiting:  # type: ignore[override]
        waits = (task.batch_id, task.partition) == (self.batch_id, self.partition) and task.attempt < self.tries
        return Waiting(super().open(task), self if waits else None)


class Waiting:
    """The writer of such a sink."""

    def __init__(self, inner: object, waits: WaitsForSnapshot | None) -> None:
        self._inner = inner
        self._waits = waits

    def write(self, batch: pa.RecordBatch) -> None:
        self._inner.write(batch)  # type: ignore[attr-defined]

    def abort(self) -> None:
        self._inner.abort()  # type: ignore[attr-defined]

    def prepare(self) -> Committable | None:
        waits = self._waits
        if waits is not None:
            wait_for_snapshot(Path(waits.state), waits.batch_id, waits.suffix)
        return self._inner.prepare()  # type: ignore[attr-defined]


def wait_for_snapshot(state: Path, batch_id: int, suffix: str) -> None:
    """Fails, once Spark has a snapshot of partition 1's state after a batch."""
    snapshot = state / "0" / "1" / f"{batch_id + 1}{suffix}"
    ends = time.monotonic() + _SECONDS
    while not snapshot.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    raise RuntimeError("it is there" if snapshot.exists() else f"{snapshot} never came")
