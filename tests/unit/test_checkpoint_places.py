"""Which checkpoints `hf.start` looks at before Spark opens them, and that it says so of those that it does not.

Spark and its session are played: what is asked is where Holdfast looks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.s3_server import S3Server
from tests.unit.test_declared_operators import QUERY, RECORD, plan

import holdfast as hf
from holdfast.checkpoint import operator_prefix, register_operator
from holdfast.settings import Settings
from holdfast.spark import declared_operators
from holdfast.spark.declared_operators import declare
from holdfast.storage import StorageOptions, open_file_store


class Session(SparkSession):
    """One that has no more than settings."""

    def __init__(self, conf: dict[str, str]) -> None:
        self._settings = conf

    @property
    def conf(self) -> Any:
        return SimpleNamespace(getAll=self._settings)


RUN = "0f0f0f0f-0000-4000-8000-000000000001"


class Writer(DataStreamWriter):
    """One whose query has begun as soon as it is started."""

    def __init__(self, start: Callable[[], Any] = lambda: None) -> None:
        self._started = start

    def option(self, *_: Any) -> Any:
        return self

    def start(self, *_: Any, **__: Any) -> Any:
        self._started()
        return SimpleNamespace(_jsq=SimpleNamespace(runId=lambda: SimpleNamespace(toString=lambda: RUN)))


@pytest.fixture(autouse=True)
def new_program(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(declared_operators, "_declared", type(declared_operators._declared)())
    caplog.set_level(logging.WARNING, "holdfast")
    yield


@pytest.mark.parametrize(
    ("checkpoint", "state"),
    [
        ("s3a://one/checkpoint", "/mnt/state"),
        ("s3a://one/checkpoint", "s3://two/state"),
        ("s3a://one/checkpoint", None),
        ("hdfs://namenode/checkpoint", "hdfs://other/state"),
        ("viewfs://cluster/checkpoint", "viewfs://cluster/state"),
        ("dbfs:/checkpoint", "/dbfs/state"),
    ],
)
def test_a_checkpoint_that_is_not_looked_at_is_warned_of(
    checkpoint: str, state: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """README said that it warns: only an error of the storage was told."""
    conf = {} if state is None else {"spark.holdfast.checkpoint.dir": state}
    hf.start(Writer(), checkpoint=checkpoint, session=Session(conf))
    (said,) = caplog.messages
    assert f"the checkpoint {checkpoint} is not looked at" in said
    assert "spark.holdfast.checkpoint.dir" in said


def test_a_port_that_is_told_is_that_of_the_state_unless_an_endpoint_says_where_that_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf = {"spark.holdfast.checkpoint.dir": "webhdfs://127.0.0.1/state", "spark.holdfast.storage.retry.max": "1ms"}
    hf.start(Writer(), checkpoint="webhdfs://127.0.0.1:9870/checkpoint", session=Session(conf))
    assert "failed 1 times" in caplog.messages[-1], "it was asked"
    conf["spark.holdfast.storage.endpoint"] = "http://127.0.0.2:9870"
    hf.start(Writer(), checkpoint="webhdfs://127.0.0.1:9870/checkpoint", session=Session(conf))
    assert "of buckets and HDFS, only that of" in caplog.messages[-1]


def test_a_path_that_spark_takes_for_one_of_another_file_system_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hadoop's default is HDFS on many clusters: an empty folder of the driver's was looked at."""
    checkpoint = tmp_path / "checkpoint"
    hf.start(Writer(), checkpoint=checkpoint, session=Session({}))
    (said,) = caplog.messages
    assert f"the checkpoint {checkpoint} was not looked at" in said and "with its scheme: hdfs://" in said


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_that_spark_writes_to_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    def begin() -> None:
        (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))

    hf.start(Writer(begin), checkpoint=f"{scheme}{tmp_path}", session=Session({}))
    hf.start(Writer(), checkpoint=f"{scheme}{tmp_path}", session=Session({}))
    assert caplog.messages == []


def test_a_checkpoint_beside_the_state_of_an_operator_with_settings_of_its_own_is_looked_at(
    s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the state is was asked of the session alone: with `hf.keyed(settings=…)` nothing was compared."""
    bucket, options = s3.bucket(), StorageOptions(endpoint=s3.url)
    open_file_store(f"s3://{bucket}/checkpoint", options).put("metadata", json.dumps({"id": QUERY}).encode())
    state = f"s3://{bucket}/state"
    register_operator(open_file_store(state, options), RECORD, prefix=operator_prefix(QUERY, RECORD.name))
    settings = Settings(checkpoint_dir=state, storage_endpoint=s3.url)
    declare(replace(plan(Path("/")), checkpoint_dir=state, settings=settings))
    hf.start(Writer(), checkpoint=f"s3a://{bucket}/checkpoint", session=Session({}))
    assert caplog.messages == []
    declared_operators._declared.clear()
    declare(replace(plan(Path("/"), null_keys=True), checkpoint_dir=state, settings=settings))
    with pytest.raises(hf.Incompatible, match="null keys: recorded False, declared True"):
        hf.start(Writer(), checkpoint=f"s3a://{bucket}/checkpoint", session=Session({}))
