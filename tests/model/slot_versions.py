"""A bare store through batches that commit and abort, opened again from its deltas or over a real base."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from holdfast import _core

KEY_GROUPS = 4


class Slot:
    """A store, the deltas that were committed, and how it is opened again."""

    def __init__(self, key_schema: pa.Schema) -> None:
        self.key_schema = key_schema
        self.deltas: list[pa.RecordBatch] = []
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-slot-versions-"))
        self.store = self.opened("deltas")

    def opened(self, over: str) -> _core.Store:
        """Another store at the last committed version."""
        store = _core.Store(self.key_schema, max_parallelism=KEY_GROUPS, first_key_group=0, end_key_group=KEY_GROUPS)
        folded = len(self.deltas) if over == "base" else 0
        if folded:
            directory = self.folder / f"base-{len(list(self.folder.iterdir()))}"
            writer = _core.BaseWriter(None, str(directory), _core.BaseOptions())
            for delta in self.deltas:
                writer.add(delta)
            writer.finish()
            store.set_base(_core.Base(str(directory), _core.BaseOptions()), folded)
        for sequence, delta in enumerate(self.deltas[folded:], folded + 1):
            store.apply_delta(delta, sequence)
        return store

    def end(self, reopens: str, *, committed: bool) -> None:
        """Ends the batch; the store "stays", or is another one from "deltas" or over a "base"."""
        if committed:
            self.deltas.append(pa.record_batch(self.store.take_delta()))
            self.store.commit()
        if reopens != "stays" or not committed:
            self.store = self.opened(reopens)
