"""What a FileStore in HDFS owes beside the contract of all, against a NameNode and a DataNode behind proxies: whatever
they answer, a file is there whole or not at all, a name is created once, and nothing secret is told.
"""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.request
from dataclasses import replace

import pytest
from tests.contract.remote_stores import (
    all_texts,
    ends_within_its_limit,
    impatient,
    lists_whole_or_not_at_all,
    one_of_many,
    reads_whole_or_not_at_all,
)
from tests.fault_proxy import fault_proxy
from tests.s3_server import free_port

from holdfast.errors import InternalError, InvalidRequest, Unavailable
from holdfast.storage import LocalFileStore, StorageOptions, open_file_store
from holdfast.storage.trial import try_out
from holdfast.storage.webhdfs import TOKEN_VARIABLE
from holdfast.storage.webhdfs_store import PART_BYTES

pytestmark = pytest.mark.spark  # a JVM, if not Spark's

LARGE = os.urandom(PART_BYTES + 12_345)
TOKEN = "SAAEdGVzdAR0ZXN0AIoBlverysecretverysecret"


class World:
    """A folder behind two proxies that fail on order: ``names`` before the NameNode, ``data`` before the DataNode.
    ``direct`` goes past them.
    """

    def __init__(self, hdfs, names, data):
        self.hdfs, self.names, self.data, self.folder = hdfs, names, data, hdfs.folder()
        self.uri = f"hdfs://{hdfs.address}{self.folder}"
        self.options = StorageOptions(endpoint=names.url, retry_max_ms=2_000, retry_backoff_ms=10)
        self.store = open_file_store(self.uri, self.options)
        self.direct = open_file_store(self.uri, StorageOptions(endpoint=hdfs.url))

    def there(self, folder=""):
        """Names in a folder, whatever they are."""
        return sorted(str(one["pathSuffix"]) for one in self.hdfs.listed(f"{self.folder}/{folder}"))

    def patient(self, **options):
        return open_file_store(self.uri, replace(self.options, retry_max_ms=60_000, **options))


@pytest.fixture
def world(hdfs):
    data_url = hdfs.data_url
    with fault_proxy(hdfs.url) as names, fault_proxy(data_url) as data:
        names.moved = {data_url.removeprefix("http://"): data.url.removeprefix("http://")}
        yield World(hdfs, names, data)


def before(world, operation, act):
    """Does something once, just before the NameNode sees the first such operation."""
    left = [act]

    def rule(asked):
        if asked.kind == operation and left:
            left.pop()(asked)
        return "pass"

    world.names.rule = rule


# --- answers that do not come ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_rename_whose_answer_was_lost_knows_its_own_file(world, fault, times):
    """A retry meets its own file under the name: two drivers would believe that the other one was first."""
    world.names.first(times, fault, "rename")
    assert world.store.create_if_absent("record", b"mine") is True
    assert world.store.create_if_absent("record", b"another's") is False
    assert world.direct.get("record") == b"mine"
    assert world.there() == ["record"]


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail"])
def test_a_rename_whose_answer_was_lost_does_not_take_anothers_file_for_its_own(world, fault):
    assert world.direct.create_if_absent("record", b"the same bytes") is True
    world.names.first(2, fault, "rename")
    assert world.store.create_if_absent("record", b"the same bytes") is False
    assert world.there() == ["record"]


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail", "RetriableException", "SafeModeException"])
@pytest.mark.parametrize("operation", ["create", "getfilestatus", "rename"])
def test_a_put_outlives_single_faults_of_the_namenode(world, fault, operation):
    world.names.first(1, fault, operation)
    world.store.put("deep/delta", b"whole")
    assert world.direct.get("deep/delta") == b"whole"
    with pytest.raises(InternalError, match="exists already"):
        world.store.put("deep/delta", b"whole")
    assert world.there("deep") == ["delta"]


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail"])
def test_a_put_outlives_single_faults_of_a_datanode_and_leaves_nothing_temporary(world, fault):
    """A lost answer leaves a temporary file that is whole, and is never the one that gets the name."""
    world.data.first(1, fault, "create")
    world.store.put("delta", b"whole")
    assert world.direct.get("delta") == b"whole"
    assert world.there() == ["delta"]


