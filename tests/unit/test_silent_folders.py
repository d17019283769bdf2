"""A mounted folder that does not answer, or may not be looked at, is not taken for one that has nothing; and a hard
link whose answer was lost is not taken for somebody else's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import InternalError, Unavailable
from holdfast.storage import FileStore, open_file_store
from holdfast.storage.transfer import local_file

Question = Callable[[FileStore, Path], object]
ERRORS = [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT]


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, code: int, where: str) -> None:
    """``os.<call>`` of a path that ends so fails; of others it works."""
    real = getattr(os, call)

    def refused(path: str, *args: object, **kwargs: object) -> object:
        if str(path).endswith(where):
            raise OSError(code, os.strerror(code), path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, call, refused)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    store = open_file_store(str(tmp_path / "store"))
    store.put("a/one/file", b"1")
    store.put("a/two/file", b"2")
    return store


def down(store: FileStore, _: Path) -> list[str]:
    return [file.name for file in store.list("a/")]


def sweep(store: FileStore, _: Path) -> int:
    return store.sweep("a/", 1 << 60)


def names(store: FileStore, _: Path) -> list[str]:
    return store.names("a/one/")


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("ask", [down, sweep, names])
def test_a_folder_that_cannot_be_listed_is_not_empty(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Question, code: int
) -> None:
    refuse(monkeypatch, "scandir", code, "a/one")
    refuse(monkeypatch, "scandir", code, "a/one/")
    with pytest.raises(Unavailable):
        ask(store, tmp_path)


def test_what_a_disk_has_at_its_root_for_its_own_repair_is_not_looked_at(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store" / "lost+found").mkdir()
    refuse(monkeypatch, "scandir", errno.EACCES, "lost+found")
    assert [file.name for file in store.list("")] == ["a/one/file", "a/two/file"]
    refuse(monkeypatch, "scandir", errno.EACCES, "a/two")
    with pytest.raises(Unavailable, match="failed: a/two: Permission denied; let this user read and write there"):
        store.list("")


def test_a_folder_that_is_missing_is_empty(store: FileStore) -> None:
    assert [store.list("b/"), store.list("a/one/file/"), store.names("b/")] == [[], [], []]
    assert store.sweep("b/", 1 << 60) == 0


def fetch(store: FileStore, folder: Path) -> bool:
    return store.fetch("a/one/file", str(folder / "fetched"))


def copy(store: FileStore, _: Path) -> bool | None:
    return store.copy_if_absent("a/one/file", "b/copy")


def look(store: FileStore, _: Path) -> None:
    with local_file(store, "a/one/file"):
        pass


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("ask", [fetch, copy, look])
def test_a_file_that_cannot_be_looked_at_is_not_missing(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Question, code: int
) -> None:
    refuse(monkeypatch, "stat", code, "a/one/file")
    with pytest.raises(Unavailable):
        ask(store, tmp_path)
    assert not (tmp_path / "store" / "b" / "copy").exists()


def test_a_link_whose_answer_was_lost_is_ours(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS sends LINK again when no answer comes; a server that has forgotten the first one says that it exists."""
    link = os.link

    def forgetful(path: str, name: str) -> None:
        link(path, name)
        link(path, name)

    monkeypatch.setattr(os, "link", forgetful)
    assert store.create_if_absent("c/new", b"3")
    assert not store.create_if_absent("c/new", b"4")
    store.put("c/other", b"5")
    with pytest.raises(InternalError, match="exists already"):
        store.put("c/other", b"5")
    assert (store.get("c/new"), store.get("c/other")) == (b"3", b"5")
