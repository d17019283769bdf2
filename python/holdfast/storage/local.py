"""A FileStore in a folder: local disk, or a file system that is mounted.

A file is written under a temporary name in the folder where it belongs, synced, then given its name by a hard link,
which fails if the name exists; then the folder is synced.
A crash anywhere leaves at most a temporary file, which `sweep` removes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import FileIO
from typing import BinaryIO

from holdfast.clock import Ids, new_id
from holdfast.errors import HoldfastError, Unavailable
from holdfast.storage.file_store import (
    TEMPORARY_PREFIX,
    Data,
    FileStore,
    Listing,
    Names,
    StoredFile,
    between,
    check_folder,
    check_name,
    exists_already,
    is_temporary,
    unreadable,
)
from holdfast.storage.places import STATE, Place

#: What tells of errors of the one file, where another is written.
Reading = Callable[[], AbstractContextManager[None]]
_COPY_BYTES = 1 << 18  # stays in the processor's cache between being read and being written
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


class LocalFileStore:
    """Files under ``root``, an absolute path. Folders are made as needed. ``place``: what errors call it."""

    def __init__(self, root: str, *, uri: str | None = None, ids: Ids = new_id, place: Place = STATE) -> None:
        self.root = root
        self.uri = uri or root
        self._ids = ids
        self._place = place
        self._durable_folders: set[str] = set()

    def put(self, name: str, data: Data) -> None:
        if not self.create_if_absent(name, data):
            raise exists_already(name, self.uri)

    def put_file(self, name: str, path: str) -> None:
        if is_temporary(path) and _is_within(path, self.root):
            made = self._publish("writing", name, _sync_file, path)
        else:
            made = self._create(name, lambda file: _copy(path, file, lambda: _reading(path, name)))
        if not made:
            raise exists_already(name, self.uri)

    def create_if_absent(self, name: str, data: Data) -> bool:
        view = memoryview(data)
        return self._create(name, lambda file: _write(file, view))

    def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
        path = self._path(name) if source is None else source.local_path(name)
        if path is None:
            assert source is not None  # every file of this store has a path
            return self._publish("copying to", target, lambda new: source.fetch(name, new) and _sync_file(new))
        with self._errors("copying to", target):
            if not os.path.lexists(self._path(target)):
                if not is_file(path):
                    return None
                try:
                    return self._link(path, self._path(target))
                except FileNotFoundError:  # deleted since
                    return None
                except OSError as error:
                    if error.errno not in (*_NO_LINKS, errno.EXDEV, errno.EEXIST):
                        raise
        return self._publish("copying to", target, lambda new: self._write_copy(new, path))

    def get(self, name: str) -> bytes | None:
        with self._errors("reading", name):
            try:
                with open(self._path(name), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def fetch(self, name: str, path: str) -> bool:
        with self._errors("reading", name):
            path_here = self._path(name)
            if not is_file(path_here):
                return False
            source = open(path_here, "rb", buffering=0)  # noqa: SIM115 (what fails from here on is another disk's)
        try:
            with source, open(path, "xb", buffering=0) as target:
                _copy_open(source, target, lambda: self._errors("reading", name))
        except OSError as error:
            raise Unavailable(f"{name!r} of {self.uri} cannot be written to the local file {path}: {error}") from error
        return True

    def list(self, prefix: str) -> Listing:
        with self._errors("listing", prefix):
            found = [file for file in self._walk(prefix) if not is_temporary(file.name)]
        return sorted(found, key=lambda file: file.name)

    def names(self, folder: str, after: str = "", before: str = "") -> Names:
        with self._errors("listing", folder), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(os.path.join(self.root, check_folder(folder))) as entries:
                found = [entry.name for entry in entries if not entry.is_dir() and not is_temporary(entry.name)]
            return between((folder + name for name in found), after, before)
        return []

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with self._errors("deleting", name), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._path(name))

    def sweep(self, prefix: str, before_ms: int) -> int:
        with self._errors("sweeping", prefix):
            left = [f for f in self._walk(prefix) if is_temporary(f.name) and f.modified_ms < before_ms]
            for file in left:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.root, file.name))
        return len(left)

    def local_path(self, name: str) -> str | None:
        return self._path(name)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, check_name(name))

    def _walk(self, prefix: str) -> Iterator[StoredFile]:
        # The folder that holds everything of this prefix; a prefix may end within a name.
        top = os.path.join(self.root, prefix.rpartition("/")[0])
        for folder, _, names in os.walk(top, onerror=_unless_missing):
            for entry in names:
                path = os.path.join(folder, entry)
                name = os.path.relpath(path, self.root)
                if not name.startswith(prefix):
                    continue
                with suppress(FileNotFoundError):  # deleted since the folder was read
                    status = os.stat(path)
                    yield StoredFile(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def _create(self, name: str, write: Callable[[BinaryIO], None]) -> bool:
        return bool(self._publish("writing", name, lambda new: self._write_durably(new, write)))

    def _publish(
        self, doing: str, name: str, write: Callable[[str], bool], temporary: str | None = None
    ) -> bool | None:
        """Writes, syncs and names a file; False when the name exists.

        Parameters
        ----------
        write
            Makes the file of that path, durably; or says that there is nothing to be written: then the answer is None.
        temporary
            That path, which is gone afterwards, whatever comes of it; by default one beside the name.
        """
        path = self._path(name)
        folder = os.path.dirname(path)
        temporary = temporary or os.path.join(folder, f"{TEMPORARY_PREFIX}{self._ids()}")
        with self._errors(doing, name):
            self._make_folders(folder)
            try:
                if os.path.lexists(path):
                    _sync_folder(folder)  # whoever made it may have been killed before it was durable
                    return False
                if not write(temporary):
                    return None
                named = self._name(temporary, path)
                _sync_folder(folder)
                return named
            finally:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(temporary)

    def _write_durably(self, path: str, write: Callable[[BinaryIO], None]) -> bool:
        with self._open(path) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        return True

    def _write_copy(self, path: str, of: str) -> bool:
        try:
            return self._write_durably(path, lambda file: _copy(of, file))
        except FileNotFoundError:
            if is_file(of):
                raise
            return False  # deleted since

    def _link(self, path: str, copy: str) -> bool:
        path = os.path.realpath(path)  # a file that lies elsewhere behind a link is linked itself, not its link
        folder = os.path.dirname(copy)
        self._make_folders(folder)
        try:
            os.link(path, copy)
        except FileNotFoundError:
            if not is_file(path):
                raise
            self._durable_folders.clear()  # somebody deleted the folder
            self._make_folders(folder)
            os.link(path, copy)
        _sync_folder(folder)
        return True

    def _open(self, path: str) -> BinaryIO:
        try:
            return open(path, "xb", buffering=0)
        except FileNotFoundError:  # somebody deleted the folder
            self._durable_folders.clear()
            self._make_folders(os.path.dirname(path))
            return open(path, "xb", buffering=0)

    def _make_folders(self, folder: str) -> None:
        """Makes a folder and those above it, each durable: a file in a folder that a crash forgets is lost with it.
        Also those that are there already, once: whoever made them may have been killed before they were durable.
        """
        chain = []
        while folder not in self._durable_folders and folder != os.path.dirname(folder):
            chain.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(chain):
            was_there = os.path.isdir(one)
            if not was_there:
                with suppress(FileExistsError):
                    os.mkdir(one)
            # What lies above the store, and was there, may be a folder that nobody reads or syncs.
            with suppress(*((OSError,) if was_there and not _is_within(one, self.root) else ())):
                _sync_folder(os.path.dirname(one))
            self._durable_folders.add(one)

    def _name(self, temporary: str, path: str) -> bool:
        """Gives the temporary file its name unless that exists: a hard link, or a rename that replaces nothing."""
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:  # by this very call, where NFS sent it again as the answer did not come
            return _is_one_file(temporary, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, "neither hard links nor renameat2 are there")
        if libc.renameat2(_AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(path), _RENAME_NOREPLACE) == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.EEXIST:
            return False
        raise OSError(code, f"neither a hard link nor renameat2 without replacing works here: {os.strerror(code)}")

    @contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except OSError as error:
            raise Unavailable(
                f"{doing} {name!r} in {self.uri} failed: {_explain(error, self.root, self._place)}"
            ) from error


def is_file(path: str) -> bool:
    """Whether a file is there, or a link that leads to one.

    Raises
    ------
    OSError
        It cannot be told: the file system does not answer, or does not let this user look.
    """
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _unless_missing(error: OSError) -> None:
    """A folder that cannot be listed is not an empty one; `os.walk` would take it for that. But for the one that a disk
    has at its root for its own repair.
    """
    is_repair = os.path.basename(str(error.filename)) == "lost+found"
    if not is_repair and not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _is_one_file(path: str, other: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(path), os.lstat(other))
    return False


@contextmanager
def _reading(path: str, name: str) -> Iterator[None]:
    """A local file that is to be stored as ``name``: what its disk says is not told as the store's."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, name, error) from error


