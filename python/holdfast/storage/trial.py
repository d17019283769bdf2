"""Whether a store keeps what is rested on: tried out on the driver, before anything is written that matters.

A server that takes ``If-None-Match`` and does not heed it answers every question as one that does, until two writers
meet: then both believe that they were first. So two are made to meet here. Folders need no such trial: the system
heeds links. Of them it is asked whether they are folders.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

from holdfast.clock import new_id
from holdfast.errors import InvalidRequest
from holdfast.storage.file_store import FileStore

#: Stores that were tried, and whether with copies.
_tried: WeakKeyDictionary[FileStore, bool] = WeakKeyDictionary()
_lock = threading.Lock()


def try_out(store: FileStore, *, copies: bool = False) -> None:
    """Writes, reads, copies (with ``copies``) and deletes a small file, once for each store in a process.

    Raises
    ------
    InvalidRequest
        The store lets a second writer replace what the first one wrote; or a file is where a folder should be.
    Unavailable
        It does not answer, there is no such bucket, or this user may not do what is needed.
    """
    local = store.local_path("x")
    if local is not None:
        _check_no_file(os.path.dirname(local))
        return
    with _lock:
        known = _tried.get(store)
        if known or known is copies:
            return
        name = f"_holdfast_trial/{new_id()}"
        first, second = store.create_if_absent(name, b"first"), store.create_if_absent(name, b"second")
        is_kept = first and not second and store.get(name) == b"first"
        # The first copy may say False too, where its answer was lost.
        copied = [store.copy_if_absent(name, f"{name}-copy") for _ in range(2 if copies else 0)]
        store.delete([name, f"{name}-copy"])
        _check(is_kept, store, "a put with If-None-Match: *")
        _check(True not in copied[1:], store, "a copy that must not replace its target")
        _tried[store] = copies


def _check_no_file(folder: str) -> None:
    """InvalidRequest where ``folder``, or what it would be made in, is there and is no folder."""
    found = folder
    while not os.path.lexists(found) and os.path.dirname(found) != found:
        found = os.path.dirname(found)
    if not os.path.isdir(found):
        what = "a link that leads nowhere" if not os.path.exists(found) else "a file"
        raise InvalidRequest(f"{folder}: expected a folder, or a place to make one in; found that {found} is {what}")


def _check(is_kept: bool, store: FileStore, what: str) -> None:
    if not is_kept:
        raise InvalidRequest(
            f"{store.uri}: expected a store that creates a name once, found one that lets a second writer replace it "
            f"({what} was not heeded). Two drivers could own one checkpoint there, and output could be written twice. "
            f"Use a store, or a release of its server, with conditional writes (docs/guide/storage.md)"
        )
