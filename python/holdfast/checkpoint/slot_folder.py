"""The folder of one slot on the local disk: bases, folders of unfinished work, copies of deltas, the lock of its folds.

Everything that becomes visible does so by one rename, under a name that is unique to its version or attempt.
Processes may race: whoever comes second finds the same thing there.
An unfinished ``work-<id>`` folder is somebody's for as long as that process holds the lock on ``work-<id>.lock``;
a kill -9 lets go of it, and whoever comes by clears the folder away.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from holdfast.checkpoint.file_lock import FileLock
from holdfast.checkpoint.host import SETTING, local_errors
from holdfast.checkpoint.names import slot_prefix, version_name
from holdfast.clock import Ids

_WORK = "work-"
_LOCK = ".lock"
FOLD_LOCK = "fold.lock"


class WorkFolder:
    """A folder that is this process's alone until it is published or closed. Use as a context manager."""

    def __init__(self, path: str, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def child(self, name: str) -> str:
        return os.path.join(self.path, name)

    def close(self) -> None:
        """Removes what was not published. May be called again; a forked child leaves it to its parent."""
        if not self._lock.is_open:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.unlink(self.path + _LOCK)
        self._lock.close()


class SlotFolder:
    """The local folder of a slot. Methods raise Unavailable when the disk refuses.

    Parameters
    ----------
    setting
        What says where ``local_dir`` is.
    """

    def __init__(
        self, local_dir: str, store_uri: str, prefix: str, slot: int, ids: Ids, setting: str = SETTING
    ) -> None:
        store = hashlib.sha256(store_uri.encode()).hexdigest()[:16]
        self.local_dir = local_dir
        self.path = os.path.join(local_dir, store, slot_prefix(prefix, slot))
        self.bases = os.path.join(self.path, "bases")
        self.deltas = os.path.join(self.path, "deltas")
        self.setting = setting
        self._ids = ids
        self.make()

    def errors(self, path: str) -> AbstractContextManager[None]:
        """Turns what the disk refuses into Unavailable, for a path in this folder."""
        return local_errors(path, self.setting)

    def exists(self) -> bool:
        return os.path.isdir(self.bases) and os.path.isdir(self.deltas)

    def make(self) -> None:
        with self.errors(self.path):
            for folder in (self.bases, self.deltas):
                os.makedirs(folder, mode=0o700, exist_ok=True)

    def touch(self, now_ms: int) -> None:
        """Notes that the folder is in use: those that are not for long are removed (unused_folders.py)."""
        with suppress(OSError):  # what is wrong with the disk is told where it is written
            os.utime(self.path, ns=(now_ms * 1_000_000, now_ms * 1_000_000))

    def base_path(self, sequence: int, version_id: str) -> str:
        return os.path.join(self.bases, version_name(sequence, version_id))

    def delta_path(self, sequence: int, version_id: str) -> str:
        return os.path.join(self.deltas, f"{version_name(sequence, version_id)}.arrow")

    def base_names(self) -> list[str]:
        with self.errors(self.bases):
            return sorted(os.listdir(self.bases))

    def new_work(self) -> WorkFolder:
        """A new, empty work folder, locked."""
        with self.errors(self.path):
            while True:
                path = os.path.join(self.path, _WORK + self._ids())
                lock = _try_lock(path + _LOCK, os.O_EXCL)
                if lock is None:
                    continue  # somebody who clears away took it for abandoned between its making and its locking
                os.mkdir(path, mode=0o700)
                return WorkFolder(path, lock)

    def publish(self, folder: str, sequence: int, version_id: str) -> str:
        """Renames a finished folder to the base of a version; its path. If there is one already, that one stays."""
        path = self.base_path(sequence, version_id)
        with self.errors(path):
            try:
                os.rename(folder, path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        return path

    def discard(self, path: str) -> None:
        """Removes a folder: first out of sight in one step, then its files.
        Those that have it open keep what they have.
        """
        hidden = os.path.join(self.path, _WORK + self._ids())
        with suppress(OSError):
            os.rename(path, hidden)
            shutil.rmtree(hidden, ignore_errors=True)

    def clear_abandoned(self) -> int:
        """Removes the work folders of processes that are gone; how many."""
        cleared = 0
        with self.errors(self.path):
            names = {name.removesuffix(_LOCK) for name in os.listdir(self.path) if name.startswith(_WORK)}
        for name in names:
            path = os.path.join(self.path, name)
            lock = _try_lock(path + _LOCK, 0)
            if lock is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                os.unlink(path + _LOCK)
            lock.close()
            cleared += 1
        return cleared

    @contextmanager
    def maintenance_lock(self) -> Iterator[bool]:
        """Held while this slot is folded, uploaded or tidied. False: another process holds it."""
        with self.errors(self.path):
            lock = FileLock(os.path.join(self.path, FOLD_LOCK))
        with lock:
            try:
                lock.take_alone()
            except BlockingIOError:
                yield False
                return
            yield True


def _try_lock(path: str, flags: int) -> FileLock | None:
    """Locks the file ``path``, which is made if need be; None when somebody holds it, or removed it meanwhile."""
    try:
        lock = FileLock(path, os.O_CREAT | flags)
    except FileExistsError:
        return None
    try:
        lock.take_alone()
        if os.stat(path).st_ino == os.fstat(lock.descriptor).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        lock.close()
        return None
    lock.close()
    return None
