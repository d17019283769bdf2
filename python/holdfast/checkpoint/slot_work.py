"""What keeping a slot's state took in a batch: counted where it happens, taken by whoever tells it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._core import Store
from holdfast.checkpoint.restoring import Live, Recovery


@dataclass
class SlotWork:
    """Of one slot, since it was last taken. Owned by the slot's thread.

    Attributes
    ----------
    opened
        As :class:`Recovery` calls the way. Of several times the first that was more than finding what was there.
    open_ms, prepare_ms
        Milliseconds.
    restored_bytes
        Read of snapshots and deltas, in order to open the slot.
    lookups
        Rows of all operations of its states.
    base_reads
        Keys that were asked for on disk.
    entries_written, entries_removed
        Rows of the delta with a value, and without.
    entries_expired
        Met by operations after their time to live.
    delta_bytes
        Of the version's file, as stored.
    spills
        Times that the batch outgrew its memory.
    memory_entries, memory_bytes, disk_bytes
        What the slot takes once the batch is prepared: in this process, and of this machine's disk.
    """

    opened: str = ""
    open_ms: float = 0.0
    prepare_ms: float = 0.0
    restored_bytes: int = 0
    lookups: int = 0
    base_reads: int = 0
    entries_written: int = 0
    entries_removed: int = 0
    entries_expired: int = 0
    delta_bytes: int = 0
    spills: int = 0
    memory_entries: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0

    def note_opened(self, recovery: Recovery) -> None:
        if self.opened in ("", "equal"):
            self.opened = recovery.way
        self.open_ms += recovery.ms
        self.restored_bytes += recovery.bytes

    def note_batch(self, before: Mapping[str, int], store: Store) -> None:
        """``before``: the store's counters as the batch began."""
        found = {name: value - before.get(name, 0) for name, value in store.counters.items()}
        self.lookups += found["lookups"]
        self.base_reads += found["base_reads"]
        self.entries_written += found["written"]
        self.entries_removed += found["removed"]
        self.entries_expired += found["expired"]

    def note_size(self, live: Live) -> None:
        self.memory_entries = live.store.counters["entries"]
        self.memory_bytes = live.store.memory_bytes
        self.disk_bytes = sum(file.size_bytes for file in live.base.record.files) if live.base is not None else 0