def test_of_many_that_create_through_lost_answers_one_wins(world):
    number = iter(range(1000))
    faults = ("lose", "pass", "fail")
    world.names.rule = lambda asked: faults[next(number) % 3] if asked.kind == "rename" else "pass"
    won = one_of_many(world.store, 6)
    assert world.direct.get("record") == won
    assert world.there() == ["record"]


@pytest.mark.parametrize("which", ["names", "data"])
def test_a_server_that_hangs_is_unavailable_within_its_limit_and_nothing_of_the_file_is_there(world, which):
    ends_within_its_limit(world, getattr(world, which))


def test_a_namenode_that_refuses_for_long_is_unavailable_and_says_what_it_answered(world, caplog):
    world.store = impatient(world)
    acts = {
        "reading 'x'": lambda: world.store.get("x"),
        "listing 'x/'": lambda: world.store.list("x/"),
        "listing 'y/'": lambda: world.store.names("y/"),
        "deleting 'x'": lambda: world.store.delete(["x"]),
        "copying to 'y'": lambda: world.store.copy_if_absent("x", "y"),
        "writing 'z'": lambda: world.store.put("z", b""),
        "sweeping|listing": lambda: world.store.sweep("", 0),
    }
    for fault, told in (("refuse", "503"), ("SafeModeException", r"SafeModeException.*safe mode")):
        world.names.rule = lambda _, fault=fault: fault
        with caplog.at_level(logging.WARNING, "holdfast.storage"):
            for doing, act in acts.items():
                with pytest.raises(Unavailable, match=rf"({doing}).* in hdfs://.* failed \d+ times in .*{told}"):
                    act()
    assert "is tried again in" in caplog.text


def test_a_namenode_that_is_not_there_is_never_taken_for_a_missing_file(world, tmp_path):
    nowhere = f"http://127.0.0.1:{free_port()}"
    gone = open_file_store(world.uri, replace(world.options, endpoint=nowhere, retry_max_ms=300))
    acts = [
        lambda: gone.get("x"),
        lambda: gone.fetch("x", str(tmp_path / "x")),
        lambda: gone.list(""),
        lambda: gone.names(""),
        lambda: gone.copy_if_absent("x", "y"),
        lambda: gone.delete(["x"]),
    ]
    for act in acts:
        with pytest.raises(Unavailable, match=r"refused.*spark\.holdfast\.storage\.endpoint has the HTTP addresses"):
            act()
    assert os.listdir(tmp_path) == []


def test_what_is_no_namenode_is_told_at_once(world, s3):
    """A page that says 404 is no missing file: a start that finds nothing would begin anew."""
    other = open_file_store(world.uri, replace(world.options, endpoint=s3.url))
    for act in (lambda: other.get("x"), lambda: other.list(""), lambda: other.put("x", b"")):
        with pytest.raises(Unavailable, match=r"not the WebHDFS of a NameNode") as caught:
            act()
        assert "times in" not in str(caught.value)


# --- several NameNodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["StandbyException", "hang"])
def test_the_namenode_that_is_active_is_found_and_kept_to(world, fault, caplog):
    with fault_proxy(world.hdfs.url) as standby:
        standby.rule = lambda _: fault
        several = f"http://127.0.0.1:{free_port()};{standby.url};{world.names.url}"
        store = open_file_store(world.uri, replace(world.options, endpoint=several, request_timeout_ms=1_000))
        assert store.create_if_absent("record", b"mine") is True
        assert store.get("record") == b"mine"
        assert len(standby.asked) == 1
    assert "is tried again" not in caplog.text


def test_a_failover_between_a_rename_and_its_answer_loses_nothing(world):
    """The first NameNode has done it and dies; the second one refuses the same rename."""
    with fault_proxy(world.hdfs.url) as second:
        several = f"{world.names.url};{second.url}"
        store = open_file_store(world.uri, replace(world.options, endpoint=several))
        world.names.rule = lambda asked: "lose" if asked.kind == "rename" else "pass"
        assert store.create_if_absent("record", b"mine") is True
        assert second.count("rename") == 1
    assert world.there() == ["record"]


