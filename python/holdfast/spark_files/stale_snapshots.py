"""Snapshots of Spark's own state that say what another attempt at their batch had left: they go before a query starts.

Spark's state store snapshots in the background what its tasks have left, also where the batch never comes to its end,
or where the task runs again. The version is written anew then; but a snapshot is read before the deltas, so a later
start would find in it versions of slots whose output nobody sees. Spark may do so, since it takes for granted that what
runs again does the same. docs/rfcs/0020

Those above the newest committed version go, whatever they hold. At or below it, those of Holdfast's operators do that
contradict the delta of their own version; where only Spark can read them, all, since they might. In both cases only
such without which every version can be read as well: from an earlier snapshot, or from nothing, by deltas of which none
is missing. So nothing is lost by it, whoever else may read the checkpoint. Files of Spark's default provider, and of
its RocksDB provider with changelogs. What Spark wrote as it repartitioned its state has no changelog, and stays: one
that is there is of a batch that was rolled back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

from holdfast.errors import Corrupt, Incompatible
from holdfast.spark_files.logs import batch_numbers, committed_batch, is_repartition
from holdfast.spark_files.state import HANDLE_FORMAT, SparkState, contradicts, parsed, unreadable
from holdfast.storage import FileStore

_LOGGER = logging.getLogger("holdfast.commit")
_DELTAS = {"snapshot": "delta", "zip": "changelog"}
_FILE = re.compile(r"(state/(\d+)/\d+/(?:.+/)?)(\d+)\.(snapshot|zip|delta|changelog)")
_READERS = 16  #: partitions that are looked at side by side: in a bucket each file is a request
_ATTEMPTS = 3  #: while another driver goes on with the query
#: Spark's maintenance counts from the newest version that a task has left, and leans on a snapshot up to so many above
#: what is retained of those that are committed.
_MARGIN = 3

#: Whether a snapshot, named without its suffix, may be of another attempt than its delta is.
Suspect = Callable[[str], bool]


@dataclass
class _Versions:
    """Those of one partition's store, by the kind of their file."""

    operator: int
    snapshots: set[int] = field(default_factory=set)
    deltas: set[int] = field(default_factory=set)

    def take_uncommitted(self, newest: int) -> list[int]:
        """Snapshots above the newest committed version, all versions of which can be read without them."""
        start = max((version for version in self.snapshots if version <= newest), default=0)
        later = sorted(version for version in self.snapshots if version > newest)
        found = [version for version in later if self._has_deltas(start, version)]
        self.snapshots.difference_update(found)
        return found

    def stale(self, oldest: int, newest: int, is_suspect: Callable[[int], bool]) -> Iterator[int]:
        """From ``newest`` down to ``oldest``, as far as they are suspect: the first that is not is what a start reads.
        Not below: Spark's own maintenance may be about to delete what comes before one there.
        """
        for version in sorted((one for one in self.snapshots if oldest <= one <= newest), reverse=True):
            start = max((one for one in self.snapshots if one < version), default=0)
            if not self._has_deltas(start, version) or not is_suspect(version):
                return
            yield version

    def _has_deltas(self, start: int, version: int) -> bool:
        """Whether all deltas from one version to a later one are there."""
        return all(at in self.deltas for at in range(start + 1, version + 1))


def forget_stale_snapshots(checkpoint: FileStore, retained_batches: int, changelogs: bool = True) -> list[str]:
    """Deletes them from a checkpoint, of a query that is about to start; their names.

    Parameters
    ----------
    retained_batches
        ``spark.sql.streaming.minBatchesToRetain``; with less than 3, those of committed batches stay.
    changelogs
        Whether Spark's RocksDB provider writes them (``rocksdb.changelogCheckpointing.enabled``). Where it does not,
        its snapshots are what tasks leave, and stay: a changelog beside one is older, of before the setting changed.

    Raises
    ------
    Unavailable
        The checkpoint's storage does not answer.
    """
    for _ in range(_ATTEMPTS):
        newest = _newest_version(checkpoint)
        names = {file.name for file in checkpoint.list("state/") if changelogs or not file.name.endswith(".zip")}
        found = _stale(checkpoint, names, newest, newest - retained_batches + _MARGIN)
        if not found:
            return []
        # Whoever commits meanwhile may clean up too: what is needed is another question then.
        if _newest_version(checkpoint) == newest:
            checkpoint.delete([*found, *_checksums(found, names)])
            _LOGGER.info(
                "%s: Spark had snapshotted its state after an attempt at a batch that did not count in the end; these "
                "are deleted, so that no start takes them for what the batch left: %s",
                checkpoint.uri,
                ", ".join(found),
            )
            return found
    _LOGGER.warning(
        "%s: batches are committed while this query starts: another driver runs it. Snapshots of Spark's state that "
        "may be of attempts that did not count stay where they are",
        checkpoint.uri,
    )
    return []


