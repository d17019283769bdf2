"""What the slots of a query do in its first batch that begins with state: a command for tests.faults.command_process.

``begin FOLDER SOURCE SLOTS``: SOURCE is a savepoint's folder, or ``CHECKPOINT+STATE``. The new query's state is in
``FOLDER/next-state``; when all slots have their first version, ``FOLDER/next`` is what Spark would have committed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.first_versions import registered_slots
from tests.spark_files import SparkFiles

from holdfast.checkpoint import operator_prefix, register_operator
from holdfast.checkpoint.continued import continued
from holdfast.checkpoint.generation import begin_together
from holdfast.inspect.earlier import Earlier, EarlierQuery, earlier_savepoint
from holdfast.storage import LocalFileStore, StorageOptions

OPERATOR = "sums"
QUERY = "99999999-0000-4000-8000-000000000009"


def main(given: str, source: str, slots: str) -> None:
    folder, options = Path(given), StorageOptions()
    checkpoint, with_state, state_dir = source.partition("+")
    earlier: Earlier = (
        EarlierQuery(checkpoint, state_dir, None, options, None) if with_state else earlier_savepoint(source, options)
    )
    recorded, origin = earlier.operator(OPERATOR, "here", None)
    declared = replace(recorded, slots=int(slots), labels=tuple(range(int(slots))))
    store, prefix = LocalFileStore(str(folder / "next-state")), operator_prefix(QUERY, OPERATOR)
    record = register_operator(store, continued(recorded, declared, origin), prefix=prefix)
    begin_together(store, QUERY, record)
    texts = []
    for state in registered_slots(record, store, prefix, folder / "local"):
        first = state.first_version()
        assert first is not None
        texts.append(first.to_text())
    SparkFiles(folder / "next", QUERY).commit(0, texts, timestamp_ms=0)  # no time has passed
