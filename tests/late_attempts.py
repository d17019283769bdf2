"""A sink whose first attempts at one batch fail once Spark's store has their state, of which a copy is kept: as if they
had been the last to write it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.commit.sink import Committable, SinkTask, SinkWriter
from holdfast.errors import Unavailable


@dataclass(frozen=True)
class FailsOnceSparkHasItsState(hf.FileSink):
    """``kept``: gets what Spark's ``checkpoint`` has of the state after ``batch_id`` when an attempt fails."""

    checkpoint: str = ""
    kept: str = ""
    batch_id: int = 1

    def open(self, task: SinkTask) -> SinkWriter:  # type: ignore[override]
        writer = super().open(task)
        return Failing(writer, self, task.partition) if (task.batch_id, task.attempt) == (self.batch_id, 0) else writer


class Failing:
    """The writer of such an attempt."""

    def __init__(self, inner: SinkWriter, sink: FailsOnceSparkHasItsState, partition: int) -> None:
        self._inner, self._sink, self._partition = inner, sink, partition

    def write(self, rows: pa.RecordBatch) -> None:
        self._inner.write(rows)

    def abort(self) -> None:
        self._inner.abort()

    def prepare(self) -> Committable | None:
        name = f"{self._partition}/{self._sink.batch_id + 1}.delta"
        kept = Path(self._sink.kept, name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(self._sink.checkpoint, "state/0", name), kept)
        raise Unavailable("the other side does not answer")


def write_last(sink: FailsOnceSparkHasItsState) -> int:
    """Gives Spark what those attempts had left, in how many partitions."""
    files = list(Path(sink.kept).rglob("*.delta"))
    for file in files:
        there = Path(sink.checkpoint, "state/0", file.relative_to(sink.kept))
        assert there.read_bytes() != file.read_bytes(), "Spark has the attempt that counts"
        for checksum in (there.with_name(f".{there.name}.crc"), there.with_name(f"{there.name}.crc")):
            checksum.unlink(missing_ok=True)
        shutil.copyfile(file, there)
    return len(files)
