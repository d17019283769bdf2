"""Spark's logs of a query's batches: what was planned (offsets/) and what is committed (commits/).

A batch is committed if Spark's commit log has it. A file of a log has a line with its version, then lines of JSON:
offsets/N the batch's time, watermark and settings, then the end of each source, or ``-``; commits/N the watermark that
the next batch begins with. In version 2 of offsets/N (Spark 4.2 and later, where sources have names) a source's line
begins with its name and a colon, and lines are in no order.

A stateful query's number of partitions is fixed, unless Spark repartitions its state (4.2 and later): that is a batch
of its own, which reads nothing, and whose offsets/N is that of the batch that it began with, but for the number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Corrupt, Incompatible
from holdfast.storage import FileStore

_VERSIONS = {"offsets": ("v1", "v2"), "commits": ("v1", "v2", "v3")}
_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class CommittedBatch:
    """A batch that Spark has committed.

    Attributes
    ----------
    timestamp_ms
        The batch's own time, milliseconds since 1970.
    watermark_ms
        The event-time watermark that the batch after it begins with; None: there is none yet.
    sources
        The end of the batch in each source, as Spark wrote it; None: the source had nothing yet. In the order in which
        the query names them; where they have names, of those.
    conf
        The settings that Spark keeps with the batch.
    names_state
        Whether the commit says what the files of its state are called (``stateStore.checkpointFormatVersion`` 2).
    began_ms
        The event-time watermark that the batch itself began with; None: there was none yet.
    """

    batch_id: int
    timestamp_ms: int
    watermark_ms: int | None
    sources: tuple[str | None, ...]
    conf: Mapping[str, Any]
    names_state: bool = False
    began_ms: int | None = None

    @property
    def partitions(self) -> int:
        """Of each stateful operator, after the batch."""
        return int(self.conf.get(_PARTITIONS, 200))


def committed_batches(store: FileStore) -> list[int]:
    """Batches of which the checkpoint has both logs, ascending."""
    commits, offsets = batch_numbers(store, "commits/"), batch_numbers(store, "offsets/")
    return sorted(commits & offsets)


@dataclass(frozen=True)
class LostBatch:
    """A batch that was committed, and of which a log has nothing. ``name``: what is missing; ``told_by``: what is
    there, and says that the batch was committed.
    """

    batch_id: int
    name: str
    told_by: str


def newest_lost(store: FileStore) -> LostBatch | None:
    """The newest batch that was committed, where a log lacks it; None: both have it, or none was.

    Spark writes offsets/N, commits/N, offsets/N + 1, and never cleans away the newest of a log. Of a query that ran
    while it was copied, offsets/ may be batches ahead: that is no loss.
    """
    commits, offsets = batch_numbers(store, "commits/"), batch_numbers(store, "offsets/")
    newest, planned = max(commits, default=-1), max(offsets, default=-1)
    if newest >= 0 and newest not in offsets:
        lost = LostBatch(newest, f"offsets/{newest}", f"commits/{newest}")
    elif newest < 0 < planned:
        lost = LostBatch(planned - 1, f"commits/{planned - 1}", f"offsets/{planned}")
    else:
        return None
    # A query that runs has gone on between the two listings.
    return lost if max(batch_numbers(store, "commits/"), default=-1) == newest else None


def committed_batch(store: FileStore, batch_id: int) -> CommittedBatch:
    """One of :func:`committed_batches`.

    Raises
    ------
    Corrupt
        A file is missing, or not what Spark writes.
    Incompatible
        Of a later version of Spark's log.
    """
    (_, commit), (version, offsets) = (_lines(store, folder, batch_id) for folder in ("commits", "offsets"))
    try:
        planned = json.loads(offsets[0])
        sources = _sources(version, offsets)
        next_ms = int(json.loads(commit[0]).get("nextBatchWatermarkMs", 0)) if commit and commit[0] else 0
        began_ms = int(planned.get("batchWatermarkMs", 0))
        conf = planned.get("conf") or {}
        return CommittedBatch(
            batch_id,
            int(planned["batchTimestampMs"]),
            next_ms if next_ms > 0 else None,
            sources,
            {str(key): value for key, value in conf.items()},
            any("stateUniqueIds" in line for line in commit),
            began_ms if began_ms > 0 else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Corrupt(
            f"Spark's logs of batch {batch_id} in {store.uri} are not what Spark writes: {error!r}"
        ) from error


@dataclass(frozen=True)
class PlannedBatch:
    """A batch that Spark has begun, with the time and the number of partitions that it gave it."""

    timestamp_ms: int
    partitions: int


def planned_batch(store: FileStore, batch_id: int) -> PlannedBatch | None:
    """None where the log has no such batch, or does not say it as Spark does."""
    try:
        planned = json.loads((store.get(f"offsets/{batch_id}") or b"").split(b"\n")[1])
        return PlannedBatch(int(planned["batchTimestampMs"]), int(planned["conf"][_PARTITIONS]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def planned_sources(store: FileStore, batch_id: int) -> tuple[str | None, ...]:
    """The end of a batch in each source, as in :class:`CommittedBatch`, whether it is committed or not. Empty where the
    log has no such batch, or does not say it as Spark does.
    """
    try:
        version, lines = _lines(store, "offsets", batch_id)
        return _sources(version, lines)
    except (Corrupt, Incompatible, ValueError):
        return ()


def is_repartition(store: FileStore, batch_id: int) -> bool:
    """Whether in a batch Spark repartitioned its state."""
    return repartitions(planned_batch(store, batch_id - 1), planned_batch(store, batch_id))


def repartitions(before: PlannedBatch | None, this: PlannedBatch | None) -> bool:
    """Whether that is what a batch did, by itself and the one before it."""
    return this is not None and before is not None and this.partitions != before.partitions


def _sources(version: str, lines: list[str]) -> tuple[str | None, ...]:
    """Of the lines of offsets/N."""
    sources = lines[1:] if version == "v1" else _in_order_of_names(lines[1:])
    return tuple(None if line == "-" else line for line in sources)


def _in_order_of_names(sources: list[str]) -> list[str]:
    """Of lines as ``name:offset``. Sources that the program does not name are called by their numbers."""
    named = [line.split(":", 1) for line in sources]
    if all(name.isdecimal() for name, _ in named):
        named.sort(key=lambda one: int(one[0]))
    else:
        named.sort()
    return [offset for _, offset in named]


def _lines(store: FileStore, folder: str, batch_id: int) -> tuple[str, list[str]]:
    """The version of a log's file, and its lines."""
    name = f"{folder}/{batch_id}"
    data = store.get(name)
    if data is None:
        raise Corrupt(f"{name} is missing in {store.uri}; if a query runs there, it no longer retains the batch")
    try:
        # Not splitlines: a source may have other ends of lines, as U+2028, in a text of its JSON.
        version, *lines = data.decode().removesuffix("\n").split("\n")
    except ValueError as error:
        raise Corrupt(f"{name} in {store.uri} is no log of Spark's: {error!r}") from error
    if version not in _VERSIONS[folder]:
        known = ", ".join(_VERSIONS[folder])
        raise Incompatible(f"{name} in {store.uri} is of version {version!r}; expected one of {known}")
    return version, lines


def batch_numbers(store: FileStore, folder: str) -> set[int]:
    """Of the batches that one of the logs has."""
    names = (name.rpartition("/")[2] for name in store.names(folder))
    return {int(name) for name in names if name.isdecimal() and name.isascii()}
