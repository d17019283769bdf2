"""Finds RocksDB's shared library and loads it, once a process.

By default it comes out of the ``rocksdbjni`` jar that pyspark ships: the same RocksDB that Spark itself runs, and never
two of them in one process. The library is unpacked once to a cache folder named after the jar's SHA-256; any number of
processes may do so at the same time, since a file gets its name only when it is whole.

Places, first one wins: ``HOLDFAST_ROCKSDB_LIBRARY`` (the path of a library), the installed pyspark's ``jars`` folder
(of a pyspark that is a zip, as Spark's own distribution has it, the ``jars`` of that distribution),
``$SPARK_HOME/jars``, and ``__spark_libs__`` in the working directory, where YARN puts Spark's jars. Cache:
``HOLDFAST_CACHE_DIR``, else ``$XDG_CACHE_HOME/holdfast``, else ``~/.cache/holdfast``; where that cannot be written and
does not hold the library yet, or is mounted noexec, so that nothing can be loaded from it, ``holdfast-<uid>`` in the
folder for temporary files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.folders import expanded, home_folder, temporary_folder

LIBRARY_SETTING = "HOLDFAST_ROCKSDB_LIBRARY"
CACHE_SETTING = "HOLDFAST_CACHE_DIR"

_JAR_NAME = re.compile(r"rocksdbjni-(\d+(?:\.\d+)*)[^/]*\.jar")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHITECTURES = {
    "x86_64": "linux64",
    "amd64": "linux64",
    "aarch64": "linux-aarch64",
    "arm64": "linux-aarch64",
    "ppc64le": "linux-ppc64le",
    "s390x": "linux-s390x",
    "riscv64": "linux-riscv64",
}

_load_lock = threading.Lock()
_loaded: RocksDbLibrary | None = None  # guarded by _load_lock


@dataclass(frozen=True)
class RocksDbLibrary:
    """A RocksDB that was found.

    Attributes
    ----------
    path
        The shared library, ready to be loaded.
    version
        RocksDB's version by the name of its jar; None for a library that the user named.
    source
        Where it comes from: the jar, or the setting.
    """

    path: Path
    version: str | None
    source: str


def load() -> RocksDbLibrary:
    """Load RocksDB into this process; no work when it is loaded already.

    Raises
    ------
    Unavailable
        No library was found, or it cannot be loaded; says what was looked for and where.
    """
    from holdfast import _core

    global _loaded
    with _load_lock:
        if _loaded is None:
            library = locate()
            _core.load_rocksdb(str(library.path))
            _loaded = library
        return _loaded


def locate(environment: Mapping[str, str] | None = None) -> RocksDbLibrary:
    """Find the library, and unpack it when it is still in its jar.

    Parameters
    ----------
    environment
        Settings to look at instead of this process's environment variables.

    Raises
    ------
    Unavailable
        No library for this machine was found, or the jar is damaged; says what was looked for and where.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(LIBRARY_SETTING)
    if named:
        path = expanded(named, LIBRARY_SETTING)
        if not path.is_file():
            raise Unavailable(
                f"expected the path of RocksDB's shared library in {LIBRARY_SETTING}, found {named!r}, which is no "
                f"file; correct it, or unset it to use the rocksdbjni jar that pyspark ships"
            )
        if _is_noexec(path):
            raise Unavailable(
                f"the library {path} of {LIBRARY_SETTING} is on a file system that is mounted noexec, from which "
                f"nothing is loaded; name one that is elsewhere, or unset it for the rocksdbjni jar that pyspark ships"
            )
        return RocksDbLibrary(path, None, LIBRARY_SETTING)
    jar, version = _find_jar(environment)
    return RocksDbLibrary(_unpacked(jar, _library_name(), environment), version, str(jar))


@dataclass(frozen=True)
class _Cache:
    """A folder for what is unpacked once."""

    folder: Path
    private: bool  # in a place where other users write too, so that only what is ours alone may be trusted

    def why_unusable(self, for_writing: bool) -> str | None:
        """Why the folder cannot be used; None when it can. Makes it when it is to be written."""
        try:
            if for_writing:
                self.folder.mkdir(mode=0o700 if self.private else 0o755, parents=True, exist_ok=True)
            status = self.folder.lstat()
            if self.private and (
                not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022
            ):
                return "is not this user's alone"
            if _is_noexec(self.folder):
                return "is mounted noexec"
            if for_writing:
                tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            return error.strerror or str(error)
        return None


def _is_noexec(path: Path) -> bool:
    """Whether the file system that ``path`` is on refuses to run or load what it holds."""
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def _caches(environment: Mapping[str, str]) -> list[_Cache]:
    caches = []
    if environment.get(CACHE_SETTING):
        caches.append(_Cache(expanded(environment[CACHE_SETTING], CACHE_SETTING), False))
    elif environment.get("XDG_CACHE_HOME"):
        caches.append(_Cache(Path(environment["XDG_CACHE_HOME"]).absolute() / "holdfast", False))
    elif home := home_folder(environment):
        caches.append(_Cache(home / ".cache" / "holdfast", False))
    with suppress(Unavailable):  # a cache before it may do
        temporary = Path(environment.get("TMPDIR") or temporary_folder()).absolute()
        caches.append(_Cache(temporary / f"holdfast-{os.getuid()}", True))
    return caches


