"""What a Python worker does with the memory that it frees: gives it back to the system.

glibc's malloc keeps what it frees for later, more and more of it: with each large block that is freed, the size from
which blocks are mapped by themselves rises, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). Batches, indexes and deltas
of some MiB each then leave a heap full of holes; a worker was seen at 330 MiB that needed 240. A threshold that is set
stays where it is.
"""

from __future__ import annotations

import ctypes
import functools
import os

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_KEPT_BYTES = 1 << 20
# By which a user sets the same; then it is left alone.
_ENVIRONMENT = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@functools.cache
def return_freed_memory() -> None:
    """Has this process give freed blocks of 1 MiB and more back to the system. For worker processes only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's own
    if mallopt is not None and not any(name in os.environ for name in _ENVIRONMENT):
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
