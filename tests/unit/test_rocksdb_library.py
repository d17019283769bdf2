"""Finding RocksDB's library: where it is looked for, unpacked once, and what is said when it is not there."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from holdfast import rocksdb_library
from holdfast.errors import Unavailable

NAME = rocksdb_library._library_name()
CONTENT = b"\x7fELF, or so it says " * 5000


def _make_jar(jar: Path, members: dict[str, bytes]) -> Path:
    jar.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return jar


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where pyspark is not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def environment(tmp_path: Path, no_pyspark: None) -> dict[str, str]:
    """A Spark of its own with a small jar, and a cache of its own."""
    return _environment(tmp_path)


def _environment(folder: Path) -> dict[str, str]:
    _make_jar(folder / "spark" / "jars" / "rocksdbjni-9.8.4.jar", {NAME: CONTENT, "librocksdbjni-other.so": b"other"})
    return {"SPARK_HOME": str(folder / "spark"), "HOLDFAST_CACHE_DIR": str(folder / "cache")}


def _jar(environment: dict[str, str]) -> Path:
    return Path(environment["SPARK_HOME"]) / "jars" / "rocksdbjni-9.8.4.jar"


def test_the_jar_of_the_installed_pyspark_is_used(tmp_path: Path) -> None:
    found = rocksdb_library.locate({"HOLDFAST_CACHE_DIR": str(tmp_path), "SPARK_HOME": "/nowhere"})
    assert found.version is not None
    assert found.version.split(".")[0].isdigit()
    assert "pyspark" in found.source
    assert found.path.is_relative_to(tmp_path)
    assert found.path.read_bytes()[:4] == b"\x7fELF"
    assert found.path.parent.name == hashlib.sha256(Path(found.source).read_bytes()).hexdigest()


def test_spark_home_is_used_where_no_pyspark_is_installed(environment: dict[str, str]) -> None:
    found = rocksdb_library.locate(environment)
    assert (found.version, found.source) == ("9.8.4", str(_jar(environment)))
    assert found.path.read_bytes() == CONTENT


def test_the_library_that_the_user_names_wins(environment: dict[str, str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.so"
    mine.write_bytes(b"mine")
    found = rocksdb_library.locate({**environment, "HOLDFAST_ROCKSDB_LIBRARY": str(mine)})
    assert (found.path, found.version, found.source) == (mine, None, "HOLDFAST_ROCKSDB_LIBRARY")
    assert not (tmp_path / "cache").exists()


def test_a_named_library_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"HOLDFAST_ROCKSDB_LIBRARY, found '.*/missing\.so', which is no file"):
        rocksdb_library.locate({"HOLDFAST_ROCKSDB_LIBRARY": str(tmp_path / "missing.so")})


def test_the_highest_version_of_several_jars_is_used(environment: dict[str, str]) -> None:
    for version in ("9.10.0", "9.9.3", "8.11.4"):
        _make_jar(_jar(environment).with_name(f"rocksdbjni-{version}.jar"), {NAME: version.encode()})
    found = rocksdb_library.locate(environment)
    assert (found.version, found.path.read_bytes()) == ("9.10.0", b"9.10.0")


def test_it_is_unpacked_once(environment: dict[str, str]) -> None:
    first = rocksdb_library.locate(environment)
    unpacked = first.path.stat()
    assert rocksdb_library.locate(environment) == first
    assert first.path.stat().st_ino == unpacked.st_ino
    assert sorted(path.name for path in first.path.parent.iterdir()) == [NAME], "no temporary file is left"


def test_the_jar_is_hashed_once(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    rocksdb_library.locate(environment)
    monkeypatch.setattr(rocksdb_library, "_sha256_of", lambda jar: pytest.fail("hashed again"))
    rocksdb_library.locate(environment)


def test_another_jar_under_the_same_name_is_unpacked_anew(environment: dict[str, str]) -> None:
    before = rocksdb_library.locate(environment)
    _make_jar(_jar(environment), {NAME: b"a newer build"})
    after = rocksdb_library.locate(environment)
    assert after.path.read_bytes() == b"a newer build"
    assert before.path.read_bytes() == CONTENT, "a process may still have it loaded"


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1]])
def test_a_library_that_is_not_whole_is_unpacked_again(environment: dict[str, str], damaged: bytes) -> None:
    library = rocksdb_library.locate(environment).path
    library.write_bytes(damaged)
    assert rocksdb_library.locate(environment).path.read_bytes() == CONTENT


def test_a_note_that_is_damaged_is_not_believed(environment: dict[str, str]) -> None:
    first = rocksdb_library.locate(environment)
    [note] = first.path.parent.parent.glob("*.sha256")
    note.write_bytes(b"\xff../../elsewhere")
    assert rocksdb_library.locate(environment) == first


def test_a_pyspark_that_is_a_zip_has_its_jars_beside_it(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on executors, which have the zip on PYTHONPATH and no SPARK_HOME."""
    packed = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    packed.parent.mkdir(parents=True)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
    expected = str(_jar(environment))
    del environment["SPARK_HOME"]
    spec = PathFinder.find_spec("pyspark", [str(packed)])
    assert spec is not None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert rocksdb_library.locate(environment).source == expected


