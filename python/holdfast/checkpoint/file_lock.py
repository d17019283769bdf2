"""A lock on a file, flock(2): the kernel lets go of it when the process that holds it ends, a kill -9 included.

It belongs to the open file, and a child that user code forks shares that: closed here alone, the lock would stay for
as long as such a child lives. So it is unlocked before it is closed, and a child closes what it got at once, for it may
outlive a parent that is killed. Safe for several threads.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress


class FileLock:
    """A file that is open to be locked. Use as a context manager, or close it.

    Parameters
    ----------
    flags
        Of open(2), beside those to read and write.

    Raises
    ------
    OSError
        It cannot be opened.
    """

    def __init__(self, path: str, flags: int = os.O_CREAT) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)  #: -1 once it is closed
        _open[self.descriptor] = self

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it is, in this process: in a forked child it is not."""
        return self.descriptor >= 0

    def take_alone(self, *, wait: bool = False) -> None:
        """Locks the file. OSError: somebody holds it (BlockingIOError, unless ``wait``), or there are no locks here."""
        fcntl.flock(self.descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Lets go of the lock. May be called again."""
        descriptor, self.descriptor = self.descriptor, -1
        if _open.pop(descriptor, None) is None:
            return
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


_open: dict[int, FileLock] = {}  # of this process, by descriptor


def _leave_to_parent() -> None:
    """After a fork, in the child: closing alone lets go of nothing, the parent has it still."""
    for descriptor, lock in list(_open.items()):
        lock.descriptor = -1
        with suppress(OSError):
            os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
