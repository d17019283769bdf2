"""A FileStore that fails on order: at its n-th operation, with a torn write left behind, or slowly.
Otherwise the one it wraps.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.errors import Unavailable
from holdfast.storage import FileStore
from holdfast.storage.file_store import TEMPORARY_PREFIX, Listing, Names


class FaultyFileStore:
    """``fail_at``: operations, counted from 1, that raise Unavailable; a write then leaves half of its bytes, unnamed.

    ``fail_after``: whether the operation is done before it fails, as when an answer is lost.
    ``only``: the operations that count, by name. ``failures``: how many have failed.
    """

    def __init__(
        self,
        inner: FileStore,
        *,
        fail_at: Sequence[int] | Callable[[int], bool] = (),
        fail_after: bool = False,
        only: Sequence[str] = (),
        delay_s: float = 0.0,
        remote: bool = False,
    ) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.fail_at = fail_at
        self.fail_after = fail_after
        self.only = only
        self.delay_s = delay_s
        self.remote = remote
        self.count = 0
        self.failures = 0
        self.operations: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def put(self, name, data):
        return self._do("put", name, lambda: self.inner.put(name, data), bytes(memoryview(data)))

    def put_file(self, name, path):
        with open(path, "rb") as file:
            data = file.read()
        return self._do("put_file", name, lambda: self.inner.put_file(name, path), data)

    def create_if_absent(self, name, data):
        return self._do("create_if_absent", name, lambda: self.inner.create_if_absent(name, data), bytes(data))

    def copy_if_absent(self, name, target, source=None):
        return self._do("copy_if_absent", target, lambda: self.inner.copy_if_absent(name, target, source))

    def get(self, name) -> bytes | None:
        return self._do("get", name, lambda: self.inner.get(name))

    def fetch(self, name, path):
        return self._do("fetch", name, lambda: self.inner.fetch(name, path))

    def list(self, prefix) -> Listing:
        return self._do("list", prefix, lambda: self.inner.list(prefix))

    def names(self, folder, after="", before="") -> Names:
        return self._do("names", folder, lambda: self.inner.names(folder, after, before))

    def delete(self, names):
        return self._do("delete", ",".join(names), lambda: self.inner.delete(names))

    def sweep(self, prefix, before_ms):
        return self._do("sweep", prefix, lambda: self.inner.sweep(prefix, before_ms))

    def local_path(self, name):
        return None if self.remote else self.inner.local_path(name)

    def _do(self, operation, name, act, data=None):
        with self._lock:
            fails = False
            if not self.only or operation in self.only:
                self.count += 1
                fails = self.fail_at(self.count) if callable(self.fail_at) else self.count in self.fail_at
            self.failures += fails
            self.operations.append((operation, name))
        if self.delay_s:
            time.sleep(self.delay_s)
        if not fails:
            return act()
        if self.fail_after:
            act()
        elif data is not None:
            self._tear(name, data)
        raise Unavailable(f"{operation} {name!r} in {self.uri} failed: the test wanted it to")

    def _tear(self, name, data):
        path = self.inner.local_path(name)
        assert path is not None
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{TEMPORARY_PREFIX}torn-{self.count}"), "wb") as file:
            file.write(data[: len(data) // 2])
