"""A temporary folder of a reader's own: for what it brings to this machine, which may be as large as the state.

Its process holds a lock on the folder for as long as it is there, and an empty file in it says so. A kill -9 lets go of
the lock, and whoever makes the next folder in the same place removes what was left; so it is only where locks are this
machine's. Without that file nothing is removed: it is a user's own, or in use without a lock. A child that is forked
may read in it, and leaves it to its parent. Owner: one thread.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress

from holdfast.checkpoint.host import READERS_SETTING, local_errors, locks_tell
from holdfast.folders import temporary_folder

_PREFIX = "holdfast-reader-"
_NAME = re.compile(_PREFIX + "[a-z0-9_]{8}")  # as mkdtemp makes them
#: The file that is written once the lock is held, and removed last.
_MARKER = "HOLDFAST-READER"


class OwnFolder:
    """A new folder, which goes with this object, or as the program ends. Use as a context manager, or close it.

    Parameters
    ----------
    parent
        Where it is made; by default where temporary files go.

    Raises
    ------
    Unavailable
        None can be made there.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = temporary_folder() if parent is None else os.fspath(parent)
        with local_errors(place, READERS_SETTING):
            if locks_tell(place):
                _clear_abandoned(place)
            self.path, lock = _made(place)
        self._remove = weakref.finalize(self, _removed, self.path, lock, os.getpid())

    def close(self) -> None:
        """Removes the folder and all in it, where this process made it. May be called again."""
        self._remove()

    def __enter__(self) -> OwnFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _made(place: str) -> tuple[str, int | None]:
    """A new folder, and what holds its lock; None on a file system without locks."""
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        try:
            lock = _locked(path)
        except (BlockingIOError, FileNotFoundError):
            # Somebody who clears away took it for abandoned between its making and its locking.
            with suppress(OSError):
                os.rmdir(path)
            continue
        except OSError:
            return path, None
        with suppress(OSError):  # a full disk: the folder may do without, and is told of by who writes to it
            os.close(os.open(os.path.join(path, _MARKER), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return path, lock


def _removed(path: str, lock: int | None, made_by: int) -> None:
    """Of a process that did not make it, as a forked child that comes to its end, only the lock's file is closed."""
    try:
        if os.getpid() == made_by:
            _remove_all_but_marker(path)  # a kill in the midst of it leaves what the next one may remove
            shutil.rmtree(path, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)


def _remove_all_but_marker(path: str) -> None:
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != _MARKER:
                os.unlink(entry.path)


def _clear_abandoned(place: str) -> None:
    """Removes this user's folders whose processes are gone; none where the place may be written to and not listed."""
    left = []
    with suppress(OSError), os.scandir(place) as entries:
        left = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
    for path in left:
        with suppress(OSError):
            if os.lstat(path).st_uid == os.getuid() and stat.S_ISREG(os.lstat(os.path.join(path, _MARKER)).st_mode):
                _removed(path, _locked(path), os.getpid())


def _locked(path: str) -> int:
    """Holds the lock on a folder. OSError: it is somebody's (BlockingIOError), it is gone, or there are no locks."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(path), os.fstat(lock)):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(lock)
        raise
    return lock