def _writable(caches: list[_Cache]) -> Path:
    refused = []
    for cache in caches:
        reason = cache.why_unusable(for_writing=True)
        if reason is None:
            return cache.folder
        refused.append(f"{cache.folder} ({reason})")
    tried = ", ".join(refused) or "no folder, as this user has neither a home nor one for temporary files"
    raise Unavailable(
        f"RocksDB can be unpacked nowhere: tried {tried}; set {CACHE_SETTING} to a folder that can be "
        f"written and is not mounted noexec, or {LIBRARY_SETTING} to a library that is unpacked already"
    )


def _find_jar(environment: Mapping[str, str]) -> tuple[Path, str]:
    """The rocksdbjni jar with the highest version in the first folder that has one."""
    looked: list[str] = []
    for name, folder in _jar_folders(environment):
        if folder is None:
            looked.append(f"{name} (not there)")
            continue
        found = [(match[1], jar) for jar in folder.glob("rocksdbjni-*.jar") if (match := _JAR_NAME.fullmatch(jar.name))]
        if found:
            version, jar = max(found, key=lambda entry: [int(part) for part in entry[0].split(".")])
            return jar, version
        looked.append(f"{name} ({folder}: {'no such jar in it' if folder.is_dir() else 'no such folder'})")
    raise Unavailable(
        f"RocksDB was not found. Looked for rocksdbjni-*.jar in {', and '.join(looked)}. Install pyspark>=4.0,<5 (not "
        f"pyspark-client, which ships no jars), or set SPARK_HOME, or set {LIBRARY_SETTING} to a librocksdbjni's path"
    )


def _jar_folders(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    pyspark = importlib.util.find_spec("pyspark")  # found, not imported: this must stay cheap
    locations = (pyspark.submodule_search_locations if pyspark is not None else None) or []
    installed = Path(next(iter(locations))) if locations else None
    yield "the installed pyspark", installed / "jars" if installed else None
    # <home>/python/lib/pyspark.zip/pyspark: executors are given the zip on PYTHONPATH, and often no SPARK_HOME.
    if installed is not None and installed.parent.suffix == ".zip" and installed.parent.parent.name == "lib":
        yield "the distribution of pyspark.zip", installed.parent.parent.parent.parent / "jars"
    home = environment.get("SPARK_HOME")
    yield "SPARK_HOME", Path(home) / "jars" if home else None
    on_yarn = Path("__spark_libs__")
    if on_yarn.is_dir():
        yield "YARN's __spark_libs__", on_yarn.absolute()


def _library_name() -> str:
    """The name in the jar of the library for this machine."""
    machine = platform.machine().lower()
    architecture = _ARCHITECTURES.get(machine)
    if not sys.platform.startswith("linux") or architecture is None or sys.maxsize < 2**32:
        raise Unavailable(
            f"expected 64-bit Linux on one of {', '.join(_ARCHITECTURES)}, found {sys.platform} on {machine}; "
            f"set {LIBRARY_SETTING} to a librocksdbjni for this machine"
        )
    return f"librocksdbjni-{architecture}{'-musl' if _is_musl() else ''}.so"


def _is_musl() -> bool:
    try:
        return not os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return True


def _unpacked(jar: Path, name: str, environment: Mapping[str, str]) -> Path:
    """The path of the jar's library in a cache, unpacked if it is not there whole."""
    caches = _caches(environment)
    readable = [cache.folder for cache in caches if cache.why_unusable(for_writing=False) is None]
    with _damage_named(jar), zipfile.ZipFile(jar) as archive:
        try:
            member = archive.getinfo(name)
        except KeyError:
            others = sorted(entry for entry in archive.namelist() if entry.startswith("librocksdbjni-"))
            raise Unavailable(
                f"the jar {jar} has no {name}, which this machine needs; it has {', '.join(others) or 'no library'}; "
                f"set {LIBRARY_SETTING} to a librocksdbjni for this machine"
            ) from None
        note = _note_name(jar)
        noted = _noted(note, readable)
        sha256 = noted or _sha256_of(jar)
        whole = (folder / "rocksdb" / sha256 / name for folder in readable)
        library = next((path for path in whole if path.is_file() and path.stat().st_size == member.file_size), None)
        if library is None:
            library = _writable(caches) / "rocksdb" / sha256 / name
            with _whole_file(library) as unfinished, archive.open(member) as packed, open(unfinished, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)  # zipfile checks the CRC at the end
    if noted is None:
        with suppress(OSError), _whole_file(library.parent.parent / note) as unfinished:
            unfinished.write_text(sha256 + "\n", encoding="ascii")
    return library


@contextmanager
def _damage_named(jar: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise Unavailable(f"the jar {jar} is damaged ({error}); install pyspark again") from error
    except OSError as error:
        raise Unavailable(f"RocksDB could not be unpacked from {jar}: {error}") from error


def _note_name(jar: Path) -> str:
    """Name of the file that notes the jar's SHA-256: the jar is 70 MB, too much to hash at each start of a process."""
    status = jar.stat()
    identity = f"{jar.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    return f"jar-{hashlib.sha256(identity.encode()).hexdigest()[:32]}.sha256"


def _noted(note: str, folders: list[Path]) -> str | None:
    for folder in folders:
        try:
            noted = (folder / "rocksdb" / note).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if _SHA256.fullmatch(noted):
            return noted
    return None


def _sha256_of(jar: Path) -> str:
    digest = hashlib.sha256()
    with open(jar, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A name of its own to write under; the file moves to ``path`` when it is whole and on disk, or vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(unfinished)
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
