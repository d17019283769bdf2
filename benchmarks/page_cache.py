"""The page cache: how much of a folder's files it has, and how it forgets them, so that reading begins at the disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def forget(folder: Path) -> int:
    """Bytes of the files of a folder that the page cache still has when it was told to forget them all.

    Needs no root (posix_fadvise(2), POSIX_FADV_DONTNEED). What is not on the disk yet is written first; what a process
    has mapped stays, and is counted.
    """
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return sum(map(cached_bytes, _files(folder)))


def cached_bytes(path: Path) -> int:
    """Bytes of a file that the page cache has, in whole pages (mincore(2))."""
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        pages = -(-size // _PAGE)
        found = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)  # writable, since it is private
        if _libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), found):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        del start  # a mapping that is pointed at cannot be closed
    return sum(one & 1 for one in found) * _PAGE


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
