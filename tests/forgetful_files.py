"""A file system that forgets what was not synced, as a machine does that loses its power: FUSE, in its own process.

Strict as POSIX lets it be: a file's bytes last once the file was synced, its name once the folder was, a folder's own
name once the one above it was. When the power goes, of all else each name and each file's bytes last or not, by a coin:
also a name whose bytes are gone, and a deletion that did not happen.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mfusepy

_WAIT_S = 240.0
_POLL_S = 0.005
_PR_SET_PDEATHSIG = 1


@dataclass
class Node:
    """A file or a folder: as it is, and as it was when it was last synced."""

    is_folder: bool
    data: bytearray = field(default_factory=bytearray)
    kept_data: bytes = b""
    entries: dict[str, Node] = field(default_factory=dict)
    kept_entries: dict[str, Node] = field(default_factory=dict)
    modified_ns: int = field(default_factory=time.time_ns)
    links: int = 1


class ForgetfulFiles(mfusepy.Operations):
    """What the kernel asks, answered from memory. One call at a time."""

    use_ns = True

    def __init__(self) -> None:
        self._root = Node(is_folder=True)

    def lose_power(self, seed: int) -> None:
        """All that was not synced is kept or forgotten, piece by piece."""
        self._forget(self._root, random.Random(seed))

    def _forget(self, node: Node, draw: random.Random) -> None:
        if not node.is_folder:
            written = bytes(node.data)
            if written != node.kept_data:
                node.data = bytearray(draw.choice((node.kept_data, written, written[: draw.randint(0, len(written))])))
            node.kept_data = bytes(node.data)
            return
        for name in sorted({*node.entries, *node.kept_entries}):
            kept = draw.choice((node.kept_entries, node.entries)).get(name)
            if kept is None:
                node.entries.pop(name, None)
            else:
                node.entries[name] = kept
                self._forget(kept, draw)
        node.kept_entries = dict(node.entries)

    def _find(self, path: str) -> Node:
        node = self._root
        for part in filter(None, path.split("/")):
            if not node.is_folder:
                raise mfusepy.FuseOSError(errno.ENOTDIR)
            if part not in node.entries:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = node.entries[part]
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rpartition("/")
        return self._find(above), name

    def _add(self, path: str, node: Node) -> int:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise mfusepy.FuseOSError(errno.EEXIST)
        parent.entries[name] = node
        return 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._find(path)
        kind = stat.S_IFDIR | 0o777 if node.is_folder else stat.S_IFREG | 0o666
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.modified_ns)
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid()}
        return {"st_mode": kind, "st_size": len(node.data), "st_nlink": node.links, **times, **owner}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *self._find(path).entries]

    def mkdir(self, path: str, mode: int) -> int:
        return self._add(path, Node(is_folder=True))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._add(path, Node(is_folder=False))

    def link(self, target: str, source: str) -> int:
        node = self._find(source)
        self._add(target, node)
        node.links += 1
        return 0

    def unlink(self, path: str) -> int:
        parent, name = self._parent(path)
        self._find(path).links -= 1
        del parent.entries[name]
        return 0

    def rmdir(self, path: str) -> int:
        if self._find(path).entries:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        parent, name = self._parent(path)
        del parent.entries[name]
        return 0

    def rename(self, old: str, new: str) -> int:
        node, (parent, name) = self._find(old), self._parent(old)
        del parent.entries[name]
        target, new_name = self._parent(new)
        target.entries[new_name] = node
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._find(path).data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        node = self._find(path)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + len(data)] = data
        node.modified_ns = time.time_ns()
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        node = self._find(path)
        node.data = bytearray(bytes(node.data[:length]).ljust(length, b"\0"))
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._find(path).modified_ns = times[1] if times else time.time_ns()
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        node = self._find(path)
        node.kept_data = bytes(node.data)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        node = self._find(path)
        node.kept_entries = dict(node.entries)
        return 0


class Machine:
    """The file system under ``folder``, until the power goes, and after it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        command = [sys.executable, "-m", "tests.forgetful_files", str(folder)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self._wait(mounted=True)

    def lose_power(self, seed: int) -> None:
        """Nobody may have a file open here: whoever wrote is dead by now."""
        self._unmount()
        assert self._server.stdin is not None
        print(seed, file=self._server.stdin, flush=True)
        self._wait(mounted=True)

    def close(self) -> None:
        self._unmount()
        assert self._server.stdin is not None
        self._server.stdin.close()
        assert self._server.wait(_WAIT_S) == 0

    def _unmount(self) -> None:
        subprocess.run(["fusermount3", "-u", str(self.folder)], check=True)
        self._wait(mounted=False)

    def _wait(self, *, mounted: bool) -> None:
        end = time.monotonic() + _WAIT_S
        while os.path.ismount(self.folder) is not mounted:
            assert time.monotonic() < end and self._server.poll() is None, f"{self.folder} was not (un)mounted"
            time.sleep(_POLL_S)


def serve(folder: str) -> None:
    """Mounts; a line of standard input is the seed of a loss of power, after which it mounts again. Whoever started
    this takes it along when he dies: nothing stays mounted.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    files = ForgetfulFiles()
    while True:
        mfusepy.FUSE(files, folder, foreground=True, nothreads=True, attr_timeout=0, entry_timeout=0, ac_attr_timeout=0)
        line = sys.stdin.readline()
        if not line:
            return
        files.lose_power(int(line))


if __name__ == "__main__":
    serve(sys.argv[1])
