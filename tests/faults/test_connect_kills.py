"""Two inputs, a main output into files and two side outputs into Kafka, and kill -9: of a worker that had prepared, and
of the driver with its record written. Each row is in one output, once, and the state is that of what is visible.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults.file_reading import FolderReader
from tests.faults.program import FaultFile, Program, log_tail
from tests.kafka_reading import read_committed

if TYPE_CHECKING:
    from tests.integration.kafka.kafka_world import KafkaWorld

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BATCHES, ORDERS, PAYMENTS = 6, 50, 80


def orders(batch: int) -> list[dict[str, Any]]:
    """Ten minutes pass with each batch; every tenth order is an hour old."""
    at = START + timedelta(minutes=10 * batch)
    return [
        {"order_id": batch * ORDERS + i, "at": at + timedelta(seconds=i, hours=-1 if i % 10 == 0 else 0)}
        for i in range(ORDERS)
    ]


def payments(batch: int) -> list[dict[str, Any]]:
    """Of orders so far, and of some that are still to come."""
    chance = random.Random(batch)
    return [
        {"payment": batch * PAYMENTS + i, "order": chance.randrange((batch + 1) * ORDERS + 20)} for i in range(PAYMENTS)
    ]


def write(folder: Path, name: str, batch: int, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    path = folder / name / f"{batch:06d}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    os.utime(path, (1_700_000_000 + batch,) * 2)  # Spark reads files by age


class Expected:
    """By plain Python: which rows go where, and how many payments of its order each one follows."""

    def __init__(self) -> None:
        known: set[int] = set()
        of_order: Counter[int] = Counter()
        self.late: list[int] = []
        self.unknown: list[int] = []
        self.found: dict[int, tuple[int, int]] = {}
        for batch in range(BATCHES):
            for row in orders(batch):
                if batch > 0 and row["order_id"] % 10 == 0:
                    self.late.append(row["order_id"])
                else:
                    known.add(row["order_id"])
            for row in payments(batch):
                if row["order"] in known:
                    of_order[row["order"]] += 1
                    self.found[row["payment"]] = (row["order"], of_order[row["order"]])
                else:
                    self.unknown.append(row["payment"])


def test_each_row_of_two_inputs_is_in_one_output_once(tmp_path: Path, kafka: KafkaWorld) -> None:
    for batch in range(BATCHES):
        write(
            tmp_path, "orders", batch, orders(batch), pa.schema([("order_id", "i8"), ("at", pa.timestamp("us", "UTC"))])
        )
        write(tmp_path, "payments", batch, payments(batch), pa.schema([("payment", "i8"), ("order", "i8")]))
    late, unknown = kafka.topic(), kafka.topic()
    faults = FaultFile(tmp_path / "fault")

    def start() -> Program:
        given = (kafka.servers, late, unknown)
        return Program("connect_stream.py", tmp_path, *given, environment=faults.environment)

    faults.arm("sink_after_prepare", 2)
    program = start()
    try:
        assert program.wait_for(lambda: faults.has_struck), log_tail(tmp_path)
        assert program.wait_for_batches(1), log_tail(tmp_path)  # Spark has tried the task again
        faults.arm("after_record")
        assert program.wait_for(lambda: faults.has_struck), log_tail(tmp_path)
    finally:
        program.end()
    assert program.batch < BATCHES - 1, "nothing was left to do"
    program = start()
    try:
        assert program.wait_for(lambda: program.batch >= BATCHES - 1), log_tail(tmp_path)
    finally:
        program.end()
    expected = Expected()
    assert sorted(map(int, read_committed(kafka.servers, late))) == sorted(expected.late)
    assert sorted(map(int, read_committed(kafka.servers, unknown))) == sorted(expected.unknown)
    rows = sorted(FolderReader(tmp_path / "out").rows(), key=lambda row: (row["order"], row["n"]))
    assert len(rows) == len(expected.found)
    assert {row["payment"]: (row["order"], row["n"]) for row in rows} == expected.found
    drawn: Counter[int] = Counter()
    for row in rows:
        drawn[row["order"]] += row["number"]
        assert row["drawn"] == drawn[row["order"]], "the state is of an attempt that nobody sees"
