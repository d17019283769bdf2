"""Puts handles together: what a text says, and what the file of its newest delta says of those before it.

What this process has prepared or put together before it knows: then nothing is read. Otherwise that file is, from this
machine or from storage, and kept until it is applied, as whoever opens the version does next. Owner: the slot's thread.
"""

from __future__ import annotations

from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import Handle, StoredHandle
from holdfast.errors import Corrupt

#: A batch's parent, what it leads to, and those of another attempt at it.
_KNOWN_MAX = 4


class WholeHandles:
    """Of one slot."""

    def __init__(self, deltas: DeltaReader) -> None:
        self._deltas = deltas
        self._known: dict[str, Handle] = {}  # by version id, the last that was asked for at the end

    def of(self, stored: StoredHandle) -> Handle:
        """The handle whose text says that much.

        Raises
        ------
        Corrupt
            The newest delta is missing or damaged, or what it says is not what led to this version.
        Incompatible
            A newer Holdfast wrote it.
        Unavailable
            Storage did not answer.
        """
        handle = self.known(stored)
        if handle is None:
            handle = self._from_file(stored)
            self.keep(handle)
        return handle

    def known(self, stored: StoredHandle) -> Handle | None:
        """The same without a look at any file; None: it takes one.

        A version that was taken over may have two handles, by another choice of snapshots: what the text says counts.
        """
        known = self._known.get(stored.version_id)
        if known is None or known.stored() != stored:
            return None
        self.keep(known)
        return known

    def keep(self, handle: Handle) -> None:
        """Knows ``handle`` from now on."""
        self._known.pop(handle.version_id, None)
        self._known[handle.version_id] = handle
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _from_file(self, stored: StoredHandle) -> Handle:
        if stored.is_whole or stored.newest is None:
            return stored.whole()
        try:
            earlier = self._deltas.lineage(stored.newest)
            if earlier is None:
                raise Corrupt(f"delta {stored.newest.version_id} does not say which were before it")
            return stored.whole(earlier)
        except Corrupt as error:
            raise Corrupt(
                f"{stored.where} cannot be restored: its newest delta tells those before it, and is damaged:\n  {error}"
            ) from error
