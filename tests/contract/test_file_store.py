"""What every FileStore owes, whichever it is."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.contract.remote_stores import one_of_many
from tests.faulty_file_store import FaultyFileStore

import holdfast as hf
from holdfast.errors import InternalError, InvalidRequest, Unavailable
from holdfast.storage import (
    CHECKPOINT,
    SAVEPOINT,
    LocalFileStore,
    StorageOptions,
    StoredFile,
    open_file_store,
    run_parallel,
)
from holdfast.storage.answers import told
from holdfast.storage.file_store import TEMPORARY_PREFIX
from holdfast.storage.uri import shown

# Tests with its server are `long`, and these do not ask for it by name.
S3 = pytest.param("s3", marks=pytest.mark.long)


@pytest.fixture(params=["local", "file-uri", "faulty", S3, "azure", pytest.param("hdfs", marks=pytest.mark.spark)])
def store(request, tmp_path):
    root = tmp_path / "store with spaces"
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        return open_file_store(f"s3://{server.bucket()}/store with spaces", StorageOptions(endpoint=server.url))
    if request.param == "local":
        return open_file_store(str(root))
    if request.param == "azure":
        server = request.getfixturevalue("azure")
        return open_file_store(f"az://{server.container()}/store with spaces", StorageOptions(endpoint=server.url))
    if request.param == "hdfs":
        server = request.getfixturevalue("hdfs")
        return open_file_store(f"hdfs://{server.address}{server.folder()}/a b", StorageOptions(endpoint=server.url))
    if request.param == "file-uri":
        return open_file_store("file://" + str(root).replace(" ", "%20"))
    return FaultyFileStore(LocalFileStore(str(root)))


def test_a_file_comes_back_as_it_was_put(store):
    store.put("a/b/c.bin", b"\x00\xffbytes")
    assert store.get("a/b/c.bin") == b"\x00\xffbytes"


@pytest.mark.parametrize("data", [b"", bytearray(b"x"), memoryview(b"xyz")[1:], pa.py_buffer(b"arrow")])
def test_all_kinds_of_bytes_are_taken(store, data):
    store.put("file", data)
    assert store.get("file") == bytes(memoryview(data))


def test_a_missing_file_is_none_not_an_error(store, tmp_path):
    assert store.get("no/such/file") is None
    target = tmp_path / "target"
    assert store.fetch("no/such/file", str(target)) is False
    assert not target.exists()


def test_what_is_below_a_file_is_missing_too(store):
    store.put("file", b"x")
    assert store.get("file/below") is None


def test_a_name_is_written_once(store):
    store.put("name", b"first")
    with pytest.raises(InternalError, match="name exists already"):
        store.put("name", b"second")
    assert store.get("name") == b"first"


def test_a_file_is_uploaded_and_downloaded(store, tmp_path):
    content = os.urandom(5 << 20)
    (tmp_path / "source").write_bytes(content)
    store.put_file("x/large", str(tmp_path / "source"))
    assert store.fetch("x/large", str(tmp_path / "target")) is True
    assert (tmp_path / "target").read_bytes() == content
    with pytest.raises(InternalError, match="exists already"):
        store.put_file("x/large", str(tmp_path / "source"))


def test_a_file_that_was_written_where_the_store_is_is_taken(store):
    root = store.local_path("x")
    if root is None:
        return  # the store is elsewhere
    root = os.path.dirname(root)
    os.makedirs(root, exist_ok=True)
    for content in (b"first", b"second"):
        draft = os.path.join(root, f"{TEMPORARY_PREFIX}{content.decode()}")
        with open(draft, "wb") as file:
            file.write(content)
        if content == b"first":
            assert [file.name for file in store.list("")] == [], "what is being written is seen"
            store.put_file("folder/name", draft)
        else:
            with pytest.raises(InternalError, match="exists already"):
                store.put_file("folder/name", draft)
        assert not os.path.exists(draft)
    assert store.get("folder/name") == b"first"


def test_a_copy_says_what_it_met(store):
    assert store.copy_if_absent("staged/file", "final/file") is None
    assert store.get("final/file") is None
    store.put("staged/file", b"first")
    assert store.copy_if_absent("staged/file", "final/file") is True
    store.delete(["staged/file"])
    assert store.get("final/file") == b"first"
    store.put("staged/file", b"second")
    assert store.copy_if_absent("staged/file", "final/file") is False
    assert store.get("final/file") == b"first"
    store.delete(["staged/file"])
    assert store.copy_if_absent("staged/file", "final/file") is False


@pytest.fixture(params=["local", S3, "azure", "faulty", "same"])
def other(request, store, tmp_path):
    """Another store, from which files are copied; "same": of the same file system, or in the same bucket."""
    root = tmp_path / "other % ü store"
    if request.param == "same":
        where = getattr(store, "_bucket", None)
        if where is not None:
            return open_file_store(replace(where, prefix="other % ü store").uri, store._options)
        return LocalFileStore(str(root))
    if request.param == "local":
        return LocalFileStore(str(root))
    if request.param == "faulty":
        return FaultyFileStore(LocalFileStore(str(root)), remote=True)
    server = request.getfixturevalue(request.param)
    if request.param == "s3":
        return open_file_store(f"s3://{server.bucket()}", StorageOptions(endpoint=server.url))
    return open_file_store(f"az://{server.container()}/x", StorageOptions(endpoint=server.url))


def test_a_copy_from_another_store_is_a_file_of_its_own(store, other):
    name, target = "of/%C3%BC a/file", "made/%C3%BC a/file"
    assert store.copy_if_absent(name, target, other) is None
    assert store.get(target) is None and store.list("") == []
    content = os.urandom(100_000)
    other.put(name, content)
    assert store.copy_if_absent(name, target, other) is True
    assert store.get(target) == content
    other.delete([name])
    other.put(name, b"of another day")
    assert store.copy_if_absent(name, target, other) is False
    assert store.get(target) == content
    other.delete([name])
    assert store.copy_if_absent(name, target, other) is False
    assert [file.name for file in store.list("")] == [target]


def test_a_copy_into_a_folder_that_somebody_deleted_is_made(store):
    """A store that knew the folder took the missing folder for a missing file, and said that there was none."""
    store.put("staged/file", b"bytes")
    assert store.copy_if_absent("staged/file", "final/first") is True
    path = store.local_path("final/first")
    if path is not None:
        shutil.rmtree(os.path.dirname(path))
    assert store.copy_if_absent("staged/file", "final/second") is True
    assert store.get("final/second") == b"bytes"


def test_create_if_absent_says_who_was_first(store):
    assert store.create_if_absent("record", b"first") is True
    assert store.create_if_absent("record", b"second") is False
    assert store.get("record") == b"first"


def test_of_many_that_create_one_wins_and_all_see_its_bytes(store):
    won = one_of_many(store, 8)
    assert store.get("record") == won


def test_list_gives_names_sizes_and_times_in_order(store):
    before_ms = time.time() * 1000 - 60_000
    for name in ("slot-1/b", "slot-1/a", "slot-1/deep/c", "slot-10/a", "other"):
        store.put(name, name.encode())
    found = store.list("slot-1/")
    assert [file.name for file in found] == ["slot-1/a", "slot-1/b", "slot-1/deep/c"]
    assert [file.size_bytes for file in found] == [8, 8, 13]
    assert all(before_ms < file.modified_ms < time.time() * 1000 + 60_000 for file in found)
    assert [file.name for file in store.list("slot-1")] == ["slot-1/a", "slot-1/b", "slot-1/deep/c", "slot-10/a"]
    assert len(store.list("")) == 5


def test_list_of_nothing_is_empty(store):
    assert store.list("no/such/") == []


def test_names_are_of_one_folder_and_in_order(store):
    assert store.names("") == []
    for name in ("b", "a", "slot-1/b", "slot-1/a", "slot-1/deep/c", "slot-10/a"):
        store.put(name, b"")
    assert store.names("") == ["a", "b"]
    assert store.names("slot-1/") == ["slot-1/a", "slot-1/b"]
    assert store.names("no/such/") == store.names("a/") == []
    for wrong in ("slot-1", "/", "../"):
        with pytest.raises(InvalidRequest, match="is not a"):
            store.names(wrong)


def test_names_between_two(store):
    for name in ("0", "1-a", "1-b", "2-a", "2/x", "9", "_log/1", "_log/2", "_log/3", "x"):
        store.put(name, b"")
    assert store.names("", after="1-a") == ["1-b", "2-a", "9", "x"], "what is named is left out"
    assert store.names("", after="1.") == ["2-a", "9", "x"], "it need not be there"
    assert store.names("", before=":") == ["0", "1-a", "1-b", "2-a", "9"]
    assert store.names("", "1-a", "9") == ["1-b", "2-a"]
    assert store.names("", "9", "1-a") == store.names("", after="x") == store.names("", before="0") == []
    assert store.names("_log/", after="_log/1") == ["_log/2", "_log/3"]
    assert store.names("_log/", before="_log/3") == ["_log/1", "_log/2"]
    assert store.names("no/such/", after="no/such/a") == []


def test_deleted_files_are_gone_and_missing_names_are_no_error(store):
    store.put("a", b"1")
    store.put("b", b"2")
    store.delete(["a", "missing", "no/such"])
    assert store.get("a") is None
    assert store.get("b") == b"2"


@pytest.mark.parametrize(
    "name", ["", "/absolute", "a//b", "a/", "../up", "a/./b", "a/../b", ".tmp-x", "a/.tmp-x", "nul\0"]
)
def test_names_that_leave_the_store_are_refused(store, name):
    for act in (lambda: store.put(name, b""), lambda: store.get(name), lambda: store.delete([name])):
        with pytest.raises(InvalidRequest, match="not a name of a stored file"):
            act()


def test_awkward_names_are_kept_apart(store):
    names = [
        "per%2Fcent/x",
        "per/cent/x",
        "sp ace",
        "ünïcode",
        "a.b",
        "slot-00001/delta/000000000001-" + "a" * 32 + ".arrow",
    ]
    for name in names:
        store.put(name, name.encode())
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    assert sorted(names) == sorted(file.name for file in store.list(""))


def test_many_threads_may_use_it(store):
    run_parallel([partial(store.put, f"folder-{i % 7}/{i}", b"%d" % i) for i in range(100)], 8)
    assert len(store.list("folder-")) == 100


# --- the store in a folder alone -------------------------------------------------------------------------------------


def test_a_write_that_was_cut_short_is_never_seen_and_can_be_swept(tmp_path):
    inner = LocalFileStore(str(tmp_path))
    store = FaultyFileStore(inner, fail_at=[1])
    with pytest.raises(Unavailable, match="the test wanted it to"):
        store.put("folder/file", b"whole")
    assert store.get("folder/file") is None
    assert store.list("") == [] and store.names("folder/") == []
    assert len(os.listdir(tmp_path / "folder")) == 1
    store.put("folder/file", b"whole")  # the name is still free
    now_ms = int(time.time() * 1000)
    assert store.sweep("folder/", now_ms - 60_000) == 0  # somebody may still be writing it
    assert store.sweep("folder/", now_ms + 60_000) == 1
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_nothing_temporary_stays_after_writes_and_refusals(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("file", b"1")
    with pytest.raises(InternalError):
        store.put("file", b"2")
    with pytest.raises(Unavailable):
        store.put_file("other", str(tmp_path / "missing"))
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_system_without_hard_links_is_served_by_a_rename_that_replaces_nothing(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    store = LocalFileStore(str(tmp_path))
    assert store.create_if_absent("file", b"first") is True
    assert store.create_if_absent("file", b"second") is False
    monkeypatch.setattr(os.path, "lexists", lambda _: False)  # as when both looked before either wrote
    assert store.create_if_absent("file", b"third") is False
    assert store.get("file") == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_lost_race_is_told_even_when_both_looked_first(tmp_path, monkeypatch):
    store = LocalFileStore(str(tmp_path))
    store.put("file", b"first")
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    assert store.create_if_absent("file", b"second") is False
    assert store.get("file") == b"first"


def test_a_folder_that_may_not_be_written_names_the_setting(unprivileged):
    unprivileged.chmod(0o500)
    with pytest.raises(Unavailable, match=r"Permission denied.*spark\.holdfast\.checkpoint\.dir"):
        LocalFileStore(str(unprivileged)).put("a/b", b"")


def test_a_full_disk_is_named_with_what_is_free_and_the_setting(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match=r"No space left.*bytes are free.*spark\.holdfast\.checkpoint\.dir"):
        LocalFileStore(str(tmp_path)).put("file", b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "setting", "comes_along"),
    [
        (lambda path: hf.FileSink(path, name="files")._store(), "FileSink's path", True),
        (lambda path: open_file_store(path, place=CHECKPOINT), "the query's checkpoint=", True),
        (lambda path: open_file_store(path, place=SAVEPOINT), "the savepoint's folder", False),
        (open_file_store, "spark.holdfast.checkpoint.dir", True),
    ],
)
def test_a_folder_that_refuses_is_told_by_the_setting_that_is_its_own(
    unprivileged, monkeypatch, make, setting, comes_along
):
    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(Unavailable) as told:
        patched.setattr(os, "fsync", full)
        make(str(unprivileged)).put("file", b"")
    assert f"or set {setting} to a larger place" in str(told.value)
    assert ("with all that is in this one" in str(told.value)) is comes_along
    unprivileged.chmod(0o500)
    with pytest.raises(Unavailable) as told:
        make(str(unprivileged)).put("a/b", b"")
    assert f"or set {setting} to another place" in str(told.value)
    assert str(told.value).count("checkpoint.dir") == (setting == "spark.holdfast.checkpoint.dir")


def test_a_local_disk_that_is_full_is_not_told_as_the_stores(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("file", b"1234")
    with pytest.raises(Unavailable, match=r"'file' of .* cannot be written to the local file /dev/full/x") as told:
        store.fetch("file", "/dev/full/x")
    assert "checkpoint.dir" not in str(told.value)


def test_a_disk_that_cannot_be_read_is_told_as_the_one_that_it_is(tmp_path):
    """By the store's disk, or the local one: both said of the other that it cannot be written."""
    unreadable = "/proc/self/mem"  # can be opened, and gives no byte: EIO
    store = LocalFileStore(str(tmp_path / "store"))
    store.put("there", b"")
    (tmp_path / "store" / "file").symlink_to(unreadable)
    with pytest.raises(Unavailable, match=r"reading 'file' in .*/store failed: Input/output error"):
        store.fetch("file", str(tmp_path / "fetched"))
    with pytest.raises(Unavailable, match=rf"the local file {unreadable} cannot be read, to be stored as 'new'"):
        store.put_file("new", unreadable)
    assert [file.name for file in store.list("") if file.name != "file"] == ["there"]


