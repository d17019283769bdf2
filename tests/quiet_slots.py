"""Spark's part for two slots of one operator, so that a test says which of them gets rows in a batch, and what the
program declares from one start to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from tests.first_versions import registered_slots
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast import _core
from holdfast.checkpoint import Handle, OperatorRecord, SlotState, operator_prefix, register_operator
from holdfast.checkpoint.names import attempt_version_id
from holdfast.checkpoint.ttl_log import DeclaredTtls, note_ttls
from holdfast.spark.keyed import state_changes, state_records
from holdfast.spark.slot_batch import declared_ttls as ttls_of
from holdfast.spark.slot_batch import lifetimes_of, run_batch
from holdfast.state import Context, Input
from holdfast.storage import open_file_store

QUERY = "00000000-0000-4000-8000-000000000000"
NAME, STATE = "under-test", "seen"
HOUR_MS = 3_600_000
NOON_MS = 500_000 * HOUR_MS  # a multiple of each step
ROWS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
ADA, BOB = 0, 1  # slots
FORMATS: list[Literal["canonical", "native"]] = ["canonical", "native"]


def program(
    ttl: hf.TTL | None, seen_before: list[int | None], beside: hf.TTL | hf.DroppedState | None = None
) -> hf.KeyedProcessor:
    """What counts a key's rows. ``beside``: of another state's, which holds nothing."""

    class Once(hf.KeyedProcessor):
        seen = hf.ValueState(pa.int64(), ttl=ttl)
        if beside is not None:
            other = hf.ValueState(pa.int64(), ttl=beside) if isinstance(beside, hf.TTL) else beside

        def process(self, key: Any, rows: Any, ctx: hf.Context) -> Iterator[Any]:
            seen_before.append(self.seen.value())
            self.seen.update(rows.num_rows)
            yield from ()

    return Once()


def in_slot(record: OperatorRecord, slot: int, first: int = 0) -> str:
    """A user of that slot. ``first``: users of lower numbers are left out."""
    codec = _core.KeyCodec(record.key_schema, null_keys=False)
    for number in range(first, 1000):
        user = f"user-{number}"
        groups = codec.key_groups(pa.record_batch({"user": pa.array([user])}), record.max_parallelism)
        if _core.slot_of(pa.array(groups)[0].as_py(), record.max_parallelism, record.slots) == slot:
            return user
    raise AssertionError(f"no user is of slot {slot}")


class Driver:
    """Plays Spark for two slots: the batches of which each had rows, and restarts with another program."""

    def __init__(
        self, folder: Path, ttl: hf.TTL | None, by_events: bool, beside: hf.TTL | hf.DroppedState | None = None
    ) -> None:
        self.folder = folder
        self.by_events = by_events
        self.spark = SparkFiles(folder / "checkpoint", QUERY)
        self.store = open_file_store(str(folder / "state"))
        self.prefix = operator_prefix(QUERY, NAME)
        self.batch_id = 0
        self.handles: list[Handle | None] = [None, None]
        self.slots: list[SlotState] = []
        self.seen_before: list[int | None] = []
        self.start(ttl, beside=beside)
        self.users = [in_slot(self.record, slot) for slot in (ADA, BOB)]

    def start(self, ttl: hf.TTL | None, *, noted: bool = True, beside: hf.TTL | hf.DroppedState | None = None) -> None:
        """Starts the program with this TTL. ``noted``: as a driver does that knows its query's operators."""
        self.program = program(ttl, self.seen_before, beside)
        states, changes = state_records(self.program), state_changes(self.program)
        key = pa.schema([("user", pa.string())])
        declared = OperatorRecord(NAME, 64, 2, (0, 1), key, False, states, changes=changes)
        self.record = register_operator(self.store, declared, prefix=self.prefix)
        self.slots = list(registered_slots(self.record, self.store, self.prefix, self.folder / "local"))
        self.lifetimes = lifetimes_of(ttls_of(self.program), self.record.states)
        if noted:
            note_ttls(self.store, self.prefix, DeclaredTtls(self.batch_id, self.lifetimes))

    def batch(
        self, passed_ms: int, *slots: int, run_id: str | None = None, ahead_ms: int = 0, marked: bool = True
    ) -> int:
        """A batch at that time after noon, in which these slots have a row. ``ahead_ms``: by how much the
        row is later than the batch. ``marked``: where rows have times, whether there is a watermark.
        """
        now_ms = NOON_MS + passed_ms
        watermark_ms = now_ms if self.by_events and marked else None
        for slot in slots:
            at = datetime.fromtimestamp((now_ms + ahead_ms) / 1000, timezone.utc)
            rows = pa.RecordBatch.from_pylist([{"user": self.users[slot], "at": at}], ROWS)
            context = Context(
                query_id=QUERY,
                operator=NAME,
                batch_id=self.batch_id,
                timestamp_ms=now_ms,
                slot=slot,
                slots=2,
                attempt=0,
                watermark_ms=watermark_ms,
            )
            inputs = [Input(time_columns=("at",))] if self.by_events else [Input()]
            parent, state = self.handles[slot], self.slots[slot]
            for _ in run_batch(
                self.program,
                state,
                parent,
                [(0, rows)],
                context,
                record=self.record,
                output_schema=ROWS,
                inputs=inputs,
                version_id=None if run_id is None else attempt_version_id(run_id, 2 * self.batch_id + slot),
            ):
                pass
            self.handles[slot] = state.prepare()
        texts = [handle.to_text() for handle in self.handles if handle is not None]
        began_ms = watermark_ms or 0
        self.spark.commit(self.batch_id, texts, timestamp_ms=now_ms, began_ms=began_ms, watermark_ms=began_ms)
        self.batch_id += 1
        return self.batch_id - 1

    def sees(self, slot: int, passed_ms: int) -> bool:
        """Whether a batch on the slot at that time finds what an earlier one left there."""
        self.batch(passed_ms, slot)
        return self.seen_before[-1] is not None

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


def found(source: Any, **batch: Any) -> list[str]:
    return sorted(source.read(NAME, STATE, **batch).read_all()["user"].to_pylist())