def test_a_standby_that_cannot_judge_a_token_is_left_for_the_active_one(world, monkeypatch):
    """It wraps its own exception into one that would be told as final."""
    page = {"exception": "SecurityException", "message": "InvalidToken: StandbyException"}
    monkeypatch.setattr(
        "tests.fault_proxy.FORBIDDEN", json.dumps({"RemoteException": page}).translate({123: "{{", 125: "}}"})
    )
    with fault_proxy(world.hdfs.url) as standby:
        standby.rule = lambda _: "forbid"
        store = open_file_store(world.uri, replace(world.options, endpoint=f"{standby.url};{world.names.url}"))
        assert store.create_if_absent("record", b"mine") is True


# --- files and folders that others delete ----------------------------------------------------------------------------


def test_a_folder_that_is_deleted_under_a_writer_is_made_again(world):
    before(world, "rename", lambda _: world.hdfs.ask("DELETE", f"{world.folder}/deep", "DELETE", recursive="true"))
    assert world.store.create_if_absent("deep/record", b"mine") is True
    assert world.direct.get("deep/record") == b"mine"


def test_a_writer_whose_temporary_file_was_swept_does_not_take_anothers_file_for_its_own(world):
    """Its file is gone and the name is there: just what a rename looks like whose answer was lost."""

    def swept_and_overtaken(asked):
        assert world.direct.sweep("", int(time.time() * 1000) + 60_000) == 1
        assert world.direct.create_if_absent("record", b"another's") is True

    before(world, "rename", swept_and_overtaken)
    assert world.store.create_if_absent("record", b"mine") is False
    assert world.direct.get("record") == b"another's"


def test_what_a_killed_writer_left_is_never_seen_and_can_be_swept(world):
    world.names.rule = lambda asked: "refuse" if asked.kind in ("rename", "delete") else "pass"
    with pytest.raises(Unavailable, match="writing 'folder/file'"):
        world.store.put("folder/file", b"whole")
    world.names.rule = lambda _: "pass"
    assert world.store.get("folder/file") is None
    assert world.store.list("") == world.store.names("folder/") == []
    assert len(world.there("folder")) == 1
    world.store.put("folder/file", b"whole")  # the name is still free
    now_ms = int(time.time() * 1000)
    assert world.store.sweep("folder/", now_ms - 60_000) == 0  # somebody may still be writing it
    assert world.store.sweep("other/", now_ms + 60_000) == 0
    assert world.store.sweep("folder/", now_ms + 60_000) == 1
    assert world.there("folder") == ["file"]


def test_a_folder_of_the_name_is_no_place_to_rename_into(world):
    """HDFS's plain rename moves a file into a folder that has the name of its target."""
    world.store.put("name/below", b"x")
    assert world.store.create_if_absent("name", b"mine") is False
    assert world.there("name") == ["below"]
    assert world.there() == ["name"]


def test_a_place_below_a_file_is_told_at_once(world):
    world.store.put("file", b"x")
    with pytest.raises(Unavailable, match=r"writing 'file/below/name'.*expected a folder, found a file") as caught:
        world.store.put("file/below/name", b"x")
    assert "times in" not in str(caught.value)
    assert world.store.list("file/") == world.store.names("file/below/") == []


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose", "fail", "refuse"])
def test_a_copy_whose_answer_was_lost_knows_its_own(world, fault):
    world.direct.put("staged", b"rows")
    world.direct.put("empty", b"")
    world.names.first(1, fault, "rename")
    assert world.store.copy_if_absent("staged", "published") is True
    assert world.store.copy_if_absent("empty", "published-empty") is True
    assert world.direct.get("published") == b"rows"
    assert world.direct.get("published-empty") == b""
    world.direct.delete(["staged"])
    assert world.store.copy_if_absent("staged", "published") is False
    assert world.store.copy_if_absent("staged", "another") is None


