"""The name of a checkpoint as Spark is told it: where Spark reads its own state, as where it writes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark.checkpoint_path import spark_path
from holdfast.spark.state_reader import state_texts
from holdfast.spark_files.logs import CommittedBatch

PLACES = [
    ("s3a://bucket/a checkpoint", "s3a://bucket/a checkpoint"),
    ("hdfs://name:8020/checkpoint", "hdfs://name:8020/checkpoint"),
    ("/data/a checkpoint", "file:/data/a checkpoint"),
    ("file:///data/checkpoint", "file:/data/checkpoint"),
]


class Session:
    """Stands for Spark, which needs a bucket's connector to be told of one: notes what it is asked to read."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.read = self

    def format(self, _: str) -> Session:
        return self

    def option(self, *_: Any) -> Session:
        return self

    def load(self, path: str) -> Session:
        self.asked.append(path)
        return self

    def select(self, *_: str) -> Any:
        return SimpleNamespace(collect=lambda: [{"handle": "a handle"}])

    def newSession(self) -> Session:
        self.conf = SimpleNamespace(set=lambda *_: None)
        return self


@pytest.mark.parametrize(("checkpoint", "expected"), PLACES)
def test_spark_reads_its_state_where_it_wrote_it(checkpoint: str, expected: str) -> None:
    session: Any = Session()
    assert state_texts(session, checkpoint, CommittedBatch(3, 0, None, (), {}), 0) == ["a handle"]
    assert session.asked == [expected] == [spark_path(checkpoint)]
