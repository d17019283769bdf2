"""Every ``spark.holdfast.*`` setting, with default, unit and effect, in one table: the fields of :class:`Settings`.

docs/guide/settings.md is written from this table (``python -m holdfast.settings``), and a test compares them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.errors import InvalidRequest
from holdfast.folders import temporary_folder
from holdfast.units import format_duration, format_size, parse_duration, parse_size

PREFIX = "spark.holdfast."
_MIB = 1 << 20


@dataclass(frozen=True)
class _Unit:
    """How the text of a setting is read, shown and bounded."""

    name: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = str


def _whole_number(least: int, most: int) -> _Unit:
    def parse(value: Any) -> int:
        try:
            number = int(value) if not isinstance(value, (bool, float)) else None
        except (ValueError, TypeError):
            number = None
        if number is None or not least <= number <= most:
            raise InvalidRequest(f"{value!r} is not a whole number from {least} to {most}")
        return number

    return _Unit("count", parse)


def _size(least: int) -> _Unit:
    def parse(value: Any) -> int:
        size = parse_size(value)
        if size < least:
            raise InvalidRequest(f"{value!r} is too small: expected at least {format_size(least)}")
        return size

    return _Unit("size", parse, format_size)


def _fraction(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 < number <= 100.0:
        raise InvalidRequest(f"{value!r} is not a fraction: expected a number above 0, such as 0.5")
    return number


def _one_of(*names: str) -> _Unit:
    def parse(value: Any) -> str:
        if value not in names:
            raise InvalidRequest(f"{value!r} is not one of {', '.join(names)}")
        return str(value)

    return _Unit(" or ".join(f"`{name}`" for name in names), parse)


def _text(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise InvalidRequest(f"{value!r} is not a path")
    return str(os.fspath(value))


def _words(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{value!r} is not a text")
    return value.strip()


def _yes_or_no(value: Any) -> bool:
    found = {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise InvalidRequest(f"{value!r} is neither true nor false")
    return found


def _run_ids(value: Any) -> tuple[str, ...]:
    ids = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else ()
    if not ids or not all(re.fullmatch(r"[0-9A-Za-z-]{16,64}", one) for one in ids):
        raise InvalidRequest(f"{value!r} are not ids of runs: expected what the error named, separated by commas")
    return ids


def _long_duration(value: Any) -> int:
    duration_ms = parse_duration(value)
    if duration_ms < 60_000:
        raise InvalidRequest(f"{value!r} is too short: expected at least 1 min")
    return duration_ms


_DURATION = _Unit("duration", parse_duration, format_duration)
_LONG_DURATION = _Unit("duration", _long_duration, format_duration)
_SIZE = _size(0)
_FRACTION = _Unit("fraction", _fraction)
_PATH = _Unit("path", _text)
_PLACE = _Unit("path or URI", _text)
_TEXT = _Unit("text", _words)
_FLAG = _Unit("`true` or `false`", _yes_or_no, lambda value: str(value).lower())
_RUN_IDS = _Unit("ids of runs", _run_ids, ",".join)


def _setting(key: str, unit: _Unit, effect: str, default: Any = None, otherwise: str = "") -> Any:
    """``otherwise``: what the guide says of the default, where the default depends on the session or the machine."""
    return field(default=default, metadata={"key": key, "unit": unit, "effect": effect, "otherwise": otherwise})


@dataclass(frozen=True)
class Settings:
    """All settings of one operator. Sizes in bytes, durations in milliseconds.

    ``None`` stands for a default that only the session or the machine knows; ``spark.keyed`` fills it in.
    """

    checkpoint_dir: str | None = _setting(
        "checkpoint.dir",
        _PLACE,
        "Where deltas and snapshots are kept: a folder that the driver and all executors reach under one path (a local disk for one machine; NFS or the like for several), or a prefix in a bucket or HDFS: `s3://bucket/folder`, `gs://…`, `az://…`, `abfss://…`, `hdfs://…` ([storage](storage.md)).",
        otherwise="none: must be set",
    )
    local_dir: str | None = _setting(
        "local.dir",
        _PATH,
        "Folder on each executor's disk for local copies of the state. Losing it costs a restore, never state.",
        otherwise="`<tempdir>/holdfast-<uid>`",
    )
    local_unused_ms: int = _setting(
        "local.unused.max",
        _LONG_DURATION,
        "Local copies of slots that nobody used for so long (of queries that ended, and of slots that moved to another executor) are removed, in the background. A query that is idle for longer restores its state.",
        7 * 86_400_000,
    )
    slots: int | None = _setting(
        "slots",
        _whole_number(1, 32768),
        "Slots of an operator: the parts of its state that are processed side by side. Recorded with the operator at its first batch; later changed only by a rescale.",
        otherwise="`spark.sql.shuffle.partitions`",
    )
    max_parallelism: int = _setting(
        "maxParallelism",
        _whole_number(1, 32768),
        "Key groups of an operator: the most slots that it can ever be rescaled to. Recorded at its first batch and fixed for the life of the operator.",
        4096,
    )
    backend: str = _setting(
        "state.backend",
        _one_of("rocksdb", "hashmap"),
        "`rocksdb` keeps what does not fit into memory on the local disk; `hashmap` keeps the whole state of its slots in memory, whatever `memory.cache.max` says. Files in the checkpoint folder are the same: it can be changed at any restart.",
        "rocksdb",
    )
    batch_memory_max_bytes: int = _setting(
        "memory.batch.max",
        _size(_MIB),
        "Changes of the batch at hand that one slot holds in memory before it spills them to the local disk. A fold in the background holds as much again at most.",
        256 * _MIB,
    )
    cache_memory_max_bytes: int = _setting(
        "memory.cache.max",
        _SIZE,
        "State that one Python worker process keeps in memory between batches, all slots together; the least recently used slot is let go first, and those that were in no batch for ten minutes, with their open files. What awaits the next base must stay: a slot folds when that takes about half of it, whatever `fold.*` says.",
        256 * _MIB,
    )
    spool_memory_max_bytes: int = _setting(
        "memory.spool.max",
        _SIZE,
        "Packed input rows that one slot holds in memory before it spools them to a local file.",
        64 * _MIB,
    )
    pack_memory_max_bytes: int = _setting(
        "pack.memory.max",
        _size(64 << 10),
        "Input rows that one map task gathers before it packs them by slot. More makes larger blobs where there are many slots; a task takes about three times this.",
        32 * _MIB,
    )
    blob_max_bytes: int = _setting(
        "pack.blob.max",
        _size(4 << 10),
        "Largest packed row. A single input row that is larger becomes a packed row of its own.",
        _MIB,
    )
    delta_compression: str = _setting(
        "delta.compression",
        _one_of("lz4", "zstd", "none"),
        "Compression of delta files.",
        "lz4",
    )
    fold_deltas_max: int = _setting(
        "fold.deltas.max",
        _whole_number(1, 100_000),
        "Deltas after which they are folded into a new local base, in the background.",
        32,
    )
    fold_bytes_max: int = _setting(
        "fold.bytes.max",
        _SIZE,
        "Bytes of deltas after which they are folded into a new local base, in the background.",
        64 * _MIB,
    )
    snapshot_deltas_max: int = _setting(
        "snapshot.deltas.max",
        _whole_number(1, 100_000),
        "Deltas after which a snapshot is uploaded, in the background. A restore reads at most about this many deltas.",
        64,
    )
    snapshot_bytes_min: int = _setting(
        "snapshot.bytes.min",
        _SIZE,
        "Bytes of deltas below which `snapshot.stateFraction` asks for no snapshot.",
        64 * _MIB,
    )
    snapshot_state_fraction: float = _setting(
        "snapshot.stateFraction",
        _FRACTION,
        "A snapshot is uploaded once the deltas since the last one are this part of its size.",
        0.5,
    )
    snapshot_pause_min_ms: int = _setting(
        "snapshot.pause.min",
        _DURATION,
        "Least time from one snapshot of a slot to the next, as far as its machine knows of the last one. Deltas gather meanwhile, each named by every later one, and a restore reads them all.",
        0,
    )
    retained_batches: int | None = _setting(
        "retainedBatches",
        _whole_number(2, 1_000_000),
        "Batches that can be rolled back to. Fewer than Spark retains in its own checkpoint makes a rollback to the oldest of those fail.",
        otherwise="`spark.sql.streaming.minBatchesToRetain`",
    )
    stray_grace_ms: int = _setting(
        "stray.grace",
        _DURATION,
        "Age after which files that no version names (left by failed attempts) are deleted, once a later batch is committed: a batch that fails again and again leaves a delta in each slot at each try. Longer than any task may run, and more than twice as long as the upload of a snapshot takes.",
        3_600_000,
    )
    abandoned_runs: tuple[str, ...] = _setting(
        "abandonedRuns",
        _RUN_IDS,
        "Runs whose versions are given up for good: an older checkpoint than what they committed is gone on from, and their files are deleted in time. For a rollback; the error that refuses the older checkpoint says which runs.",
        (),
        otherwise="none",
    )
    transfer_threads: int = _setting(
        "transfer.threads",
        _whole_number(1, 64),
        "Files that one slot uploads or downloads at once.",
        4,
    )
    storage_endpoint: str | None = _setting(
        "storage.endpoint",
        _TEXT,
        "URL of an object store that is not its cloud's own, such as a server in your network; of HDFS, the HTTP addresses of its NameNodes: `http://nn1:9870;http://nn2:9870`. With `http://` the connection is not encrypted.",
        otherwise="the cloud's, or what the environment says",
    )
    storage_region: str | None = _setting(
        "storage.region",
        _TEXT,
        "Region of an S3 bucket.",
        otherwise="what the environment says",
    )
    storage_virtual_hosted: bool = _setting(
        "storage.virtualHosted",
        _FLAG,
        "Whether an S3 `storage.endpoint` has the bucket in its host's name, and not in the path.",
        False,
    )
    storage_request_timeout_ms: int = _setting(
        "storage.request.timeout",
        _DURATION,
        "How long one request to an object store or HDFS may take; large files go to object stores in parts of 16 MiB, each a request; in HDFS it is how long an answer may pause.",
        30_000,
    )
    storage_retry_max_ms: int = _setting(
        "storage.retry.max",
        _DURATION,
        "How long a request that an object store or HDFS does not answer, or refuses for its load (503), is tried again before the task fails as Unavailable. Nothing is lost then.",
        60_000,
    )
    storage_retry_backoff_ms: int = _setting(
        "storage.retry.backoff",
        _DURATION,
        "Pause before the first such retry; each later one is twice as long, up to 10 s.",
        100,
    )
    commit_retry_max_ms: int = _setting(
        "commit.retry.max",
        _DURATION,
        "How long `hf.write_exactly_once` goes on trying what does not answer (the checkpoint folder, a sink's other side) before the query fails. Nothing is lost then: a restart goes on from there.",
        120_000,
    )
    commit_retry_backoff_ms: int = _setting(
        "commit.retry.backoff",
        _DURATION,
        "Pause before the first such retry; each later one is twice as long, up to 10 s.",
        100,
    )
    commit_orphan_max_ms: int = _setting(
        "commit.orphan.max",
        _DURATION,
        "How long `hf.write_exactly_once` goes on looking for transactions that tasks of a driver that died, or attempts that failed, open late: so long after a start and after the last one that was found. Each is aborted within seconds; later ones stall readers until the transaction timeout.",
        900_000,
    )
    rocksdb_block_cache_bytes: int = _setting(
        "rocksdb.blockCache",
        _SIZE,
        "RocksDB's cache of uncompressed blocks, for each slot that a worker process has open, beside `memory.cache.max`. Used with `rocksdb.compression`, and where `spark.executor.pyspark.memory` limits the workers; otherwise bases are mapped, and the system's page cache serves all processes.",
        8 * _MIB,
    )
    rocksdb_compression: str = _setting(
        "rocksdb.compression",
        _one_of("none", "lz4", "zstd", "snappy"),
        "Compression of the files of bases and snapshots.",
        "none",
    )

    @classmethod
    def from_mapping(cls, conf: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
        """Settings from a Spark configuration, then from code.

        Parameters
        ----------
        conf
            Any mapping; only keys that start with ``spark.holdfast.`` are looked at.
        overrides
            By field name (``slots``), by key (``memory.batch.max``) or by full key; text or numbers.

        Raises
        ------
        InvalidRequest
            An unknown key (the message has the nearest known one) or a value that its unit does not allow.
        """
        if overrides is not None and not (
            isinstance(overrides, Mapping) and all(isinstance(k, str) for k in overrides)
        ):
            raise InvalidRequest(f"settings=: expected a mapping of names to values, found {overrides!r}")
        by_key = {f.metadata["key"]: f for f in fields(cls)}
        by_name = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for source, given in (("the Spark configuration", conf), ("settings=", overrides or {})):
            for full_key, value in given.items():
                if given is conf and not full_key.startswith(PREFIX):
                    continue
                key = full_key.removeprefix(PREFIX)
                found = by_key.get(key) or (by_name.get(key) if given is not conf else None)
                if found is None:
                    raise InvalidRequest(_unknown(full_key, source, list(by_key)))
                try:
                    values[found.name] = found.metadata["unit"].parse(value)
                except InvalidRequest as error:
                    raise InvalidRequest(f"{PREFIX}{found.metadata['key']} in {source}: {error}") from None
        return cls(**values)


def default_local_dir() -> str:
    """The local folder where none is set; it is asked for where the state is, on the executor.

    Raises
    ------
    Unavailable
        No folder for temporary files can be written.
    """
    return os.path.join(temporary_folder(f"TMPDIR, or {PREFIX}local.dir,"), f"holdfast-{os.getuid()}")


def guide() -> str:
    """docs/guide/settings.md."""
    rows = ["| setting | default | unit | effect |", "| --- | --- | --- | --- |"]
    for f in fields(Settings):
        unit: _Unit = f.metadata["unit"]
        default = f.metadata["otherwise"] or f"`{unit.show(f.default)}`"
        rows.append(f"| `{PREFIX}{f.metadata['key']}` | {default} | {unit.name} | {f.metadata['effect']} |")
    return _GUIDE.format(table="\n".join(rows))


def _unknown(key: str, source: str, known: list[str]) -> str:
    near = difflib.get_close_matches(
        key.removeprefix(PREFIX).lower(), [name.lower() for name in known], n=1, cutoff=0.0
    )
    nearest = next(name for name in known if name.lower() == near[0])
    return f"{key!r} in {source} is not a setting of Holdfast. The nearest is {PREFIX + nearest!r}; docs/guide/settings.md lists all"


_GUIDE = """\
# Settings

Written from the table in `holdfast/settings.py` by `python -m holdfast.settings > docs/guide/settings.md`.

Set them as any Spark setting (`--conf`, `spark-defaults.conf`, `SparkSession.builder.config`, `spark.conf.set`), for all operators of
the session, or in code for one operator, which wins:

```python
import holdfast as hf

settings = {{"slots": 8, "memory.batch.max": "64 MiB"}}
hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals", settings=settings)
```

They are read when `hf.keyed(…)` is applied to a DataFrame. An unknown `spark.holdfast.*` key is an error, not a surprise; in code, at the
call of `hf.keyed` itself.
`hf.write_exactly_once(settings=…)` takes the same names, so that one mapping may serve both calls, and goes by those of
`commit.*` and `storage.*` and by `retainedBatches`; `hf.keyed` goes by all but `commit.*`. What a call does not go by it only checks.
Sizes read as `64 MiB`, `512k`, `1 GiB` (all binary); durations as `10 min`, `500 ms`, `7 d`.

{table}
"""


if __name__ == "__main__":
    print(guide(), end="")