def test_what_a_killed_copy_left_is_beside_its_source(world):
    """Where a FileSink sweeps: its folder of output would keep it for ever."""
    world.direct.put("_staging/batch/file", b"rows")
    world.names.rule = lambda asked: "refuse" if asked.kind in ("rename", "delete") else "pass"
    with pytest.raises(Unavailable, match="copying to 'published'"):
        world.store.copy_if_absent("_staging/batch/file", "published")
    world.names.rule = lambda _: "pass"
    assert world.there() == ["_staging"]
    assert world.store.sweep("_staging/", int(time.time() * 1000) + 60_000) == 1
    assert world.store.copy_if_absent("_staging/batch/file", "deep/published") is True
    assert world.there("_staging/batch") == ["file"]


def test_a_large_file_is_copied_whole_through_cut_answers(world):
    world.direct.put("staged", LARGE)
    world.data.first(2, "cut", "open")
    assert world.patient().copy_if_absent("staged", "published") is True
    assert world.direct.get("published") == LARGE


def test_a_copy_of_what_is_deleted_meanwhile_says_so_and_leaves_nothing(world):
    world.direct.put("staged", b"rows")
    before(world, "open", lambda _: world.direct.delete(["staged"]))
    assert world.store.copy_if_absent("staged", "published") is None
    assert world.there() == []


def test_a_copy_of_a_file_that_may_not_be_read_here_says_so_and_leaves_nothing(world, tmp_path, monkeypatch):
    """A PermissionError came as it was, and said nothing of what was being done."""
    source = LocalFileStore(str(tmp_path))
    source.put("staged", b"rows")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("holdfast.storage.webhdfs_store.open", refuse, raising=False)
    with pytest.raises(Unavailable, match=r"the local file /.*/staged cannot be read, to be stored as 'published'"):
        world.store.copy_if_absent("staged", "published", source)
    assert world.there() == []


# --- answers that are not whole --------------------------------------------------------------------------------------


def test_a_file_is_read_whole_or_not_at_all(world, tmp_path):
    reads_whole_or_not_at_all(world, world.data, "open", tmp_path)


def test_a_listing_is_whole_or_not_at_all(world):
    lists_whole_or_not_at_all(world, world.names, "liststatus")


def test_a_listing_of_many_pages_is_whole(world):
    """The NameNode's page is 50 names here."""
    for i in range(120):
        world.hdfs.ask("PUT", f"{world.folder}/many/{i:05d}", "MKDIRS")
    world.direct.put("many/00060/file", b"x")
    world.direct.put("many/99999", b"y")
    assert [file.name for file in world.store.list("many/")] == ["many/00060/file", "many/99999"]
    assert world.store.names("many/") == ["many/99999"]


@pytest.mark.parametrize("size", [PART_BYTES - 1, PART_BYTES, PART_BYTES + 12_345])
def test_a_large_file_goes_and_comes_whole(world, tmp_path, size):
    (tmp_path / "source").write_bytes(LARGE[:size])
    store = world.patient()
    world.data.first(1, "lose", "create")
    store.put_file("sst/large", str(tmp_path / "source"))
    world.data.first(1, "cut", "open")
    assert store.get("sst/large") == LARGE[:size]
    assert store.fetch("sst/large", str(tmp_path / "target")) is True
    assert (tmp_path / "target").read_bytes() == LARGE[:size]
    assert world.there("sst") == ["large"]


def test_a_file_is_on_the_disks_of_its_datanodes_when_it_has_its_name(world):
    """HDFS closes a file whose bytes are in the DataNodes' memory: a power cut would take a committed batch."""

    def syncs():
        query = "Hadoop:service=DataNode,name=DataNodeActivity*"
        with urllib.request.urlopen(f"{world.hdfs.data_url}/jmx?qry={query}", timeout=120) as answer:
            return sum(int(bean["FsyncCount"]) for bean in json.load(answer)["beans"])

    count = syncs()
    world.store.put("delta", b"whole")
    until = time.monotonic() + 240  # a DataNode counts anew every ten seconds
    while syncs() == count:
        assert time.monotonic() < until, "nothing was synced"
        time.sleep(0.5)


