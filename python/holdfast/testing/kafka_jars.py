"""The jars of Apache Kafka, in several releases: each pinned by a file in kafka_locks, fetched by the user's own Maven,
verified, kept in a cache.

Maven is asked for exactly the locked jars, nothing transitive, so its settings (mirrors, proxies, credentials, its own
local repository) are all honoured and no registry is named here. A set of jars becomes visible in the cache by one
rename, after every SHA-256 was checked: a crash leaves a work folder behind, never half a set. Safe for several
processes at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.folders import home_folder

LOCKS = Path(__file__).with_name("kafka_locks")
#: Which release to run where nobody says: for tests of everything against another one. Default: the newest.
VERSION_VARIABLE = "HOLDFAST_KAFKA_VERSION"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_TIMEOUT_S = 600
_STAMP = "VERIFIED.json"


@dataclass(frozen=True)
class Jar:
    """One locked jar: Maven coordinates, size in bytes, SHA-256."""

    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True)
class Lock:
    """What a file in kafka_locks says."""

    kafka_version: str
    jars: tuple[Jar, ...]
    digest: str


def read_lock(path: Path) -> Lock:
    """One committed lock file."""
    text = path.read_bytes()
    content = json.loads(text)
    return Lock(content["kafka"], tuple(Jar(**jar) for jar in content["jars"]), hashlib.sha256(text).hexdigest())


def releases() -> list[str]:
    """The releases that are locked, oldest first."""
    return sorted((path.stem for path in LOCKS.glob("*.json")), key=numbers_of)


def lock_of(version: str | None = None) -> Lock:
    """The newest locked release that begins with ``version``: ``3.9`` may be 3.9.1, and ``4`` the last of 4. None: as
    the environment says, or the newest of all.

    Raises
    ------
    InvalidRequest
        None is locked.
    """
    wanted = version or os.environ.get(VERSION_VARIABLE) or ""
    found = [one for one in releases() if not wanted or f"{one}.".startswith(f"{wanted}.")]
    if not found:
        raise InvalidRequest(f"Kafka {wanted} is not one of the releases that are locked: {', '.join(releases())}")
    return read_lock(LOCKS / f"{found[-1]}.json")


def numbers_of(version: str) -> tuple[int, ...]:
    """A release as numbers, to compare."""
    return tuple(int(part) for part in version.split("."))


def cache_dir() -> Path:
    """``HOLDFAST_CACHE_DIR``, else ``holdfast`` in the user's cache folder.

    Raises
    ------
    Unavailable
        The user has none.
    """
    given = os.environ.get("HOLDFAST_CACHE_DIR")
    if given:
        return Path(given)
    cache, home = os.environ.get("XDG_CACHE_HOME"), home_folder(os.environ)
    if not cache and home is None:
        raise Unavailable(
            "Apache Kafka is kept in the user's cache folder, and this user has no home folder: set HOLDFAST_CACHE_DIR "
            "to a folder that can be written, or HOME"
        )
    return Path(cache or f"{home}/.cache") / "holdfast"


def cached_folder(lock: Lock) -> Path:
    """Where the jars of a release are, once they were fetched."""
    return cache_dir() / f"kafka-{lock.kafka_version}-{lock.digest[:12]}"


def kafka_jars(lock: Lock | None = None) -> list[Path]:
    """Paths of all jars of the locked Kafka, fetched on first use, verified on each.

    Raises
    ------
    Unavailable
        Maven is missing, or could not fetch them.
    Corrupt
        A fetched jar is not the locked one.
    """
    lock = lock or lock_of()
    folder = cached_folder(lock)
    if not _is_verified(folder, lock):
        _fill(folder, lock)
    return [folder / jar.file_name for jar in lock.jars]


def _is_verified(folder: Path, lock: Lock) -> bool:
    """Sizes and times as they were when the checksums were last computed; else the checksums are computed again."""
    try:
        stamp = json.loads((folder / _STAMP).read_text())
        if stamp == _stamp_of(folder, lock):
            return True
        _verify(folder, lock)
    except (OSError, ValueError, Corrupt):
        return False
    _write_stamp(folder, lock)
    return True


def _stamp_of(folder: Path, lock: Lock) -> dict[str, list[int]]:
    stats = ((jar.file_name, (folder / jar.file_name).stat()) for jar in lock.jars)
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats}


def _write_stamp(folder: Path, lock: Lock) -> None:
    work = folder / f"{_STAMP}.{os.getpid()}"
    work.write_text(json.dumps(_stamp_of(folder, lock)))
    os.replace(work, folder / _STAMP)


def _verify(folder: Path, lock: Lock) -> None:
    for jar in lock.jars:
        path = folder / jar.file_name
        size_bytes = path.stat().st_size
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if (size_bytes, found) != (jar.size_bytes, jar.sha256):
            raise Corrupt(
                f"{jar.group}:{jar.artifact}:{jar.version}: expected {jar.size_bytes} bytes with"
                f" SHA-256 {jar.sha256}, found {size_bytes} bytes with {found} in {path}."
                " Delete it from Maven's local repository; if it stays, your mirror serves another file"
            )


def _fill(folder: Path, lock: Lock) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Maven's local repository is not made for two at once, and the second would only fetch the same.
    with (folder.parent / ".fetching.lock").open("a") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not _is_verified(folder, lock):
            _fetch(folder, lock)


def _fetch(folder: Path, lock: Lock) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        pom = work / "pom.xml"
        pom.write_text(_pom(lock.jars))
        jars = work / "jars"
        run_maven(["-f", str(pom), COPY_GOAL, f"-DoutputDirectory={jars}"])
        _verify(jars, lock)
        _write_stamp(jars, lock)
        try:
            os.rename(jars, folder)
        except OSError:
            # Another process was first, or what stands there is damaged: look before it is replaced.
            if not _is_verified(folder, lock):
                os.rename(folder, work / "damaged")
                os.rename(jars, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_maven(arguments: Sequence[str]) -> str:
    """Run the user's Maven quietly and return what it printed; `Unavailable` says why it could not."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(
            "Maven is needed once, to fetch Apache Kafka: `mvn` was not found on PATH. Install Maven, or put it on PATH"
        )
    try:
        done = subprocess.run(
            [maven, "-B", "-q", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"Maven did not fetch Apache Kafka within {MAVEN_TIMEOUT_S} s."
            " Check the network and the mirrors in Maven's settings"
        ) from error
    if done.returncode != 0:
        said = "\n".join(line for line in done.stdout.splitlines() if "ERROR" in line)[:2000]
        raise Unavailable(
            f"Maven could not fetch Apache Kafka (exit {done.returncode}). The first time, it needs a network"
            f" that reaches Maven's registry, or a mirror in its settings; afterwards the jars are in {cache_dir()}."
            f" Maven said:\n{said or done.stdout[-2000:]}"
        )
    return done.stdout


def _pom(jars: Sequence[Jar]) -> str:
    """Each jar as a direct dependency that brings nothing else along."""
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
        for jar in jars
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>holdfast</groupId><artifactId>kafka-broker</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>\n{dependencies}</dependencies></project>\n"
    )
