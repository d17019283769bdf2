"""What drivers of a query have left at a sink's other side, and whether this checkpoint knows of it.

A checkpoint that was restored from a backup, or copied, does not know what was written since. It would write it again:
so whoever starts looks first, and stops where the world has moved on without its checkpoint. Nothing is changed before
that look, so a copy that was started by mistake harms nobody. See docs/rfcs/0006.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.errors import Incompatible


@dataclass(frozen=True)
class Trace:
    """Something visible that a driver has left.

    Attributes
    ----------
    epoch
        Its driver's; None: not known.
    run_id
        Its driver's run; None: not known.
    batch_id
        A batch of which output is visible; None: the driver took the sink over.
    said
        Who and where, for people.
    """

    epoch: int | None = None
    run_id: str | None = None
    batch_id: int | None = None
    said: str = ""


@dataclass(frozen=True)
class Known:
    """What the checkpoint says.

    Attributes
    ----------
    epochs
        The drivers that it remembers: a run of numbers, of which the oldest may be forgotten.
    run_of
        The run that had an epoch.
    newest_batch
        Of the newest commit record; None: there is none.
    """

    checkpoint: str
    epochs: Sequence[int]
    run_of: Callable[[int], str | None]
    newest_batch: int | None


def check_traces(sink: str, traces: Iterable[Trace], known: Known) -> None:
    """Incompatible when a sink has what the checkpoint does not know of.

    What was made visible had its record, and who took a sink over had its epoch, in this checkpoint, before: ``known``
    must have been read after the traces.
    """
    strange = [trace for trace in traces if is_strange(trace, known)]
    if not strange:
        return
    batches = [trace.batch_id for trace in strange if trace.batch_id is not None]
    there = f"batch {max(batches)}" if batches else "no batch that is not here, but by another driver"
    here = f"batch {known.newest_batch}" if known.newest_batch is not None else "no batch"
    said = next((trace.said for trace in reversed(strange) if trace.said), "")
    raise Incompatible(
        f"Sink {sink!r} was written on without the checkpoint {known.checkpoint}: the newest record here is of {here},"
        f" at the sink's other side there is {there}{f' ({said})' if said else ''}. This checkpoint is a copy, or was"
        f" restored from a backup. Nothing was written and nobody was fenced. Choose: start the query from the newest"
        f" checkpoint. Or, if a query of its own is meant to go on from here, run `holdfast fork"
        f" {known.checkpoint}`: it then writes everything after {here} once more, beside what is visible, under"
        f" identities of its own"
    )


def is_strange(trace: Trace, known: Known) -> bool:
    """Whether something cannot come from a driver that this checkpoint has seen."""
    if trace.batch_id is not None and (known.newest_batch is None or trace.batch_id > known.newest_batch):
        return True
    if trace.epoch is None or trace.epoch < min(known.epochs, default=0):
        return False  # a driver of long ago, whose epoch is forgotten
    if trace.epoch not in known.epochs:
        return True
    return trace.run_id is not None and known.run_of(trace.epoch) not in (None, trace.run_id)