# --- what is not allowed, and what is secret -------------------------------------------------------------------------


def test_what_is_forbidden_is_told_at_once(world, monkeypatch):
    world.direct.put("closed/file", b"x")
    world.hdfs.ask("PUT", f"{world.folder}/closed", "SETPERMISSION", permission="700")
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    acts = {
        "reading": lambda: world.store.get("closed/file"),
        "listing": lambda: world.store.list("closed/"),
        "writing": lambda: world.store.put("closed/new", b""),
        "deleting": lambda: world.store.delete(["closed/file"]),
    }
    for doing, act in acts.items():
        with pytest.raises(Unavailable, match=rf"{doing} .*AccessControlException.*stranger.*the right to") as caught:
            act()
        assert "times in" not in str(caught.value)


def test_a_token_is_told_to_the_servers_and_to_nobody_else(world, tmp_path, monkeypatch, caplog):
    """It stands in URLs, which requests puts into its errors, and urllib3 into its log."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv(TOKEN_VARIABLE, str(tmp_path / "token"))
    world.hdfs.ask("PUT", world.folder, "SETPERMISSION", permission="777")  # this cluster does not look at tokens
    texts = []
    with caplog.at_level(logging.DEBUG):
        world.store.put("delta", b"whole")
        assert world.store.get("delta") == b"whole"
        asked = world.names.asked
        assert all(one.query.get("delegation") == [TOKEN] and "user.name" not in one.query for one in asked)
        for fault in ("hang", "lose", "refuse", "AccessControlException", "cut"):
            for proxy in (world.names, world.data):
                proxy.rule = lambda _, fault=fault: fault
                hasty = open_file_store(world.uri, replace(world.options, request_timeout_ms=300, retry_max_ms=500))
                for act in (lambda: hasty.get("delta"), lambda: hasty.put("new", b"x")):  # noqa: B023
                    try:
                        act()
                    except Unavailable as error:
                        texts.append("".join(all_texts(error)))
                proxy.rule = lambda _: "pass"
        gone = open_file_store(world.uri, replace(world.options, endpoint=f"http://127.0.0.1:{free_port()}"))
        with pytest.raises(Unavailable) as caught:
            gone.get("x")
        texts.append("".join(all_texts(caught.value)))
    assert len(texts) > 10
    assert "op=CREATE" in caplog.text and "delegation=***" in caplog.text
    assert not any(TOKEN in text for text in (*texts, caplog.text))


# --- a trial before anything rests on it -----------------------------------------------------------------------------


def test_a_gateway_that_heeds_no_option_of_a_rename_loses_nothing(world):
    """It answers by a boolean, and moves a file into a folder that has the name: the id says what happened."""
    world.names.strip = frozenset({"renameoptions"})
    world.direct.put("folder/below", b"x")
    assert world.store.create_if_absent("folder", b"mine") is False
    assert [file.name for file in world.direct.list("")] == ["folder/below"]
    world.names.first(2, "lose", "rename")
    assert world.store.create_if_absent("record", b"mine") is True
    assert world.store.create_if_absent("record", b"another's") is False
    assert world.direct.get("record") == b"mine"


def test_a_trial_is_made_once_a_process(world):
    try_out(world.store, copies=True)
    asked = len(world.names.asked)
    try_out(world.store, copies=True)
    assert len(world.names.asked) == asked  # once a process
    assert world.direct.list("") == []


@pytest.mark.parametrize("operation", ["create", "rename", "open", "delete", "getfilestatus"])
def test_a_trial_outlives_lost_answers(world, operation):
    world.names.first(1, "lose", operation)
    try_out(world.store, copies=True)
    assert world.there() == []


def test_a_checkpoint_in_hdfs_is_reached_by_the_port_of_its_uri(world):
    """As the command line does, which knows no session."""
    place = f"webhdfs://{world.hdfs.url.removeprefix('http://')}{world.folder}"
    assert open_file_store(place).create_if_absent("record", b"mine") is True
    assert world.direct.get("record") == b"mine"
    with pytest.raises(InvalidRequest, match="names no NameNode"):
        open_file_store("webhdfs:///folder")
