"""What a FileStore in an object store owes beside the contract of all: whatever the network and the server do, a file
is there whole or not at all, a name is created once, and nothing secret is told.
"""

from __future__ import annotations

import logging
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import obstore
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
from tests.s3_server import CREDENTIALS

from holdfast.commit.timeline import fork_checkpoint
from holdfast.errors import InternalError, InvalidRequest, Unavailable
from holdfast.storage import StorageOptions, open_file_store
from holdfast.storage.object_store import PART_BYTES
from holdfast.storage.trial import try_out
from holdfast.storage.uri import bucket_of, store_uri

#: Patience for tests: some retries within a second or two.
OPTIONS = {"retry_max_ms": 2_000, "retry_backoff_ms": 10}
LARGE = os.urandom(2 * PART_BYTES + 12_345)


class World:
    """A bucket behind a proxy that fails on order; ``direct`` goes past it."""

    def __init__(self, s3, proxy, **options):
        self.proxy, self.bucket = proxy, s3.bucket()
        self.options = StorageOptions(endpoint=proxy.url, **{**OPTIONS, **options})
        self.uri = f"s3://{self.bucket}/folder"
        self.store = open_file_store(self.uri, self.options)
        self.direct = open_file_store(self.uri, StorageOptions(endpoint=s3.url))


@pytest.fixture
def world(s3):
    with fault_proxy(s3.url) as proxy:
        yield World(s3, proxy)


@pytest.fixture
def patient(s3):
    """For large files, which take a busy machine some seconds."""
    with fault_proxy(s3.url) as proxy:
        yield World(s3, proxy, retry_max_ms=60_000)


# --- answers that do not come ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail", "conflict"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_create_whose_answer_was_lost_knows_its_own_file(world, fault, times):
    """A retry met what the first attempt had made, and said that somebody else was first: two drivers, no owner."""
    world.proxy.first(times, fault, "put")
    assert world.store.create_if_absent("record", b"mine") is True
    assert world.store.create_if_absent("record", b"another's") is False
    assert world.direct.get("record") == b"mine"


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail", "conflict"])
def test_a_create_whose_answer_was_lost_does_not_take_anothers_file_for_its_own(world, fault):
    assert world.direct.create_if_absent("record", b"the same bytes") is True
    world.proxy.first(2, fault, "put")
    assert world.store.create_if_absent("record", b"the same bytes") is False


@pytest.mark.parametrize("fault", ["lose", "fail"])
def test_a_put_whose_answer_was_lost_is_no_name_that_exists_already(world, fault):
    world.proxy.first(1, fault, "put")
    world.store.put("delta", b"whole")
    assert world.direct.get("delta") == b"whole"
    with pytest.raises(InternalError, match="exists already"):
        world.store.put("delta", b"whole")


def test_of_many_that_create_through_lost_answers_one_wins(world):
    number = iter(range(1000))
    world.proxy.rule = lambda asked: ("lose", "pass", "fail")[next(number) % 3] if asked.kind == "put" else "pass"
    won = one_of_many(world.store, 6)
    assert world.direct.get("record") == won


def test_a_store_that_hangs_is_unavailable_within_its_limit_and_nothing_of_the_file_is_there(world):
    ends_within_its_limit(world, world.proxy)


def test_a_store_that_refuses_for_long_is_unavailable_and_says_what_it_answered(world, caplog):
    world.proxy.rule = lambda _: "refuse"
    store = impatient(world)
    acts = {
        "reading 'x'": lambda: store.get("x"),
        "listing 'x/'": lambda: store.list("x/"),
        "listing 'y/'": lambda: store.names("y/"),
        "deleting 'x'": lambda: store.delete(["x"]),
        "copying to 'y'": lambda: store.copy_if_absent("x", "y"),
    }
    with caplog.at_level(logging.WARNING, "holdfast.storage"):
        for doing, act in acts.items():
            with pytest.raises(Unavailable, match=rf"{doing} in s3://.* failed \d+ times in .*503.*SlowDown"):
                act()
    assert "is tried again in" in caplog.text


@pytest.mark.parametrize("fault", ["lose", "fail", "refuse"])
def test_a_copy_whose_answer_was_lost_says_that_its_target_is_there(world, fault):
    world.direct.put("staged", b"rows")
    world.proxy.first(1, fault, "complete")
    assert world.store.copy_if_absent("staged", "published") in (True, False)
    assert world.direct.get("published") == b"rows"
    world.direct.delete(["staged"])
    world.proxy.first(3, fault, "complete")
    assert world.store.copy_if_absent("staged", "published") is False
    assert world.store.copy_if_absent("staged", "another") is None


# --- answers that are not whole --------------------------------------------------------------------------------------


