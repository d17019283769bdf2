"""How one handle follows from another, by pure functions:
what it names, what it no longer needs, when what it left may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef, Superseded, broken_rule
from holdfast.errors import InternalError


def next_handle(
    parent: Handle | None, first: Handle, delta: DeltaRef, snapshot: SnapshotRef | None, retained_batches: int
) -> Handle:
    """The handle after ``parent``.

    Parameters
    ----------
    first
        Operator, slot, version_id, parent_id, sequence, batch_id and expiry of the new handle; the rest is worked out
        here.
    delta
        The delta that leads from ``parent`` to the new version.
    snapshot
        A snapshot of an ancestor that becomes named, if one is ready: see :func:`may_name`.
    retained_batches
        Batches that can be rolled back to.
    """
    snapshots = parent.snapshots if parent else ()
    superseded = parent.superseded if parent else ()
    origin = parent.origin if parent else 0
    if snapshot is not None and parent is not None:
        if snapshots and snapshots[0].sequence > parent.start:
            # The new handle starts from the newest so far; whatever was older is needed by earlier handles only.
            name = snapshots[1].name if len(snapshots) > 1 else None
            superseded = (*superseded, Superseded(parent.start, first.batch_id, name))
        snapshots = (snapshot, *snapshots[:1])
    start = snapshots[1].sequence if len(snapshots) > 1 else origin
    made = replace(
        first,
        origin=origin,
        snapshots=snapshots,
        deltas=(*(d for d in (parent.deltas if parent else ()) if d.sequence > start), delta),
        superseded=tuple(old for old in superseded if not is_expired(old.batch_id, first.batch_id, retained_batches)),
    )
    broken = broken_rule(made)
    if broken:
        raise InternalError(f"the handle made for {made.where} contradicts itself: {broken}")
    return made


def listing(handle: Handle, said: Sequence[DeltaRef] | None) -> Handle:
    """``handle``, whose text lists all deltas where the file of its newest does not say the others.

    Parameters
    ----------
    said
        The deltas that the file says were before it; None: an earlier Holdfast wrote it, in which files said nothing.
    """
    earlier = handle.deltas[:-1]
    is_said = not earlier or (said is not None and tuple(said[-len(earlier) :]) == earlier)
    return handle if is_said else replace(handle, lists_deltas=True)


def is_expired(superseded_batch: int, batch_id: int, retained_batches: int) -> bool:
    """Whether no handle from before ``superseded_batch`` can be rolled back to once batch ``batch_id`` runs.

    While batch N runs, N - 1 is the newest committed, and the ``retained_batches`` before it are retained.
    A slot without rows in a batch keeps its handle: the last handle before batch b is in force up to b - 1.
    """
    return superseded_batch - 1 < batch_id - 1 - retained_batches


def is_young(created_ms: int, now_ms: int, grace_ms: int) -> bool:
    """Whether a snapshot whose upload began at ``created_ms`` may still be named by its mark.

    Its first file has that age in storage. Past half the grace time another host's retention may soon take it for a
    stray; the other half is for the attempt that names it. A mark of a time to come was made before the clock was set
    right, and may be of any age.
    """
    return now_ms - grace_ms // 2 <= created_ms <= now_ms


def may_name(handle: Handle, snapshot: SnapshotRef, diff_parent: str | None) -> bool:
    """Whether the next handle after ``handle`` may name ``snapshot``.

    It must be of this lineage, newer than the newest that is named, and the snapshot whose files it shares
    must not have been given up meanwhile, since those files may be gone.
    """
    newest = handle.snapshots[0].sequence if handle.snapshots else 0
    kept = {s.name for s in handle.snapshots} | {old.name for old in handle.superseded}
    return (
        snapshot.sequence > newest
        and handle.names(snapshot.sequence, snapshot.version_id)
        and (diff_parent is None or diff_parent in kept)
    )
