"""A process that prepares a partition and is killed -9 at once: run by test_sink.py with a pickled sink and task."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path

import pyarrow as pa

from holdfast.commit.sink import Sink, SinkTask


def main(given: Path, found: Path) -> None:
    """Reads (sink, task, rows), prepares, writes the committable as JSON, and dies."""
    sink: Sink
    task: SinkTask
    rows: pa.RecordBatch
    sink, task, rows = pickle.loads(given.read_bytes())
    writer = sink.open(task)
    writer.write(rows)
    committable = writer.prepare()
    assert committable is not None
    found.write_text(json.dumps(vars(committable)))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
