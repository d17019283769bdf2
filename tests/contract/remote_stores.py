"""What every store owes that is reached over a network, asked through a proxy that fails on order. A `world` of such a
store has its ``uri`` and ``options``, ``store`` behind proxies, and ``direct`` past them.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

import pytest

from holdfast.errors import Unavailable
from holdfast.storage import open_file_store
from holdfast.storage.options import StorageOptions


def impatient(world):
    """The same folder through the same proxies, for what fails however often it is tried."""
    return open_file_store(world.uri, replace(world.options, retry_max_ms=300))


def one_of_many(store, writers):
    """Many create `record` at once: one is told that it was first. Returns its bytes."""
    wins, barrier = [], threading.Barrier(writers)

    def create(i):
        barrier.wait()
        if store.create_if_absent("record", b"%d" % i):
            wins.append(i)

    threads = [threading.Thread(target=create, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    return b"%d" % wins[0]


def ends_within_its_limit(world, proxy):
    """A server that hangs is Unavailable, and nothing of the file is there."""
    proxy.rule, proxy.hang_s = lambda _: "hang", 600.0  # it never hangs up: only a limit of ours ends a request
    hasty = open_file_store(world.uri, replace(world.options, request_timeout_ms=500))
    started = time.monotonic()
    with pytest.raises(Unavailable, match=rf"writing 'delta' in {world.uri}.*spark\.holdfast\.storage\.retry\.max"):
        hasty.put("delta", b"whole")
    assert time.monotonic() - started < StorageOptions().request_timeout_ms / 1000, "one request of the usual limit"
    proxy.let_go.set()
    proxy.rule = lambda _: "pass"
    assert world.store.get("delta") is None
    assert world.store.list("") == []
    world.store.put("delta", b"whole")


def reads_whole_or_not_at_all(world, proxy, kind, folder):
    """``kind``: of the requests whose answers are cut. ``folder``: empty, of this machine."""
    world.direct.put("delta", b"whole" * 1000)
    proxy.first(2, "cut", kind)
    assert world.store.get("delta") == b"whole" * 1000
    proxy.first(2, "cut", kind)
    assert world.store.fetch("delta", str(folder / "here")) is True
    assert (folder / "here").read_bytes() == b"whole" * 1000
    proxy.rule = lambda asked: "cut" if asked.kind == kind else "pass"
    store = impatient(world)
    with pytest.raises(Unavailable, match="reading 'delta'"):
        store.get("delta")
    with pytest.raises(Unavailable, match="reading 'delta'"):
        store.fetch("delta", str(folder / "there"))
    assert os.listdir(folder) == ["here"]


def lists_whole_or_not_at_all(world, proxy, kind):
    """A list that misses files would make retention, and the search for versions, believe in what is not so."""
    for i in range(7):
        world.direct.put(f"delta/{i}", b"x")
    for look in (world.store.list, world.store.names):
        proxy.first(2, "cut", kind)
        assert len(look("delta/")) == 7
    proxy.rule = lambda asked: "cut" if asked.kind == kind else "pass"
    store = impatient(world)
    for look in (store.list, store.names):
        with pytest.raises(Unavailable, match="listing"):
            look("delta/")


def all_texts(error):
    """What an error says, and those before it."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
