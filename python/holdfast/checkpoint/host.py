"""Which machine this is, and the file HOST that keeps two machines from sharing one local folder.

Locks and local copies only work between processes of one machine, and local copies that were not synced to disk do not
survive a reboot: each carries the id of the boot that wrote it. Every process holds a shared lock on HOST.lock for as
long as it lives: where another machine's name stands in HOST and nobody holds the lock, that machine is gone (a volume
that moved with its renamed pod), and the folder is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.checkpoint.file_lock import FileLock
from holdfast.errors import Corrupt, HoldfastError, InvalidRequest, Unavailable
from holdfast.sealed import seal, unseal

SETTING = "spark.holdfast.local.dir"
#: Of who reads a checkpoint or a savepoint, in a temporary folder.
READERS_SETTING = "TMPDIR, or temporary= of hf.Checkpoint,"
# File systems of one machine at a time, where a lock that nobody holds says that nobody is there. On others, locks may
# be each machine's own.
_LOCAL_FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"})
_FORMAT = "holdfast.host"
_VERSION = 1


@dataclass(frozen=True)
class Host:
    """This machine since its last boot."""

    name: str
    machine_id: str
    boot_id: str

    @classmethod
    def this(cls) -> Host:
        return cls(socket.gethostname(), _first_line("/etc/machine-id"), _first_line("/proc/sys/kernel/random/boot_id"))

    def owns(self, other: Host) -> bool:
        """Whether ``other`` is this machine, now or before a reboot."""
        if other.boot_id and other.boot_id == self.boot_id:
            return True  # one kernel: also two containers on it
        return (other.name, other.machine_id) == (self.name, self.machine_id)


_held: dict[str, int] = {}  # locks of this process, by local folder


def claim_local_dir(local_dir: str, host: Host, *, private: bool = False) -> None:
    """Makes the local folder if need be and checks that it is this machine's, and writable.

    Parameters
    ----------
    private
        It must be this user's, and nobody else may write there: it stands where every user may make one, and what is in
        it is believed.

    Raises
    ------
    InvalidRequest
        Another machine uses it; or, ``private``, it is another user's.
    Unavailable
        It cannot be made or written.
    """
    path = os.path.join(local_dir, "HOST")
    with local_errors(local_dir):
        os.makedirs(local_dir, mode=0o700, exist_ok=True)
        if private:
            _keep_private(local_dir)
        with _alone(local_dir):
            found = _read(path)
            if found is not None and not host.owns(found) and not _is_left(local_dir):
                raise InvalidRequest(
                    f"{local_dir} is shared by two hosts: this is {host.name!r}, and {path} says that {found.name!r} "
                    f"uses it. Give each host its own {SETTING}, on a disk of its own; if {found.name!r} is gone for "
                    f"good, or was this one's name before, delete the file {path}"
                )
            if found != host:
                _write(path, host)
            _hold(local_dir)
        if not os.access(local_dir, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), local_dir)


def _keep_private(local_dir: str) -> None:
    """A link of this user's own to a folder of its own may be there: on a larger disk."""
    for status in (os.lstat(local_dir), os.stat(local_dir)):
        if status.st_uid != os.getuid():
            raise InvalidRequest(
                f"{local_dir}, the local folder where none is set, is of user {status.st_uid}, and this one is "
                f"{os.getuid()}: what is in it would be taken for this query's state. Set {SETTING} to a folder of "
                f"this user's own on a local disk, or have that one removed"
            )
    if status.st_mode & 0o022:
        os.chmod(local_dir, stat.S_IMODE(status.st_mode) & ~0o022)


@contextmanager
def _alone(local_dir: str) -> Iterator[None]:
    """One claim at a time: who asks whether the folder was left must not meet another who asks,
    or who has just taken it.
    """
    with FileLock(os.path.join(local_dir, "HOST.claim")) as lock:
        with suppress(OSError):  # a file system without locks
            lock.take_alone(wait=True)
        yield


def _hold(local_dir: str) -> None:
    """Says that a process of this machine is here, for as long as it lives."""
    path = _lock_path(local_dir)
    held = _held.get(local_dir)
    if held is not None:
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(held).st_ino:
                return
        os.close(_held.pop(local_dir))  # the folder was cleaned away under this process
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # Somebody who looks whether the folder was left holds it alone for an instant.
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError:  # a file system without locks: HOST alone has to do
        os.close(lock)
        return
    _held[local_dir] = lock


def locks_tell(folder: str) -> bool:
    """Whether a lock in the folder that nobody holds says that nobody is there."""
    return _file_system(folder) in _LOCAL_FILE_SYSTEMS


def _is_left(local_dir: str) -> bool:
    """Whether it is certain that no process uses the folder."""
    if not locks_tell(local_dir):
        return False
    try:
        lock = FileLock(_lock_path(local_dir), flags=0)
    except FileNotFoundError:
        return False  # of an earlier version, which held no lock
    with lock:
        try:
            lock.take_alone()
        except OSError:
            return False
        return True


def _lock_path(local_dir: str) -> str:
    return os.path.join(local_dir, "HOST.lock")


def _file_system(path: str) -> str:
    """The type of the file system that a folder is on, by the kernel's table; empty where it does not say."""
    status = os.stat(path)
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    best = ("", "")  # of several mounts of a device, any tells the type; btrfs gives its folders devices of their own
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mountinfo") as table:
            for line in table:
                before, _, after = line.partition(" - ")
                fields = before.split()
                point = fields[4].encode().decode("unicode_escape")
                if fields[2] == device:
                    return after.split()[0]
                if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
                    best = (point, after.split()[0])
    except (OSError, IndexError, ValueError):
        return ""
    return best[1]


@contextmanager
def local_errors(path: str, setting: str = SETTING) -> Iterator[None]:
    """Turns what the local disk refuses into Unavailable:
    with the path, the bytes that are free and the setting to change.
    """
    try:
        yield
    except HoldfastError:
        raise
    except OSError as error:
        free = "unknown"
        with suppress(OSError):
            free = str(shutil.disk_usage(_existing(path)).free)
        raise Unavailable(
            f"the local folder {path} cannot be used: {error.strerror or error} "
            f"({error.filename or path}; {free} bytes are free there). "
            f"Free space or permit writing there, or set {setting} to another local disk"
        ) from error


def check_room(path: str, size_bytes: int, setting: str = SETTING) -> None:
    """Unavailable unless the local disk has room for so much more: better said before a long download than after it."""
    with local_errors(path, setting):
        if shutil.disk_usage(path).free < size_bytes:
            raise OSError(errno.ENOSPC, f"{size_bytes} bytes are needed")


def _read(path: str) -> Host | None:
    try:
        with open(path, "rb") as file:
            return Host(**unseal(file.read(), _FORMAT, _VERSION, path))
    except (FileNotFoundError, Corrupt, TypeError):
        return None  # torn by a crash: it holds nothing that this machine does not know


def _write(path: str, host: Host) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(seal(_FORMAT, _VERSION, {"name": host.name, "machine_id": host.machine_id, "boot_id": host.boot_id}))
    os.replace(temporary, path)


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def _existing(path: str) -> str:
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    return path or "/"