def test_yarn_keeps_sparks_jars_in_a_folder_of_its_own(
    no_pyspark: None, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.rename(Path(environment.pop("SPARK_HOME")) / "jars", tmp_path / "__spark_libs__")
    monkeypatch.chdir(tmp_path)
    found = rocksdb_library.locate(environment)
    assert found.source == str(tmp_path / "__spark_libs__" / "rocksdbjni-9.8.4.jar")


def test_a_missing_jar_says_where_it_was_looked_for(no_pyspark: None, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    looked = "installed pyspark.*not there.*SPARK_HOME.*no such jar.*Install pyspark"
    with pytest.raises(Unavailable, match=looked) as no_jar:
        rocksdb_library.locate({"SPARK_HOME": str(tmp_path)})
    assert str(tmp_path / "jars") in str(no_jar.value)
    with pytest.raises(Unavailable, match="SPARK_HOME .not there."):
        rocksdb_library.locate({})
    with pytest.raises(Unavailable, match="no such folder"):
        rocksdb_library.locate({"SPARK_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("damage", ["cut", "flipped", "no zip"])
def test_a_damaged_jar_is_said_and_leaves_nothing(environment: dict[str, str], damage: str) -> None:
    jar = _jar(environment)
    content = bytearray(jar.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "flipped":
        content[60] ^= 0xFF  # within the packed library
    else:
        content[:] = b"<html>not found</html>"
    jar.write_bytes(content)
    with pytest.raises(Unavailable, match=r"rocksdbjni-9\.8\.4\.jar is damaged .*install pyspark again"):
        rocksdb_library.locate(environment)
    assert not [path for path in Path(environment["HOLDFAST_CACHE_DIR"]).rglob("*") if path.is_file()]


def test_a_jar_without_this_machines_library_says_what_it_has(environment: dict[str, str]) -> None:
    _make_jar(_jar(environment), {"librocksdbjni-osx-arm64.jnilib": b"", "librocksdbjni-win64.dll": b""})
    with pytest.raises(Unavailable, match=f"has no {NAME}.*librocksdbjni-osx-arm64.jnilib, librocksdbjni-win64.dll"):
        rocksdb_library.locate(environment)


@pytest.mark.parametrize(
    ("machine", "musl", "name"),
    [
        ("x86_64", False, "librocksdbjni-linux64.so"),
        ("x86_64", True, "librocksdbjni-linux64-musl.so"),
        ("aarch64", False, "librocksdbjni-linux-aarch64.so"),
        ("arm64", True, "librocksdbjni-linux-aarch64-musl.so"),
        ("ppc64le", False, "librocksdbjni-linux-ppc64le.so"),
    ],
)
def test_each_machine_has_its_library(monkeypatch: pytest.MonkeyPatch, machine: str, musl: bool, name: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(os, "confstr", lambda key: None if musl else "glibc 2.36")
    assert rocksdb_library._library_name() == name


def test_a_machine_that_rocksdb_has_no_library_for_is_said(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "mips")
    with pytest.raises(Unavailable, match="expected 64-bit Linux on one of x86_64.*found linux on mips"):
        rocksdb_library.locate(environment)


def test_a_cache_that_cannot_be_written_gives_way_to_the_temporary_folder(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("in the way")
    environment |= {"HOLDFAST_CACHE_DIR": str(tmp_path / "a file" / "cache"), "TMPDIR": str(tmp_path / "temporary")}
    library = rocksdb_library.locate(environment).path
    private = tmp_path / "temporary" / f"holdfast-{os.getuid()}"
    assert library.is_relative_to(private)
    assert private.stat().st_mode & 0o777 == 0o700
    assert rocksdb_library.locate(environment).path == library


@pytest.fixture
def noexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a file system that says of itself that it is mounted noexec."""
    folder, statvfs = tmp_path / "noexec", os.statvfs
    folder.mkdir()

    def of_noexec(path: Path) -> os.statvfs_result:
        found = list(statvfs(path))
        if path.is_relative_to(folder):
            found[8] |= os.ST_NOEXEC  # f_flag
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", of_noexec)
    return folder


def test_a_cache_that_is_mounted_noexec_gives_way_to_the_temporary_folder(
    environment: dict[str, str], noexec: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    environment |= {"HOLDFAST_CACHE_DIR": str(noexec / "cache"), "TMPDIR": str(temporary)}
    assert rocksdb_library.locate(environment).path.is_relative_to(temporary / f"holdfast-{os.getuid()}")


def test_where_all_caches_are_mounted_noexec_that_is_said(environment: dict[str, str], noexec: Path) -> None:
    """What the loader says then, of a segment that it cannot map, sent users to look for another library."""
    with pytest.raises(Unavailable) as caught:
        rocksdb_library.locate({**environment, "HOLDFAST_CACHE_DIR": str(noexec / "cache"), "TMPDIR": str(noexec)})
    said = str(caught.value)
    assert f"{noexec}/cache (is mounted noexec)" in said
    assert f"{noexec}/holdfast-{os.getuid()} (is mounted noexec)" in said
    assert "set HOLDFAST_CACHE_DIR to a folder that can be written and is not mounted noexec" in said


def test_a_named_library_that_is_mounted_noexec_is_said(noexec: Path) -> None:
    named = noexec / "librocksdbjni.so"
    named.write_bytes(b"a library")
    says = "noexec/librocksdbjni.so of HOLDFAST_ROCKSDB_LIBRARY is on a file system that is mounted noexec"
    with pytest.raises(Unavailable, match=says):
        rocksdb_library.locate({"HOLDFAST_ROCKSDB_LIBRARY": str(named)})


def test_what_a_file_system_that_is_mounted_noexec_says_of_itself(tmp_path: Path) -> None:
    """Where this user may mount one: loading goes by it."""
    folder, temporary = tmp_path / "noexec", tmp_path / "temporary"
    folder.mkdir()
    code = "from holdfast import rocksdb_library as r; print(r.load().path)"
    mounted = ["sh", "-c", 'mount -t tmpfs -o noexec none "$0" && exec "$@"', str(folder), sys.executable, "-c", code]
    try:
        ran = subprocess.run(
            ["unshare", "--map-root-user", "--mount", *mounted],
            env={**os.environ, "HOLDFAST_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip("this user may mount nothing")
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()).is_relative_to(temporary / "holdfast-0"), "of the user that unshare makes"


def test_without_a_folder_for_temporary_files_the_cache_does(
    environment: dict[str, str], tmp_path: Path, no_temporary_folder: None
) -> None:
    found = rocksdb_library.locate(environment)
    assert found.path.is_relative_to(tmp_path / "cache")
    assert rocksdb_library.locate(environment) == found
    (tmp_path / "a file").write_text("in the way")
    with pytest.raises(Unavailable, match="a file/cache.*set HOLDFAST_CACHE_DIR"):
        rocksdb_library.locate(environment | {"HOLDFAST_CACHE_DIR": str(tmp_path / "a file" / "cache")})


def test_a_user_without_a_home_has_no_cache_there(
    environment: dict[str, str], tmp_path: Path, no_home: None, no_temporary_folder: None
) -> None:
    with pytest.raises(Unavailable, match="neither a home nor .*set HOLDFAST_CACHE_DIR"):
        rocksdb_library.locate({"SPARK_HOME": environment["SPARK_HOME"]})
    with pytest.raises(Unavailable, match="HOLDFAST_CACHE_DIR is '~/cache', and no such home"):
        rocksdb_library.locate(environment | {"HOLDFAST_CACHE_DIR": "~/cache"})
    with pytest.raises(Unavailable, match="HOLDFAST_ROCKSDB_LIBRARY is '~/rocksdb.so', and no such home"):
        rocksdb_library.locate(environment | {"HOLDFAST_ROCKSDB_LIBRARY": "~/rocksdb.so"})


def test_a_temporary_folder_that_others_may_write_to_is_not_trusted(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("in the way")
    environment |= {"HOLDFAST_CACHE_DIR": str(tmp_path / "a file" / "cache"), "TMPDIR": str(tmp_path)}
    private = tmp_path / f"holdfast-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    with pytest.raises(Unavailable, match="not this user's alone.*set HOLDFAST_CACHE_DIR"):
        rocksdb_library.locate(environment)
    private.rmdir()
    private.symlink_to(tmp_path / "cache", target_is_directory=True)
    with pytest.raises(Unavailable, match="set HOLDFAST_CACHE_DIR"):
        rocksdb_library.locate(environment)


def test_a_cache_that_can_only_be_read_is_used_when_it_has_the_library(unprivileged: Path, no_pyspark: None) -> None:
    environment = _environment(unprivileged)
    first = rocksdb_library.locate(environment)
    folders = [Path(environment["HOLDFAST_CACHE_DIR"]), first.path.parent.parent, first.path.parent]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert rocksdb_library.locate(environment) == first
        with pytest.raises(PermissionError):
            (folders[0] / "made").touch()
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOLDFAST_CACHE_DIR": "{}/mine"}, "mine"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/holdfast"),
        ({"HOME": "{}/home"}, "home/.cache/holdfast"),
    ],
)
def test_the_cache_is_where_such_things_belong(
    environment: dict[str, str], tmp_path: Path, variables: dict[str, str], folder: str
) -> None:
    places = {name: value.format(tmp_path) for name, value in variables.items()}
    found = rocksdb_library.locate({"SPARK_HOME": environment["SPARK_HOME"], **places})
    assert found.path.parent.parent == tmp_path / folder / "rocksdb"


@pytest.mark.long
def test_processes_that_unpack_at_the_same_time_all_find_it_whole(tmp_path: Path) -> None:
    # Against the real jar: unpacking takes long enough that they meet.
    code = (
        "import sys; from pathlib import Path; from holdfast import rocksdb_library as r\n"
        "sys.stdin.read()\n"
        "path = r.load().path\n"
        "print(path, path.stat().st_size)"
    )
    environment = {**os.environ, "HOLDFAST_CACHE_DIR": str(tmp_path)}
    environment.pop("HOLDFAST_ROCKSDB_LIBRARY", None)
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()  # go
    printed = []
    for process in processes:
        assert process.stdout is not None
        with process.stdout:
            printed.append(process.stdout.read())
        assert process.wait(timeout=120) == 0
    assert len(set(printed)) == 1
    assert [path.name for path in tmp_path.rglob("*.so*")] == [NAME]


def _loading(**variables: str) -> subprocess.CompletedProcess[str]:
    code = "from holdfast import rocksdb_library as r, errors\ntry: r.load()\nexcept errors.Unavailable as e: print(e)"
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.long
def test_a_library_of_another_machine_says_why_it_cannot_be_loaded(tmp_path: Path) -> None:
    fake = tmp_path / "librocksdbjni-linux-s390x.so"
    fake.write_bytes(b"\x7fELF\x02\x02\x01" + bytes(500))  # big-endian
    said = _loading(HOLDFAST_ROCKSDB_LIBRARY=str(fake))
    assert said.returncode == 0, said.stderr
    assert f"cannot be loaded from {fake}: " in said.stdout
    assert "architecture and libc" in said.stdout


@pytest.mark.long
def test_a_library_that_is_not_rocksdb_says_what_is_missing() -> None:
    import _ctypes

    said = _loading(HOLDFAST_ROCKSDB_LIBRARY=_ctypes.__file__)
    assert said.returncode == 0, said.stderr
    assert "has no rocksdb_" in said.stdout
    assert "RocksDB 9.8 or later" in said.stdout


def test_loading_twice_is_loading_once() -> None:
    assert rocksdb_library.load() is rocksdb_library.load()
