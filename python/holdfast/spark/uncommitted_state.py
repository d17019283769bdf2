"""Snapshots that Spark made of its own state after a batch which is not committed: they go before a query starts.

Spark's state store snapshots in the background what its tasks have left, also where the batch never comes to its end.
The batch runs again then and writes the same versions anew; but a snapshot is read before the deltas, so a later start
would find in it what the attempt before had left: versions of slots whose output nobody sees. Spark may do so, since it
takes for granted that a batch which runs again does the same. docs/rfcs/0020

Only one without which its version can be read as well goes: from an earlier snapshot, or from nothing, by deltas of
which none is missing. So nothing is lost by it, whoever else may read the checkpoint. Files of Spark's default
provider, and of its RocksDB provider with changelogs.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass, field

from holdfast.storage import FileStore

_LOGGER = logging.getLogger("holdfast.commit")
_DELTAS = {"snapshot": "delta", "zip": "changelog"}
_FILE = re.compile(r"(state/\d+/\d+/(?:.+/)?)(\d+)\.(snapshot|zip|delta|changelog)")


@dataclass
class _Versions:
    """Those of one partition's store, by the kind of their file."""

    snapshots: set[int] = field(default_factory=set)
    deltas: set[int] = field(default_factory=set)

    def superfluous(self, newest: int) -> list[int]:
        """Snapshots above the newest committed version, all versions of which can be read without them."""
        start = max((version for version in self.snapshots if version <= newest), default=0)
        later = sorted(version for version in self.snapshots if version > newest)
        return [version for version in later if self.deltas.issuperset(range(start + 1, version + 1))]


def forget_uncommitted_snapshots(checkpoint: FileStore) -> list[str]:
    """Deletes them from a checkpoint, of a query that is about to start; their names.

    Raises
    ------
    Unavailable
        The checkpoint's storage does not answer.
    """
    batches = [int(name) for path in checkpoint.names("commits/") if (name := path.rpartition("/")[2]).isdigit()]
    newest = max(batches, default=-1) + 1  # the state after batch N is version N + 1
    names = {file.name for file in checkpoint.list("state/")}
    stores: defaultdict[tuple[str, str], _Versions] = defaultdict(_Versions)
    for match in filter(None, map(_FILE.fullmatch, names)):
        folder, version, suffix = match[1], int(match[2]), match[3]
        if suffix in _DELTAS:
            stores[folder, suffix].snapshots.add(version)
        for kind, deltas in _DELTAS.items():
            if suffix == deltas:
                stores[folder, kind].deltas.add(version)
    found = [
        f"{folder}{version}.{kind}"
        for (folder, kind), versions in sorted(stores.items())
        for version in versions.superfluous(newest)
    ]
    if found:
        checkpoint.delete([*found, *_checksums(found, names)])
        _LOGGER.info(
            "%s: Spark had snapshotted its state after a batch that was never committed; these are deleted, so that "
            "no start takes them for what the batch leaves when it runs again: %s",
            checkpoint.uri,
            ", ".join(found),
        )
    return found


def _checksums(files: list[str], names: set[str]) -> list[str]:
    """Of Hadoop's local file system, and of Spark 4.1 and later."""
    made = []
    for file in files:
        folder, _, name = file.rpartition("/")
        made += [f"{folder}/.{name}.crc", f"{file}.crc"]
    return [name for name in made if name in names]
