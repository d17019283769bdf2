"""The slots of an operator with several inputs and outputs, without Spark: packed, shuffled in any order, spooled, run,
packed again and unpacked by the product's own code. Who uses it plays Spark: it commits a batch, or gives it up.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.checkpoint_driver import through_text

from holdfast.checkpoint import Background, CheckpointSettings, Handle, OperatorRecord, SlotState, operator_prefix
from holdfast.spark.keyed import state_records
from holdfast.spark.output import OutputPackers, Unpacking, unpack_function
from holdfast.spark.pack import Pack, PackPlan
from holdfast.spark.plan import InputPlan
from holdfast.spark.routes import Route
from holdfast.spark.slot_batch import run_batch
from holdfast.spark.slots import _call_batches
from holdfast.spark.spool import BlobSpool
from holdfast.state import MAIN, Context, Input, Processor
from holdfast.storage import open_file_store

LABELS = (71, 72)
MAX_PARALLELISM = 16
_QUERY, _NAME = "00000000-0000-4000-8000-000000000000", "connected"

#: The rows of each output.
Rows = dict[str, list[dict[str, object]]]


@dataclass(frozen=True)
class Limits:
    """All in bytes; what they are must not be seen in the output."""

    pack: int
    blob: int
    spool: int


@dataclass(frozen=True)
class Batch:
    """``parts``: by input, the rows of each source partition, in as many record batches as it gives. ``order``: of the
    inputs, as the program gives them. ``shuffle``: which of the orders in which a shuffle may bring blobs.
    """

    parts: Mapping[str, Sequence[Sequence[pa.RecordBatch]]]
    order: Sequence[str]
    watermark_ms: int
    shuffle: int


class ConnectedSlots:
    """One operator's, in one process at a time."""

    def __init__(
        self,
        folder: Path,
        processor: Processor,
        inputs: Mapping[str, tuple[Input, pa.Schema]],
        outputs: Mapping[str, pa.Schema],
        limits: Limits,
        backend: str,
        labels: tuple[int, ...] = LABELS,
    ) -> None:
        self._folder, self._processor, self._limits, self._labels = folder, processor, limits, labels
        self._inputs, self._outputs = inputs, outputs
        self._store = open_file_store(str(folder / "state"))
        self._record = OperatorRecord(
            name=_NAME,
            max_parallelism=MAX_PARALLELISM,
            slots=len(labels),
            labels=labels,
            key_schema=pa.schema([("user", pa.string())]),
            null_keys=True,
            states=state_records(processor),
        )
        small: dict[str, Any] = {"fold_deltas_max": 2, "snapshot_deltas_max": 3, "retained_batches": 4}
        self._settings = replace(CheckpointSettings(), backend=backend, **small)
        self.handles: list[Handle | None] = [None] * len(labels)
        self.batch_id = 0
        self._background = Background()
        self._states = self._opened()

    def run(self, batch: Batch) -> tuple[Rows, list[Handle | None]]:
        """One attempt: its output, and the versions that it leads to."""
        plans = [self._plan(name) for name in batch.order]
        blobs = self._packed(plans, batch)
        found: Rows = {name: [] for name in self._outputs}
        handles = list(self.handles)
        for slot, label in enumerate(self._labels):
            random.Random(batch.shuffle).shuffle(blobs[label])
            if blobs[label]:
                handles[slot] = self._run_slot(slot, plans, blobs[label], batch.watermark_ms, found)
        return found, handles

    def commit(self, handles: list[Handle | None]) -> None:
        self.handles = [None if one is None else through_text(one) for one in handles]
        self.batch_id += 1

    def kill(self, *, lose_local_copies: bool) -> None:
        self._background.stop()
        self._background = Background()
        if lose_local_copies:
            shutil.rmtree(self._folder / "local", ignore_errors=True)
        self._states = self._opened()

    def close(self) -> None:
        self._background.stop()
        for state in self._states:
            state.release_memory()

    def _opened(self) -> list[SlotState]:
        return [
            SlotState(
                record=self._record,
                slot=slot,
                file_store=self._store,
                prefix=operator_prefix(_QUERY, _NAME),
                local_dir=os.fspath(self._folder / "local"),
                settings=self._settings,
                background=self._background,
            )
            for slot in range(len(self._labels))
        ]

    def _plan(self, name: str) -> InputPlan:
        met, schema = self._inputs[name]
        assert met.key_columns is not None
        return InputPlan(met, schema, met.key_columns, reported_column=None, inherited_delay_ms=None)

    def _packed(self, plans: Sequence[InputPlan], batch: Batch) -> dict[int, list[bytes]]:
        """By label. The map tasks of a union are numbered through all of its inputs, which go by their names."""
        blobs: dict[int, list[bytes]] = {label: [] for label in self._labels}
        task = 0
        for name in sorted(batch.parts):
            number = batch.order.index(name)
            plan = PackPlan(
                operator=_NAME,
                schema=plans[number].schema,
                key_schema=self._record.key_schema,
                null_keys=True,
                max_parallelism=MAX_PARALLELISM,
                labels=lambda: self._labels,
                event_time_column=None,
                memory_max_bytes=self._limits.pack,
                blob_max_bytes=self._limits.blob,
                arrow_rows_max=10_000,
                key_columns=plans[number].key_columns,
                input_number=number,
                input_name=name,
                broadcast=plans[number].met.broadcast,
            )
            for part in batch.parts[name]:
                for packed in Pack(plan, self._labels, task).run(iter(part)):
                    for label, data in zip(packed.column(0).to_pylist(), packed.column(2).to_pylist()):
                        if data is not None:
                            blobs[label].append(data)
                task += 1
        return blobs

    def _run_slot(
        self, slot: int, plans: Sequence[InputPlan], blobs: Sequence[bytes], watermark_ms: int, found: Rows
    ) -> Handle:
        state = self._states[slot]
        ctx = Context(
            query_id=_QUERY,
            operator=_NAME,
            batch_id=self.batch_id,
            timestamp_ms=1_800_000_000_000,
            slot=slot,
            slots=len(self._labels),
            watermark_ms=watermark_ms,
        )
        sides = {name: schema for name, schema in self._outputs.items() if name != MAIN}
        packers = OutputPackers(slot, list(sides), self._limits.blob, 10_000)
        frames = []
        with BlobSpool(self._limits.spool, os.fspath(self._folder), f"slot {slot}") as spool:
            for data in blobs:
                spool.add(data)
            produced = run_batch(
                self._processor,
                state,
                self.handles[slot],
                _call_batches(spool, plans),
                ctx,
                record=self._record,
                output_schema=self._outputs[MAIN],
                side_outputs=sides,
                inputs=[plan.met for plan in plans],
            )
            try:
                with closing(produced):
                    frames += [frame for tagged in produced for frame in packers.add(tagged)]
                frames += packers.finish()
                handle = state.prepare()
            except BaseException as error:
                state.abort(error)
                raise
        passed = (pa.record_batch({"blob": pa.array(frame["blob"], pa.binary())}) for frame in frames)
        for side_by_side in unpack_function(Unpacking(_NAME, tuple(self._outputs.items())))(passed):
            for name, schema in self._outputs.items():
                found[name] += Route(name, schema, ()).rows(side_by_side).to_pylist()
        return handle