def _copy(path: str, file: BinaryIO, reading: Reading = nullcontext) -> None:
    with reading():
        source = open(path, "rb", buffering=0)  # noqa: SIM115 (writing is no part of reading)
    with source:
        _copy_open(source, file, reading)


def _copy_open(source: FileIO, file: BinaryIO, reading: Reading) -> None:
    # One buffer for all of it: the system clears the pages of each new one, which takes as long as to fill them.
    buffer = memoryview(bytearray(_COPY_BYTES))
    while True:
        with reading():
            size = source.readinto(buffer)
        if not size:
            return
        _write(file, buffer[:size])  # copyfileobj takes a short write for a whole one: a disk that fills up


def _write(file: BinaryIO, view: memoryview) -> None:
    while view:
        view = view[file.write(view) :]


def _sync_file(path: str) -> bool:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return True


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _explain(error: OSError, root: str, place: Place) -> str:
    text = error.strerror or str(error)
    if isinstance(error.filename, str) and error.filename != root and _is_within(error.filename, root):
        text = f"{os.path.relpath(error.filename, root)}: {text}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            text += f" ({shutil.disk_usage(root).free} bytes are free there)"
        return f"{text}; free space there, or {place.instead('a larger')}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{text}; let this user read and write there, or {place.instead('another')}"
    if error.errno == errno.ENOTDIR:
        return text + "; expected a folder, found a file in the path"
    if error.errno == errno.EISDIR:
        return text + "; expected a file, found a folder"
    return text