def _newest_version(checkpoint: FileStore) -> int:
    """Of the newest batch that Spark calls committed: the state after batch N is version N + 1."""
    return max(batch_numbers(checkpoint, "commits/"), default=-1) + 1


def _stale(checkpoint: FileStore, names: set[str], newest: int, oldest: int) -> list[str]:
    stores: dict[tuple[str, str], _Versions] = {}
    for match in filter(None, map(_FILE.fullmatch, names)):
        folder, operator, version, suffix = match[1], int(match[2]), int(match[3]), match[4]
        for kind, deltas in _DELTAS.items():
            versions = stores.setdefault((folder, kind), _Versions(operator))
            if suffix == kind:
                versions.snapshots.add(version)
            elif suffix == deltas:
                versions.deltas.add(version)
    found = {key: versions.take_uncommitted(newest) for key, versions in stores.items()}
    suspects = _suspects(checkpoint, names, newest)

    @cache
    def is_of_repartition(version: int) -> bool:
        return is_repartition(checkpoint, version - 1)

    def looked_at(key: tuple[str, str]) -> list[int]:
        (folder, kind), versions = key, stores[key]
        is_suspect = suspects.get((versions.operator, kind))
        if is_suspect is None:
            return []

        def may_go(version: int) -> bool:
            return is_suspect(f"{folder}{version}") and not is_of_repartition(version)

        return list(versions.stale(oldest, newest, may_go))

    with ThreadPoolExecutor(_READERS, "holdfast-snapshots") as readers:
        for key, more in zip(stores, readers.map(looked_at, stores)):
            found[key] += more
    return [f"{folder}{version}.{kind}" for (folder, kind), each in sorted(found.items()) for version in each]


def _suspects(checkpoint: FileStore, names: set[str], newest: int) -> dict[tuple[int, str], Suspect]:
    """By operator and kind of file, of operators that may be Holdfast's."""
    if not newest:
        return {}
    try:
        conf = committed_batch(checkpoint, newest - 1).conf
    except (Corrupt, Incompatible) as error:  # which Spark will say, if it is so
        _LOGGER.warning("snapshots of Spark's state up to batch %d are not looked at: %s", newest - 1, error)
        return {}
    own = [operator.number for operator in SparkState(checkpoint, names).operators()]
    of_files: Suspect = (lambda name: _is_of_another(checkpoint, name)) if unreadable(conf) is None else _might_be
    return {(number, kind): of_files if kind == "snapshot" else _might_be for number in own for kind in _DELTAS}


def _might_be(_: str) -> bool:
    return True


def _is_of_another(checkpoint: FileStore, version: str) -> bool:
    """Whether a snapshot contradicts its delta. Where there is nothing of Holdfast's in the delta, it is left alone."""
    delta, snapshot = (f"{version}.{suffix}" for suffix in ("delta", "snapshot"))
    data = checkpoint.get(delta)
    if data is None:
        return False
    try:
        changes = parsed(data, delta)
    except (Corrupt, Incompatible):
        return False  # Spark says so as it reads it
    if not any(value is not None and HANDLE_FORMAT in value for _, value in changes):
        return False
    data = checkpoint.get(snapshot)
    try:
        return data is not None and contradicts(parsed(data, snapshot), changes)
    except (Corrupt, Incompatible):
        return True  # the deltas say the same, and can be read


def _checksums(files: list[str], names: set[str]) -> list[str]:
    """Of Hadoop's local file system, and of Spark 4.1 and later."""
    made = []
    for file in files:
        folder, _, name = file.rpartition("/")
        made += [f"{folder}/.{name}.crc", f"{file}.crc"]
    return [name for name in made if name in names]
