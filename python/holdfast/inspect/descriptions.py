"""What is told of a checkpoint: plain data, for people and for JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateDescription:
    """A state of an operator. ``types`` by role, ``columns`` of its table: types as text."""

    name: str
    kind: str
    types: dict[str, str]
    function: str | None
    columns: dict[str, str]


@dataclass(frozen=True)
class OperatorDescription:
    """An operator as its checkpoint recorded it. ``key_columns``: types by name, as text."""

    name: str
    slots: int
    max_parallelism: int
    key_columns: dict[str, str]
    null_keys: bool
    states: tuple[StateDescription, ...]


@dataclass(frozen=True)
class Version:
    """A retained batch: what the state was at its end.

    Attributes
    ----------
    timestamp_ms, watermark_ms
        The batch's own time, and the watermark that the batch after it begins with (None: none yet), in milliseconds
        since 1970.
    operators
        By operator that had state by then: slots that have a version, and bytes of the files that lead to it.
    problem
        Why the batch cannot be read; None: it can, as far as Spark's own files say. :meth:`Checkpoint.verify` reads
        the rest.
    """

    batch_id: int
    timestamp_ms: int | None
    watermark_ms: int | None
    operators: dict[str, dict[str, int]]
    problem: str | None = None


@dataclass(frozen=True)
class Damage:
    """A file that is missing or not what was written. ``name``: in the folder of the state, or of Spark's files."""

    name: str
    problem: str


@dataclass(frozen=True)
class Verification:
    """What :meth:`Checkpoint.verify` found.

    Attributes
    ----------
    files, bytes
        That were read.
    damaged
        By name.
    readable
        Batches of which every slot can be restored, ascending.
    lost
        Of those that are damaged: what stands in the way, by batch.
    unretained
        Batches that Spark still has and Holdfast retains no longer (``spark.holdfast.retainedBatches`` is less than
        ``spark.sql.streaming.minBatchesToRetain``): what they needed was rightly deleted, and is no damage.
    """

    files: int
    bytes: int
    damaged: tuple[Damage, ...]
    readable: tuple[int, ...]
    lost: dict[int, tuple[str, ...]]
    unretained: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged and not self.lost


@dataclass(frozen=True)
class Unneeded:
    """A file that nothing needs. ``name``: in the folder of the state."""

    name: str
    size_bytes: int
    reason: str


@dataclass(frozen=True)
class Disposal:
    """What :meth:`Savepoint.dispose` found.

    Attributes
    ----------
    files
        The savepoint's, which may go.
    others
        Names of files in its folder that are not, and stay.
    deleted
        Whether the files are deleted.
    """

    files: tuple[Unneeded, ...]
    others: tuple[str, ...]
    deleted: bool = False

    @property
    def bytes(self) -> int:
        """Of all files that may go."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Garbage:
    """What :meth:`Checkpoint.gc` found.

    Attributes
    ----------
    files
        That may go, by slot and name.
    kept
        By the folder of a slot of which nothing may go: why.
    deleted
        Whether the files are deleted.
    half_written
        Files of killed writers, which nobody ever saw, that were removed besides.
    """

    files: tuple[Unneeded, ...]
    kept: dict[str, str]
    deleted: bool = False
    half_written: int = 0

    @property
    def bytes(self) -> int:
        """Of all files that may go."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Repair:
    """A damaged file.

    Attributes
    ----------
    name
        In the folder of the state.
    problem
        What is wrong with it.
    source
        Where its bytes are, as they were written; None: nowhere that was looked.
    mended
        Whether it was put right.
    aside
        Where the damaged file is now; None: there was none, or it is where it was.
    """

    name: str
    problem: str
    source: str | None
    mended: bool = False
    aside: str | None = None


@dataclass(frozen=True)
class Repairs:
    """What :meth:`Checkpoint.repair` found and did, and what the checkpoint is worth after it."""

    files: tuple[Repair, ...]
    verification: Verification
