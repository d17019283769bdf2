"""What a slot's checkpoints are tuned by: the part of ``holdfast.settings.Settings`` that this room uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast._core import BaseOptions

#: ``base_runs_max`` of versions that are folded to be read once: to merge their tables costs more than it spares.
READ_ONCE_RUNS_MAX = 64
_MIB = 1 << 20
#: Deltas may pile up to this many times the limit of a fold before a batch waits for one.
HARD_LIMIT_FACTOR = 4


@dataclass(frozen=True)
class CheckpointSettings:
    """Sizes in bytes, durations in milliseconds. docs/guide/settings.md says what each does, but of ``base_runs_max``,
    which users do not set: sorted runs that a base may have before they are merged.
    """

    backend: str = "rocksdb"
    batch_memory_max_bytes: int = 256 * _MIB
    cache_memory_max_bytes: int = 256 * _MIB
    delta_compression: str = "lz4"
    fold_deltas_max: int = 32
    fold_bytes_max: int = 64 * _MIB
    snapshot_deltas_max: int = 64
    snapshot_bytes_min: int = 64 * _MIB
    snapshot_state_fraction: float = 0.5
    snapshot_pause_min_ms: int = 0
    retained_batches: int = 100
    stray_grace_ms: int = 3_600_000
    local_unused_ms: int = 7 * 86_400_000
    abandoned_runs: tuple[str, ...] = ()
    transfer_threads: int = 4
    rocksdb_block_cache_bytes: int = 8 * _MIB
    rocksdb_compression: str = "none"
    base_runs_max: int = 8

    @classmethod
    def of(cls, settings: Any) -> CheckpointSettings:
        """Takes the fields that users set from any object; None stands for the default."""
        given = {f.name: getattr(settings, f.name) for f in fields(cls) if f.name != "base_runs_max"}
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def complete(self) -> bool:
        """Whether the overlay holds the whole state (backend hashmap)."""
        return self.backend == "hashmap"

    def base_options(self) -> BaseOptions:
        return BaseOptions(
            block_cache_bytes=self.rocksdb_block_cache_bytes,
            compression=self.rocksdb_compression,
            max_runs=self.base_runs_max,
        )
