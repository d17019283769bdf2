"""A file that a command makes: it is there once it is whole, and replaces none."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def new_file(target: str) -> Iterator[str]:
    """The path to write under, beside ``target``; the file gets that name where the context ends well, and is removed
    after an error or Ctrl-C. A kill leaves it under a name that says so.

    Raises
    ------
    OSError
        There is a file of the name, or none can be made there.
    """
    if os.path.lexists(target):  # told before anything is read
        raise _exists(target)
    folder, name = os.path.split(target)
    handle, unfinished = tempfile.mkstemp(dir=folder or ".", prefix=f".{name}.", suffix=".unfinished")
    os.close(handle)
    try:
        yield unfinished
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(unfinished, 0o666 & ~umask)  # as any new file; that of a temporary one is its owner's alone
        try:
            os.link(unfinished, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if os.path.lexists(target):
                raise _exists(target) from None
            os.rename(unfinished, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)


def _exists(target: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
