"""Snapshots whose upload takes long, clocks that were wrong as one was made, and tables that are lost: what a handle
names is whole, and what is lost in one snapshot is not missing in the next.

Their age in storage counts from their first file on; the mark of a snapshot had the time when its upload ended. So
another host's retention deleted tables of a snapshot that was named afterwards, and later ones shared what was gone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, SlotDriver

from holdfast.checkpoint import Host
from holdfast.checkpoint.snapshot import Manifest
from holdfast.storage import LocalFileStore

MINUTE_MS = 60_000
SETTINGS = replace(SMALL, fold_deltas_max=2, snapshot_deltas_max=4)
HOST_B = Host("host-b", "machine-b", "boot-b")


class SlowStore(LocalFileStore):
    """Calls ``before_manifest`` when all files of a snapshot are there, and its manifest is not."""

    before_manifest: Callable[[], object] = staticmethod(lambda: None)

    def put(self, name, data):
        if "/snapshot/" in name:
            self.before_manifest()
        super().put(name, data)


@pytest.fixture
def store(tmp_path: Path) -> SlowStore:
    return SlowStore(str(tmp_path / "store"))


@pytest.fixture
def driver(tmp_path: Path, store: SlowStore) -> SlotDriver:
    return SlotDriver(tmp_path, store=store, settings=SETTINGS)


def assert_whole(driver: SlotDriver) -> None:
    """All that the handle names is there; and a machine that has nothing restores it the first way."""
    for ref in driver.committed.snapshots:
        with open(driver.stored(ref.name)[0], "rb") as file:
            manifest = Manifest.from_text(file.read(), ref.name)
        assert all(driver.stored(name) for name in manifest.stored().values()), ref.name
    host = Host("host-c", "machine-c", "boot-c")
    assert driver.check(driver.process(host, f"local-c{driver.next_batch}")) == "restore"


@contextmanager
def unnamed(driver: SlotDriver) -> Iterator[None]:
    """Host B is uploading a snapshot while the slot moves to host A; its manifest comes when that has begun."""
    driver.play_some(driver.process(HOST_B, "local-b"), SETTINGS.snapshot_deltas_max, seed=1)
    with hidden(driver, *uploads(driver)):
        yield
    assert not driver.committed.snapshots


@contextmanager
def hidden(driver: SlotDriver, *manifests: str) -> Iterator[None]:
    """Found in storage, a snapshot is named that is whole, of whatever age."""
    assert manifests
    for path in manifests:
        os.rename(path, os.path.join(driver.folder, os.path.basename(path)))
    yield
    for path in manifests:
        os.rename(os.path.join(driver.folder, os.path.basename(path)), path)


def name_elsewhere(driver: SlotDriver, seed: int = 3) -> None:
    """A fresh process of host B names what it finds in storage, and deletes what is old and named by no handle."""
    driver.play_some(driver.process(HOST_B, "local-b2"), 1, seed=seed)
    assert [ref.sequence for ref in driver.committed.snapshots] == [SETTINGS.snapshot_deltas_max]


@pytest.mark.parametrize("is_suspended", [False, True])
def test_no_snapshot_is_named_whose_tables_went_while_it_was_uploaded(driver, store, is_suspended):
    """Also where the machine slept meanwhile: the clock that never goes back stands still then."""
    stored, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        stored.set()
        assert go_on.wait(60)

    a = driver.process()
    with unnamed(driver):
        of_b = set(driver.stored("sst/*"))
        store.before_manifest = wait
        driver.play_some(a, 1, seed=2, rest=False)
        assert stored.wait(60)
        store.before_manifest = lambda: None
    tables = set(driver.stored("sst/*")) - of_b
    driver.pass_time(65 * MINUTE_MS)
    if is_suspended:
        driver.clock.ms -= 65 * MINUTE_MS
        driver.clock.shift_ms += 65 * MINUTE_MS
    name_elsewhere(driver)
    assert tables and not any(map(os.path.exists, tables)), "old, and named by no handle"
    go_on.set()
    a.rest()
    for seed in range(10, 20):
        driver.play_some(a, 1, seed=seed)
        assert_whole(driver)
    assert driver.committed.snapshots[-1].sequence > SETTINGS.snapshot_deltas_max + 1


@pytest.mark.parametrize(("ahead_minutes", "is_new_process"), [(65, False), (120, False), (120, True)])
def test_a_mark_of_a_clock_that_was_ahead_is_not_young_for_longer(driver, ahead_minutes, is_new_process):
    a = driver.process()
    with unnamed(driver):
        driver.clock.shift_ms = ahead_minutes * MINUTE_MS
        driver.play_some(a, 1, seed=2)
        driver.clock.shift_ms = 0
        of_a = uploads(driver)
    driver.pass_time(65 * MINUTE_MS)
    with hidden(driver, *of_a):
        name_elsewhere(driver)
    if is_new_process:
        a = driver.process()
    for seed in range(10, 20):
        driver.play_some(a, 1, seed=seed)
        assert_whole(driver)
    assert driver.committed.snapshots[-1].sequence > SETTINGS.snapshot_deltas_max + 1


@pytest.mark.parametrize("size_bytes", [None, 10])
def test_what_one_snapshot_has_lost_the_next_has_again(driver, caplog, size_bytes):
    a = driver.process()
    driver.play(a, dict.fromkeys(range(5_000), 7))
    while not driver.committed.snapshots:
        driver.play_some(a, 1)
    named = driver.committed.snapshots[0]
    table = max(driver.stored("sst/*"), key=os.path.getsize)
    if size_bytes is None:
        os.unlink(table)
    else:
        os.truncate(table, size_bytes)
    with caplog.at_level(logging.WARNING):
        while driver.committed.snapshots[0] == named:
            driver.play_some(a, 1)
    assert driver.check(driver.process(HOST_B, "local-b")) == "restore"
    assert driver.committed.snapshots[0].state_bytes > 0.9 * named.state_bytes
    assert f"missing or of another size: sst/{os.path.basename(table)}" in caplog.text


@pytest.mark.parametrize("minutes", [31, 100])
def test_uploads_that_are_always_too_slow_are_named_and_told_once(driver, store, caplog, minutes):
    store.before_manifest = lambda: driver.pass_time(minutes * MINUTE_MS)
    a = driver.process()
    with caplog.at_level(logging.WARNING):
        for seed in range(40):
            was_due = len(uploads(driver))
            driver.play_some(a, 1, seed=seed)
            assert len(uploads(driver)) <= was_due + 1
    assert len(driver.committed.snapshots) == 2
    assert driver.committed.sequence - driver.committed.snapshots[0].sequence <= 2 * SETTINGS.snapshot_deltas_max
    told = [record.getMessage() for record in caplog.records if "spark.holdfast.stray.grace" in record.getMessage()]
    assert len(told) == 1 and f"took {minutes * 60} s" in told[0] and "(1 h)" in told[0]
    assert_whole(driver)


def test_a_snapshot_that_was_too_slow_is_named_by_the_next_batch(driver, store):
    """It is not uploaded a second time first."""
    a = driver.process()
    store.before_manifest = lambda: driver.pass_time(31 * MINUTE_MS)
    driver.play_some(a, SETTINGS.snapshot_deltas_max)
    assert len(uploads(driver)) == 1 and not driver.committed.snapshots
    driver.play_some(a, 1)
    assert [ref.sequence for ref in driver.committed.snapshots] == [SETTINGS.snapshot_deltas_max]
    assert len(uploads(driver)) == 1


def uploads(driver: SlotDriver) -> list[str]:
    return driver.stored("snapshot/*")