def test_a_file_is_read_whole_or_not_at_all(world, tmp_path):
    reads_whole_or_not_at_all(world, world.proxy, "get", tmp_path)


def test_a_listing_is_whole_or_not_at_all(world):
    lists_whole_or_not_at_all(world, world.proxy, "list")


def test_a_listing_of_many_pages_is_whole(world):
    names = [f"many/{i:05d}" for i in range(1_050)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: world.direct.put(name, b""), names))
    pages = []

    def rule(asked):
        if asked.kind == "list":
            pages.append(asked)
            return "refuse" if len(pages) == 2 else "pass"  # the second page, once
        return "pass"

    world.proxy.rule = rule
    assert [file.name for file in world.store.list("many/")] == names
    assert world.store.names("many/") == names
    asked_before = len(pages)
    assert world.store.names("many/", after=names[-3]) == names[-2:]
    assert len(pages) == asked_before + 1, "those before are not asked for"
    assert world.store.names("many/", before=names[2]) == names[:2]
    assert len(pages) == asked_before + 2, "nor is the page that follows"
    world.store.delete(names)
    assert world.direct.list("") == []


def test_a_bucket_that_lists_in_no_order_is_listed_as_a_whole(s3, monkeypatch):
    """S3's directory buckets know no name to begin after, and give names as they come."""
    store = open_file_store(f"s3://{s3.bucket('--use1-az4--x-s3')}/a", StorageOptions(endpoint=s3.url))
    for name in ("1", "2", "3", "below/4"):
        store.put(name, b"")
    monkeypatch.setattr(obstore, "list", None)
    assert store.names("", after="1", before="3") == ["2"]


# --- large files -----------------------------------------------------------------------------------------------------


def test_a_large_file_goes_and_comes_in_parts(patient, tmp_path):
    (tmp_path / "source").write_bytes(LARGE)
    patient.store.put_file("sst/large", str(tmp_path / "source"))
    assert patient.proxy.count("part") == 3
    assert patient.store.get("sst/large") == LARGE
    assert patient.store.fetch("sst/large", str(tmp_path / "target")) is True
    assert (tmp_path / "target").read_bytes() == LARGE
    for again in (lambda: patient.store.put_file("sst/large", str(tmp_path / "source")),
                  lambda: patient.store.put("sst/large", LARGE)):  # fmt: skip
        with pytest.raises(InternalError, match="exists already"):
            again()


@pytest.mark.parametrize("fault", ["refuse", "lose", "fail"])
@pytest.mark.parametrize("kind", ["begin upload", "part", "complete"])
def test_a_large_upload_outlives_single_faults(patient, fault, kind):
    patient.proxy.first(1, fault, kind)
    patient.store.put("sst/large", LARGE)
    assert patient.direct.get("sst/large") == LARGE


@pytest.mark.parametrize("kind", ["part", "complete"])
def test_an_upload_that_is_torn_leaves_no_file(world, kind):
    world.proxy.rule = lambda asked: "refuse" if asked.kind == kind else "pass"
    with pytest.raises(Unavailable, match="writing 'sst/large'"):
        impatient(world).put("sst/large", LARGE)
    assert world.direct.get("sst/large") is None
    assert world.direct.list("") == []
    world.proxy.rule = lambda _: "pass"
    world.store.put("sst/large", LARGE)


def test_a_download_in_parts_outlives_cut_answers(patient):
    patient.direct.put("sst/large", LARGE)
    number = iter(range(100))
    patient.proxy.rule = lambda asked: "cut" if asked.kind == "get" and next(number) in (1, 3) else "pass"
    assert patient.store.get("sst/large") == LARGE


# --- what is not there, or not allowed -------------------------------------------------------------------------------


def test_a_bucket_that_is_missing_is_never_taken_for_an_empty_one(world, tmp_path):
    """S3 answers 404 for both. A handle that finds nothing would be Corrupt; a start that finds nothing begins anew."""
    store = open_file_store("s3://no-such-bucket/folder", world.options)
    (tmp_path / "large").write_bytes(LARGE)
    acts = [
        lambda: store.get("x"),
        lambda: store.fetch("x", str(tmp_path / "x")),
        lambda: store.list(""),
        lambda: store.names(""),
        lambda: store.put("x", b"1"),
        lambda: store.put_file("x", str(tmp_path / "large")),
        lambda: store.create_if_absent("x", b"1"),
        lambda: store.copy_if_absent("x", "y"),
        lambda: store.delete(["x", "y"]),
    ]
    for act in acts:
        with pytest.raises(Unavailable, match="no such bucket"):
            act()
    assert os.listdir(tmp_path) == ["large"]


