"""The power goes, and takes what was not synced: whatever a store said was written is there, whole, and nothing half.

On a file system of tests/forgetful_files.py. Writers die in the middle too, as they do when the power goes: at each of
their calls of the system, from which the next writer goes on.
"""

from __future__ import annotations

import builtins
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.test_kills import check, work

from holdfast.fault_points import POINTS
from holdfast.storage import LocalFileStore, local

mfusepy = pytest.importorskip(
    "mfusepy",
    reason="libfuse is not installed (Debian: fuse3, libfuse3-3)",
    exc_type=OSError,  # type: ignore[arg-type]
)
from tests.forgetful_files import Machine  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="this machine lets nobody mount: no /dev/fuse"),
    pytest.mark.skipif(shutil.which("fusermount3") is None, reason="fusermount3 is not installed (Debian: fuse3)"),
]

LIVES, CALLS, STEPS_MAX = 12, 6, 30
STEPS = [point for point in POINTS if point not in ("during_restore", "during_spill")]
SHORT = ("after_delta", "before_manifest", "during_retention")
_SYSTEM = [(os, name) for name in ("mkdir", "open", "fsync", "link", "unlink")] + [(builtins, "open")]


class KilledError(BaseException):
    """Nothing catches this, and what would clean up after it does nothing any more."""


@contextmanager
def killed_before(step: int) -> Iterator[None]:
    """At the ``step``-th call of the system the writer is dead: neither this call does anything, nor any later one."""
    left = step
    real = [(module, name, getattr(module, name)) for module, name in _SYSTEM]

    def dies_at_its_turn(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                raise KilledError
            return call(*arguments, **named)

        return counted

    try:
        for module, name, call in real:
            setattr(module, name, dies_at_its_turn(call))
        yield
    finally:
        for module, name, call in real:
            setattr(module, name, call)


class Writers:
    """Writers of one store, one after the other, and what they were told."""

    def __init__(self, root: Path, draw: random.Random, outside: Path) -> None:
        self.root, self.draw, self.outside = root, draw, outside
        self.tried: dict[str, set[bytes]] = {}
        self.told: dict[str, bytes] = {}
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"{self.draw.choice(('', 'a/', 'a/b/', 'c/d/e/'))}file-{self.names}"

    def bytes_of(self, name: str) -> bytes:
        data = self.draw.randbytes(self.draw.choice((0, 1, 10, 5_000)))
        self.tried.setdefault(name, set()).add(data)
        return data

    def call(self, store: LocalFileStore) -> None:
        known = sorted(self.tried)
        what = self.draw.choice(("put", "put_file", "create", *(("again", "copy", "delete") if known else ())))
        name = self.draw.choice(known) if what in ("again", "copy", "delete") else self.name()
        if what == "put":
            data = self.bytes_of(name)
            store.put(name, data)
            self.told[name] = data
        elif what == "put_file":
            data = self.bytes_of(name)
            self.outside.write_bytes(data)
            store.put_file(name, str(self.outside))
            self.told[name] = data
        elif what in ("create", "again"):
            data = self.bytes_of(name)
            made = store.create_if_absent(name, data)
            assert not (made and name in self.told), f"{name} was there, and is made again"
            self.told[name] = data if made else self.read(store, name)
        elif what == "copy":
            target = self.name()
            self.tried[target] = self.tried[name]
            if store.copy_if_absent(name, target):
                self.told[target] = self.read(store, target)
        else:
            self.told.pop(name, None)  # from now on it may be there or not
            del self.tried[name]
            store.delete([name])

    @staticmethod
    def read(store: LocalFileStore, name: str) -> bytes:
        data = store.get(name)
        assert data is not None, f"{name} is there, as the store said, and cannot be read"
        return data

    def live(self) -> None:
        """One writer, until it has done its work or dies."""
        store = LocalFileStore(str(self.root))
        try:
            with killed_before(self.draw.randint(1, STEPS_MAX)):
                for _ in range(CALLS):
                    self.call(store)
        except KilledError:
            pass

    def check(self) -> None:
        store = LocalFileStore(str(self.root))
        for name, data in self.told.items():
            assert store.get(name) == data, f"{name} was written, and is lost or another"
        for file in store.list(""):
            if file.name in self.tried:
                assert store.get(file.name) in self.tried[file.name], f"{file.name} is nothing that anybody wrote"


def lives(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    machine = Machine(folder / f"disk-{seed}")
    try:
        writers = Writers(machine.folder / "made" / "store", draw, folder / f"outside-{seed}")
        for life in range(LIVES):
            writers.live()
            if draw.random() < 0.5:
                machine.lose_power(1000 * seed + life)
            writers.check()
    finally:
        machine.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_a_store_said_is_written_outlasts_the_power(tmp_path: Path, seed: int) -> None:
    lives(tmp_path, seed)


def no_sync(_: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        (os, "fsync", no_sync),
        (local, "_sync_folder", lambda _: True),
        (LocalFileStore, "_make_folders", lambda _, folder: os.makedirs(folder, exist_ok=True)),
    ],
)
def test_a_sync_that_is_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, instead: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(AssertionError, match="was written, and is lost"):
        for seed in range(100, 130):
            lives(tmp_path, seed)


@pytest.mark.parametrize("point", [pytest.param(p, marks=() if p in SHORT else pytest.mark.slow) for p in STEPS])
def test_a_slot_whose_machine_loses_power_at_any_step_loses_nothing(tmp_path: Path, point: str) -> None:
    """Its local copies are of the boot before, and count no more; what Spark committed is elsewhere, and durable."""
    machine = Machine(tmp_path / "disk")
    try:
        LocalFileStore(str(machine.folder / "store")).put("made-by", b"its owner")
        (tmp_path / "store").symlink_to(machine.folder / "store")
        draw = random.Random(point)
        killed = work(str(tmp_path), point=(point, draw.randint(1, 3)))
        assert killed.returncode == -9, (killed.returncode, killed.stderr[-2000:])
        machine.lose_power(draw.randrange(1_000))
        shutil.rmtree(tmp_path / "local-a")
        finished = work(str(tmp_path), local="local-b")
        assert finished.returncode == 0, finished.stderr[-2000:]
        machine.lose_power(draw.randrange(1_000))
        check(str(tmp_path), local="local-c", way="restore")
    finally:
        machine.close()
