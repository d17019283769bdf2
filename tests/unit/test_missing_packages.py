"""A package that is not installed is told where it is first asked for, on the driver, before any broker or batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import holdfast as hf
from holdfast.commit.sink import CommitLimits
from holdfast.source.kafka import KafkaDataSource

ROWS = pa.schema([("key", pa.string()), ("value", pa.string())])
LIMITS = CommitLimits(trigger_ms=1000, retry_max_ms=120_000, retry_backoff_ms=100)
INSTALL = r"pip install 'holdfast-spark\[{}\]'"


@pytest.mark.parametrize(
    ("package", "mode"), [("confluent_kafka", "exactly-once"), ("confluent_kafka", "none"), ("kafka", "exactly-once")]
)
def test_a_sink_without_its_clients_says_so_before_it_asks_a_broker(
    package: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    sink = hf.KafkaSink("127.0.0.1:1", "totals", mode=mode)
    with pytest.raises(hf.Unavailable, match=INSTALL.format("kafka")):
        sink.check(ROWS, LIMITS)


def test_a_source_without_its_client_says_so_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did so when it was registered, and with it, by the same call, the table of state, which needs no client."""
    registered: list[Any] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=registered.append))
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    hf.register_sources(session)
    assert [source.name() for source in registered] == ["holdfast-state", "holdfast-kafka"]
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks"}
    asked = KafkaDataSource(options)
    for ask in (asked.schema, lambda: asked.reader(StructType()), lambda: asked.streamReader(StructType())):
        with pytest.raises(hf.Unavailable, match=INSTALL.format("kafka")):
            ask()


def test_a_sketch_without_its_library_says_so_when_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    hf.AggregatingState(pa.string(), "approx_count_distinct")
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(hf.Unavailable, match=INSTALL.format("sketch")):
        hf.AggregatingState(pa.string(), "approx_count_distinct")


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "uri", "what", "extra"),
    [("obstore", "s3://bucket/x", "an object store", "cloud"), ("requests", "hdfs://nn/x", "in HDFS", "hdfs")],
)
def test_a_store_without_its_client_says_so_when_it_is_opened(
    package: str, uri: str, what: str, extra: str, tmp_path: Path
) -> None:
    """As it is on a driver whose environment lacks it."""
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('No module named {package}')\n")
    program = f"from holdfast.storage import open_file_store; open_file_store('{uri}')"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"InvalidRequest: {uri} is {what}" in ran.stderr
    assert f"pip install 'holdfast-spark[{extra}]'" in ran.stderr
