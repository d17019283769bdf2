"""Fences: which driver a FileSink's folder belongs to, for all who write there. Format: docs/formats/file_output.md.

Drivers of two copies of one checkpoint share nothing but this folder. Each leaves a fence with its run's id when it
starts; the name is created if it is absent, so of two drivers of one epoch one fails. After that what others have
staged goes, and then it is looked at what they had published: so nothing of theirs comes later that is not seen. Who
meets a fence that is not its own, in a task or before it publishes, is Fenced.

An epoch's first fence stays for as long as the epoch is the newest. Were it deleted with those that later ones replace,
a driver that has waited between its look and its take-over could create it once more, and each would be the other's
stranger: neither copy could ever be started again.
"""

from __future__ import annotations

from holdfast.commit.sink import Scope
from holdfast.commit.traces import Trace
from holdfast.errors import Fenced
from holdfast.sink.files.layout import Layout, parse_fence
from holdfast.storage import FileStore

Fence = tuple[int, int]  # epoch, number
NONE: Fence = (0, 0)


def all_fences(store: FileStore, layout: Layout) -> list[Fence]:
    """Oldest first."""
    found = (parse_fence(name) for name in store.names(layout.fences))
    return sorted(fence for fence in found if fence is not None)


def newest_fence(store: FileStore, layout: Layout) -> Fence:
    """Whoever began to write before it may not prepare any more."""
    return max(all_fences(store, layout), default=NONE)


def fence_traces(store: FileStore, layout: Layout) -> list[Trace]:
    """Who took the folder over."""
    traces = []
    for fence in all_fences(store, layout):
        run_id = _run_of(store, layout, fence)
        by = f"epoch {fence[0]}" if run_id is None else f"run {run_id} of epoch {fence[0]}"
        traces.append(Trace(epoch=fence[0], run_id=run_id, said=f"{by} in {store.uri}"))
    return traces


def take_over(store: FileStore, layout: Layout, scope: Scope) -> Fence:
    """The first fence of a driver.

    Raises
    ------
    Fenced
        A driver of another copy has the same epoch, and was first.
    """
    fence = (scope.epoch, 1)
    name = layout.fence(*fence)
    if not store.create_if_absent(name, scope.run_id.encode()):
        first = _run_of(store, layout, fence)
        if first != scope.run_id:
            raise _fenced(store, scope, first, scope.epoch)
    return fence


def leave_fence(store: FileStore, layout: Layout, scope: Scope) -> None:
    """Another fence of a driver, in place of those before: what its own tasks have begun must not be prepared.

    Raises
    ------
    Fenced
        The newest is of another driver of the same epoch: who was overtaken would fence its own successor.
    """
    epoch, number = newest_fence(store, layout)
    if epoch == scope.epoch:
        run_id = _run_of(store, layout, (epoch, number))
        if run_id not in (None, scope.run_id):
            raise _fenced(store, scope, run_id, epoch)
    store.create_if_absent(layout.fence(scope.epoch, number + 1 if epoch == scope.epoch else 1), scope.run_id.encode())
    fences = all_fences(store, layout)
    kept = {fences[-1], (fences[-1][0], 1)} if fences else set()
    store.delete([layout.fence(*fence) for fence in fences if fence not in kept])


def withdraw(store: FileStore, layout: Layout, scope: Scope) -> None:
    """A driver that was refused leaves nothing behind that would fence the others."""
    mine = [fence for fence in all_fences(store, layout) if _run_of(store, layout, fence) == scope.run_id]
    store.delete([layout.fence(*fence) for fence in mine])


def check_is_owner(store: FileStore, layout: Layout, scope: Scope) -> None:
    """Before something is published.

    Raises
    ------
    Fenced
        Another driver has taken the folder over.
    """
    newest = newest_fence(store, layout)
    if newest[0] < scope.epoch:
        return
    run_id = _run_of(store, layout, newest)
    if newest[0] > scope.epoch or run_id not in (None, scope.run_id):
        raise _fenced(store, scope, run_id, newest[0])


def _run_of(store: FileStore, layout: Layout, fence: Fence) -> str | None:
    """None: not said, as by earlier versions, or the fence is gone."""
    data = store.get(layout.fence(*fence))
    return data.decode(errors="replace") if data else None


def _fenced(store: FileStore, scope: Scope, run_id: str | None, epoch: int) -> Fenced:
    by = "another driver" if run_id is None else f"run {run_id}"
    return Fenced(
        f"{by} took sink {scope.sink!r} of query {scope.query_id} in {store.uri} over, in epoch {epoch}; this driver is"
        f" run {scope.run_id} of epoch {scope.epoch}. Nothing of this one becomes visible any more. Stop one of the"
        " two: copies of one checkpoint must not run both, unless the copy was forked (`holdfast fork`)"
    )
