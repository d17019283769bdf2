"""A query in whose first batch, which begins with a savepoint, no slot has rows: what each takes over, to be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.checkpoint import CheckpointSettings, OperatorRecord, SlotState, operator_prefix, register_operator
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.checkpoint.evolution import StateChanges
from holdfast.inspect.earlier import earlier_savepoint
from holdfast.storage import FileStore, StorageOptions, open_file_store

QUERY = "99999999-0000-4000-8000-000000000000"


def begun(
    saved: Path, operator: str, slots: int, changes: StateChanges | None = None, claim: bool = False
) -> OperatorRecord:
    """The record of an operator that begins with a savepoint."""
    recorded, origin = earlier_savepoint(str(saved), StorageOptions(), claim).operator(operator, "here", None)
    declared = replace(recorded, slots=slots, labels=tuple(range(slots)), inputs=())
    made = continued(recorded, declared, origin, changes or NOTHING_SAID)
    assert OperatorRecord.from_json(made.to_json()) == made
    return made


def slots_of(record: OperatorRecord, folder: Path, query: str = QUERY) -> Iterator[SlotState]:
    """Those of an operator that is registered now."""
    prefix, store = operator_prefix(query, record.name), open_file_store(str(folder / "state"))
    register_operator(store, record, prefix=prefix)
    yield from registered_slots(record, store, prefix, folder / "local")


def registered_slots(record: OperatorRecord, store: FileStore, prefix: str, local_dir: Path) -> Iterator[SlotState]:
    """Those of an operator as it was registered."""
    for slot in range(record.slots):
        yield SlotState(
            record=record,
            slot=slot,
            file_store=store,
            prefix=prefix,
            local_dir=str(local_dir),
            settings=CheckpointSettings(),
        )


def first_versions(record: OperatorRecord, folder: Path) -> hf.Checkpoint:
    """The query's checkpoint after that batch."""
    texts = []
    for state in slots_of(record, folder):
        first = state.first_version()
        assert first is not None and first == state.first_version()
        texts.append(first.to_text())
    SparkFiles(folder / "next", QUERY).commit(0, texts, timestamp_ms=0)  # no time has passed
    return hf.Checkpoint(folder / "next", state=folder / "state")
