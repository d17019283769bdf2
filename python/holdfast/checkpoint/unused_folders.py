"""Clears away the local folders of slots that nobody used for long: of queries that are dead, and of slots that moved.

Runs in the background, once an hour and machine at most, whichever process comes first; sooner where a pass left some.
A folder's time is that of its last use (`SlotFolder.touch`). Losing one costs a restore: a query that had no rows for
as long notices no more.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

from holdfast.checkpoint.file_lock import FileLock
from holdfast.checkpoint.slot_folder import FOLD_LOCK
from holdfast.clock import Ids

_STORE = re.compile(r"[0-9a-f]{16}")
_SLOT = re.compile(r"slot-\d{5,}")
_CLEARED = "cleared-"
_EVERY_MS = 3_600_000
#: In one pass: it is in the way of folds and snapshots.
_AT_ONCE = 64
_LOGGER = logging.getLogger("holdfast.checkpoint")


def clear_unused(local_dir: str, now_ms: int, unused_ms: int, ids: Ids) -> int:
    """Removes what was not used for ``unused_ms``; how many slots' folders. What the disk refuses is left."""
    claim = _claim(local_dir, now_ms)
    if claim is None:
        return 0
    cleared = 0
    try:
        for name in os.listdir(local_dir):
            if name.startswith(_CLEARED):  # of a process that was killed here
                shutil.rmtree(os.path.join(local_dir, name), ignore_errors=True)
        for path in _slot_folders(local_dir):
            if cleared < _AT_ONCE and _clear(path, os.path.join(local_dir, _CLEARED + ids()), now_ms - unused_ms):
                cleared += 1
        if cleared == _AT_ONCE:
            _note_pass(claim, now_ms - _EVERY_MS)
    except OSError as error:
        _LOGGER.warning("unused folders in %s are cleared later: %s", local_dir, error)
    finally:
        claim.close()
    if cleared:
        _LOGGER.info("%d folders of slots in %s that were not used for long were removed", cleared, local_dir)
    return cleared


def _claim(local_dir: str, now_ms: int) -> FileLock | None:
    """A lock that is held for one pass; None when another process is at it, or was within the hour."""
    path = os.path.join(local_dir, "CLEARED")
    try:
        lock = FileLock(path)
    except OSError:
        return None
    try:
        lock.take_alone()
        status = os.fstat(lock.descriptor)
        if status.st_size and 0 <= now_ms - status.st_mtime_ns // 1_000_000 < _EVERY_MS:
            lock.close()
            return None
        os.pwrite(lock.descriptor, b"The last time when unused folders were looked for is this file's.\n", 0)
        _note_pass(lock, now_ms)
        return lock
    except OSError:
        lock.close()
        return None


def _note_pass(lock: FileLock, at_ms: int) -> None:
    os.utime(lock.descriptor, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def _slot_folders(local_dir: str) -> Iterator[str]:
    """``<store>/<query>/<operator>/slot-00007``: nothing else that may be there is touched."""
    for store in _folders(local_dir):
        if not _STORE.fullmatch(os.path.basename(store)):
            continue
        for query in _folders(store):
            for operator in _folders(query):
                yield from (slot for slot in _folders(operator) if _SLOT.fullmatch(os.path.basename(slot)))


def _folders(path: str) -> list[str]:
    with suppress(OSError), os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _clear(path: str, hidden: str, before_ms: int) -> bool:
    """Removes a slot's folder: out of sight in one step, then its files. Who has them open keeps them."""
    if not _is_older(path, before_ms):
        return False
    try:
        with FileLock(os.path.join(path, FOLD_LOCK)) as lock:
            lock.take_alone()  # nobody folds or uploads there
            os.rename(path, hidden)
    except OSError:
        return False
    shutil.rmtree(hidden, ignore_errors=True)
    with suppress(OSError):
        for _ in range(3):  # operator, query and store, if this was the last in them
            path = os.path.dirname(path)
            os.rmdir(path)
    return True


def _is_older(path: str, before_ms: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000 < before_ms
    except OSError:
        return False
