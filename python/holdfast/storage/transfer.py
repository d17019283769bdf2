"""Bytes between stores and this machine: several at once, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

from holdfast.errors import Unavailable
from holdfast.storage.file_store import FileStore
from holdfast.storage.local import is_file

T = TypeVar("T")


def run_parallel(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of ``jobs`` in their order, at most ``threads`` at once.

    When one raises, or Ctrl-C or SIGTERM does while they are waited for, those that have not begun are cancelled and
    those that run are waited for; then that is raised, of several errors the first in the order of ``jobs``.
    """
    if threads <= 1 or len(jobs) <= 1:
        return [job() for job in jobs]
    executor = ThreadPoolExecutor(min(threads, len(jobs)), thread_name_prefix="holdfast-transfer")
    try:
        futures = [executor.submit(job) for job in jobs]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        executor.shutdown(cancel_futures=True)  # by itself a `with` would carry out all that is queued
    for future in futures:
        if not future.cancelled() and future.exception() is not None:
            future.result()
    return [future.result() for future in futures]


def fetch_pieces(pieces: Iterator[bytes], path: str, name: str, uri: str, gone: type[Exception]) -> bool:
    """Writes what a store gives of a file to the local file ``path``, which must not exist.

    False: there is no such file, as ``gone`` says when a piece is asked for; ``path`` is not there then, nor after any
    error.

    Raises
    ------
    Unavailable
        The local file cannot be written; or as ``pieces``.
    """
    try:
        first = next(pieces, b"")
    except gone:
        return False
    try:
        with open(path, "xb") as target:
            try:
                target.write(first)
                target.writelines(pieces)
                target.flush()
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(path)
                if isinstance(error, gone):  # deleted since
                    return False
                raise
    except OSError as error:
        raise Unavailable(f"{name!r} of {uri} cannot be written to the local file {path}: {error}") from error
    return True


@contextmanager
def local_file(store: FileStore, name: str, folder: str | None = None) -> Iterator[str]:
    """The path of a stored file on this machine: its own, or that of a copy in ``folder`` (by default, where temporary
    files go), which lasts as long as the context. Where the store has no such file, none is there.

    Raises
    ------
    Unavailable
        The store does not answer, or there is no room for a copy.
    """
    path = store.local_path(name)
    if path is not None:
        try:
            is_file(path)
        except OSError as error:
            raise Unavailable(f"{name!r} of {store.uri} cannot be looked at: {error}") from error
        yield path
        return
    try:
        copies = tempfile.TemporaryDirectory(prefix="holdfast-copy-", dir=folder)
    except OSError as error:
        raise Unavailable(f"{name!r} of {store.uri} cannot be brought to this machine: {error}") from error
    with copies as own:
        path = os.path.join(own, "file")
        store.fetch(name, path)
        yield path