# --- URIs ----------------------------------------------------------------------------------------------------------


def test_local_uris_name_the_same_place(tmp_path):
    path = str(tmp_path / "a b")
    for uri in (path, f"file://{path.replace(' ', '%20')}", f"file:{path}", f"file://localhost{path}"):
        store = open_file_store(uri)
        assert store.local_path("x") == os.path.join(path, "x"), uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("", "empty text"),
        ("file://host/path", "not a file URI"),
        ("file:relative", "not a file URI"),
        ("~/state", r"begins with '~'.*On this machine it is /.*/state"),
        ("~", "begins with '~'"),
        ("dbfs:/x/y", r"is mounted, /dbfs/x/y$"),
        ("dbfs:///x", r"is mounted, /dbfs/x$"),
        *((f"{scheme}://bucket/x", f"is of the scheme '{scheme}': expected a folder")
          for scheme in ("s3n", "gcs", "wasbs", "viewfs", "http", "https", "ftp", "nonsense", "S3")),
        ("hdfs:/x", "scheme 'hdfs'"),
        ("s3:/bucket", "scheme 's3'"),
    ],
)  # fmt: skip
def test_what_is_no_folder_is_refused_and_told_what_to_write(uri, expected, tmp_path, monkeypatch):
    """dbfs:/x and ~/x became folders under the working directory; object stores were refused in a worker."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=expected):
        open_file_store(uri)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["plain", "with:colon", "a b/~c", "2024-05-01T10:00/x"])
def test_a_path_is_a_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_file_store(path).local_path("x") == str(tmp_path / path / "x")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://AKIAKEY:sec%2Fret@bucket/folder?region=eu", "s3://***@bucket/folder?region=eu"),
        ("abfss://c@a.dfs/folder?sas_token=sv%3D1234", "abfss://***@a.dfs/folder?sas_token=***"),
    ],
)
def test_credentials_are_never_shown(uri, expected):
    assert shown(uri) == expected
    with pytest.raises(InvalidRequest) as caught:
        open_file_store(uri)
    assert expected in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("AKIAKEY", "sec%2Fret", "sv%3D1234"))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        # a secret of S3 is base64: it has slashes
        ("s3://AKIAKEY:sec/ret@bucket/folder", "s3://***@bucket/folder"),
        ("s3://AKIAKEY:sec?r/et@bucket/folder", "s3://***@bucket/folder"),
        ("s3:AKIAKEY:sec/ret@bucket/folder", "s3:***@bucket/folder"),
        ("hdfs://AKIAKEY:sec/ret@nn/x", "hdfs://***@nn/x"),
        ("wasbs://AKIAKEY:sec/ret@host/x", "wasbs://***@host/x"),
        ("dbfs://AKIAKEY:sec/ret@host/x", "/dbfs/***@host/x"),
        ("file://AKIAKEY:sec@host/x", "file://***@host/x"),
        (" s3://AKIAKEY:sec/ret@bucket/x", "' s3://***@bucket/x'"),
        ("s3://AKIAKEY:sec/ret@bucket/x\n", r"'s3://***@bucket/x\n'"),
        ("s3://bucket/x?AKIAKEY", "s3://bucket/x?***"),
        ("s3://bucket/x?region=eu;sas=AKIAKEY&x=", "s3://bucket/x?region=***&x=***"),
        ("s3://bucket/x?endpoint_override=http://AKIAKEY@minio", "s3://bucket/x?endpoint_override=***"),
        ("gs://bucket/x#AKIAKEY", "gs://bucket/x"),
        # and what is no secret is shown, so that the error says what is wrong
        ("s3://bucket/user@host//x", "s3://bucket/user@host//x"),
        ("hdfs://nn:8020/user@realm//x", "hdfs://nn:8020/user@realm//x"),
        ("abfss://c@acc.dfs.core.windows.net/u@h//x", "abfss://c@acc.dfs.core.windows.net/u@h//x"),
        ("/a:b/user@host ", "'/a:b/user@host '"),
    ],
)
def test_nothing_of_credentials_is_shown_wherever_they_stand(uri, expected):
    with pytest.raises(InvalidRequest) as caught:
        open_file_store(uri)
    assert expected in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("AKIAKEY", "sec", "ret@"))


def test_credentials_of_an_endpoint_in_the_environment_are_not_in_errors():
    assert told(OSError("error sending request for url (http://me:secret@minio/x?sig=1)")) == (
        "error sending request for url (http://***@minio/x?***"
    )


@pytest.mark.parametrize("endpoint", ["AKIAKEY:secret@minio:9000", "minio:9000/?sig=secret"])
def test_credentials_of_an_endpoint_are_never_shown(endpoint):
    with pytest.raises(InvalidRequest, match="has a user or options in it") as caught:
        StorageOptions(endpoint=endpoint)
    assert "secret" not in str(caught.value)


# --- transfers -----------------------------------------------------------------------------------------------------


def test_the_first_error_cancels_what_has_not_begun():
    begun = []

    def job(i):
        begun.append(i)
        time.sleep(0.01)
        if i == 2:
            raise Unavailable("two")
        return i

    with pytest.raises(Unavailable, match="two"):
        run_parallel([partial(job, i) for i in range(200)], 4)
    assert len(begun) < 100
    assert run_parallel([partial(pow, i, 2) for i in range(10)], 3) == [i * i for i in range(10)]
    assert run_parallel([], 4) == []


def test_stored_files_compare_by_value():
    assert StoredFile("a", 1, 2) == StoredFile("a", 1, 2)