def test_what_is_forbidden_is_told_at_once_and_without_secrets(world, caplog):
    world.proxy.rule = lambda _: "forbid"
    with caplog.at_level(logging.DEBUG):
        for act in (lambda: world.store.get("x"), lambda: world.store.put("x", b""), lambda: world.store.list("")):
            with pytest.raises(Unavailable, match=r"403.*SignatureDoesNotMatch.*the right to read") as caught:
                act()
            told = "".join(all_texts(caught.value))
            assert not any(secret in told for secret in (*_secrets(), "StringToSign", "Authorization", "Signature="))
    assert len(world.proxy.asked) == 3  # trying again would help nobody
    assert not any(secret in caplog.text for secret in _secrets())


def test_credentials_are_in_no_option_no_text_and_no_pickle(world):
    for thing in (world.options, bucket_of(f"s3://{world.bucket}/folder"), world.store.uri):
        text = repr(thing) + str(pickle.dumps(thing))
        assert not any(secret in text for secret in _secrets())


@pytest.mark.parametrize("endpoint", ["localhost:9000", "ftp://host", "https://user:secret@host", "https://h/?sig=1"])
def test_an_endpoint_is_a_url_without_secrets(endpoint):
    with pytest.raises(InvalidRequest, match="endpoint") as caught:
        StorageOptions(endpoint=endpoint)
    assert "secret" not in str(caught.value).partition("secrets")[0]


# --- a trial before anything rests on it -----------------------------------------------------------------------------


def test_a_store_that_lets_a_second_writer_win_is_refused(world):
    world.proxy.strip = frozenset({"if-none-match"})
    with pytest.raises(InvalidRequest, match="lets a second writer replace it"):
        try_out(world.store)
    world.proxy.strip = frozenset()
    try_out(world.store, copies=True)
    asked = len(world.proxy.asked)
    try_out(world.store, copies=True)
    assert len(world.proxy.asked) == asked  # once a process
    assert world.direct.list("") == []


@pytest.mark.parametrize("kind", ["put", "complete", "get", "delete"])
def test_a_trial_outlives_lost_answers(world, kind):
    world.proxy.first(1, "lose", kind)
    try_out(world.store, copies=True)


def test_a_trial_says_which_bucket_is_missing(world):
    with pytest.raises(Unavailable, match="no such bucket"):
        try_out(open_file_store("s3://no-such-bucket/x", world.options))


def test_a_checkpoint_in_a_bucket_is_forked_by_the_environment(s3, monkeypatch):
    """As the command line does, which knows no session."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    checkpoint = f"s3a://{s3.bucket()}/checkpoint"
    with pytest.raises(InvalidRequest, match="is no checkpoint of a streaming query"):
        fork_checkpoint(checkpoint)
    store = open_file_store(checkpoint, StorageOptions(endpoint=s3.url))
    store.put("metadata", b'{"id":"0f0f0f0f-0000-4000-8000-000000000000"}')
    assert fork_checkpoint(checkpoint).parent == "0f0f0f0f-0000-4000-8000-000000000000"
    assert [file.name for file in store.list("holdfast/forks/")] == ["holdfast/forks/000001.json"]


def test_a_checkpoint_in_a_bucket_is_forked_by_the_options_that_are_given(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # nobody is there
    checkpoint, options = f"s3://{s3.bucket()}/checkpoint", StorageOptions(endpoint=s3.url)
    store = open_file_store(checkpoint, options)
    store.put("metadata", b'{"id":"0f0f0f0f-0000-4000-8000-000000000000"}')
    fork_checkpoint(checkpoint, storage=options)
    assert [file.name for file in store.list("holdfast/forks/")] == ["holdfast/forks/000001.json"]


# --- URIs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("s3a://bucket/folder/", "s3://bucket/folder"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/a b/c", "gs://bucket/a b/c"),
        ("az://container/x", "az://container/x"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("abfs://container@account.blob.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
    ],
)
def test_one_place_has_one_name(text, uri):
    assert store_uri(text) == uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/../x", "none of them '.' or '..'"),
        ("s3://bucket//x", "single '/'"),
        ("s3://bucket/a\nb", "single '/'"),
        ("s3://bucket/x?region=eu", "options in it"),
        ("s3://bucket/x#y", "options in it"),
        ("s3://key:secret@bucket/x", "credentials by the environment"),
        ("abfss://c:secret@account.dfs.core.windows.net/x", "credentials by the environment"),
        ("abfss://c@account.dfs.elsewhere/x", r"storage\.endpoint"),
        ("gs://user@bucket/x", "credentials by the environment"),
    ],
)
def test_what_names_no_bucket_is_refused(text, expected):
    with pytest.raises(InvalidRequest, match=expected) as caught:
        open_file_store(text)
    assert "secret" not in str(caught.value)


def _secrets():
    return (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
