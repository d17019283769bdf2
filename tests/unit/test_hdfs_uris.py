"""Which URIs name a folder of HDFS, where its WebHDFS is, and what is told of those that name none."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.storage import StorageOptions, open_file_store, store_uri
from holdfast.storage.uri import hdfs_of
from holdfast.storage.webhdfs import TOKEN_VARIABLE, WebHdfsError
from holdfast.storage.webhdfs_answers import WebHdfsAnswers
from holdfast.storage.webhdfs_store import ENDPOINT_VARIABLE


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("hdfs://nn/jobs/totals/", "hdfs://nn/jobs/totals"),
        ("hdfs://NN:8020/jobs", "hdfs://nn/jobs"),
        ("hdfs://nn:9000/jobs", "hdfs://nn:9000/jobs"),
        ("hdfs://nn", "hdfs://nn"),
        ("hdfs://mycluster/a b/ü", "hdfs://mycluster/a b/ü"),
        ("webhdfs://NN:9870/jobs/", "webhdfs://nn:9870/jobs"),  # an address, whatever endpoint is set
        ("swebhdfs://nn:9871/jobs", "swebhdfs://nn:9871/jobs"),
        ("swebhdfs://[2001:db8::1]:50470/jobs", "swebhdfs://[2001:db8::1]:50470/jobs"),
    ],
)
def test_one_place_has_one_name(text: str, uri: str) -> None:
    assert store_uri(text) == uri
    assert open_file_store(text) is open_file_store(uri)


@pytest.mark.parametrize(
    ("text", "endpoint", "addresses"),
    [
        ("hdfs://nn:8020/x", None, ("http://nn:9870",)),
        ("hdfs://cluster/x", "http://nn1:9870;http://nn2:9870/", ("http://nn1:9870", "http://nn2:9870")),
        ("hdfs://cluster/x", "https://gateway:8443/site", ("https://gateway:8443/site",)),
        ("webhdfs://nn:1234/x", None, ("http://nn:1234",)),
        ("webhdfs://nn:1234/x", "http://minio:9000", ("http://nn:1234",)),  # the endpoint is another store's
        ("webhdfs://nn:9870/x", "http://nn1:9870", ("http://nn:9870",)),
        ("swebhdfs://nn:9871/x", "https://nn1:9871", ("https://nn:9871",)),
        ("webhdfs://cluster/x", "http://nn1:9870", ("http://nn1:9870",)),
        ("swebhdfs://nn/x", None, ("https://nn:9871",)),
    ],
)
def test_where_webhdfs_is(text: str, endpoint: str | None, addresses: tuple[str, ...]) -> None:
    folder = hdfs_of(text)
    assert folder is not None
    assert folder.addresses(endpoint) == addresses


@pytest.mark.parametrize("text", ["webhdfs://nn:9870/x", "swebhdfs://nn:9871/x", "webhdfs://nn:1234/x"])
def test_a_port_that_is_told_is_an_address_under_each_name_that_the_place_has(text: str) -> None:
    """Origins, output and sinks are recorded by the store's name, and opened where another endpoint is set perhaps."""
    for name in (store_uri(text), open_file_store(text).uri):
        folder = hdfs_of(name)
        assert folder is not None
        assert folder.addresses("https://another:9870") == folder.addresses(None)


@pytest.mark.parametrize(("scheme", "port"), [("webhdfs", 9870), ("swebhdfs", 9871)])
def test_the_port_of_the_scheme_is_another_place_only_where_an_endpoint_is_set(
    scheme: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, untold = f"{scheme}://nn:{port}/x", f"{scheme}://nn/x"
    assert open_file_store(told).uri == open_file_store(untold).uri
    endpoint = StorageOptions(endpoint="https://another:9871")
    assert open_file_store(told, endpoint).uri != open_file_store(untold, endpoint).uri
    monkeypatch.setenv(ENDPOINT_VARIABLE, "https://another:9871")
    hasty = StorageOptions(retry_max_ms=2)  # of these no store is open yet
    assert open_file_store(told, hasty).uri != open_file_store(untold, hasty).uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hdfs:///x", "names no NameNode"),
        ("hdfs://", "names no NameNode"),
        ("hdfs://nn:port/x", "names no NameNode"),
        ("hdfs://nn:99999/x", "names no NameNode"),
        ("hdfs://nn/../x", "none of them '.' or '..'"),
        ("hdfs://nn//x", "single '/'"),
        ("hdfs://nn/a\nb", "single '/'"),
        ("hdfs://nn/a:b", "has a ':'"),
        ("hdfs://nn/x?delegation=secret", "a user or options in it"),
        ("webhdfs://nn/x#y", "a user or options in it"),
        ("hdfs://user:secret@nn/x", "a user or options in it"),
        ("hdfs:/x", "of the scheme 'hdfs'.*hdfs://namenode:8020/folder"),
        ("viewfs://cluster/x", "of the scheme 'viewfs'.*hdfs://namenode:8020/folder"),
    ],
)
def test_what_names_no_folder_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidRequest, match=expected) as caught:
        open_file_store(text)
    assert "secret" not in str(caught.value)


def test_an_address_without_encryption_is_refused_for_a_uri_that_asks_for_it() -> None:
    with pytest.raises(InvalidRequest, match="asks for encryption"):
        open_file_store("swebhdfs://cluster/x", StorageOptions(endpoint="https://nn1:9871;http://nn2:9870"))


def test_the_environment_says_where_webhdfs_is_where_no_setting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line knows no session, and a query may have a bucket's endpoint in its settings."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:1;http://127.0.0.1:2")
    hasty = StorageOptions(retry_max_ms=1)
    with pytest.raises(Unavailable, match=r"reading 'x' in hdfs://no-such-cluster/y failed 1 times.*refused"):
        open_file_store("hdfs://no-such-cluster/y", hasty).get("x")
    monkeypatch.setenv(ENDPOINT_VARIABLE, "127.0.0.1:1")
    with pytest.raises(InvalidRequest, match="HOLDFAST_WEBHDFS_ENDPOINT is no endpoint"):
        open_file_store("hdfs://no-such-cluster/z", hasty)


def test_several_addresses_are_no_endpoint_of_a_bucket() -> None:
    with pytest.raises(InvalidRequest, match="several: those are HDFS's"):
        open_file_store("s3://bucket/x", StorageOptions(endpoint="http://nn1:9870;http://nn2:9870"))
    for endpoint in ("http://nn1:9870;nn2:9870", "http://nn1:9870;", "http://nn1;http://user@nn2"):
        with pytest.raises(InvalidRequest, match="endpoint"):
            StorageOptions(endpoint=endpoint)


@pytest.mark.parametrize("text", ["", "no token, but words", "HDTS\0\1binary", "<html>secret</html>"])
def test_a_token_that_is_none_is_told_without_its_text(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv(TOKEN_VARIABLE, str(tmp_path / "token"))
    with pytest.raises(Unavailable, match="has no delegation token in it") as caught:
        open_file_store("hdfs://127.0.0.1/x").get("x")
    assert "secret" not in str(caught.value) and "words" not in str(caught.value)
    monkeypatch.setenv(TOKEN_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(Unavailable, match="missing, which HOLDFAST_WEBHDFS_TOKEN_FILE names, cannot be read: No such"):
        open_file_store("hdfs://127.0.0.1/x").get("x")


def test_a_folder_that_is_full_is_told_as_what_it_is() -> None:
    """A million files by default; it was told as a NameNode or DataNodes that are not well."""
    full = WebHdfsError(403, "MaxDirectoryItemsExceededException", "The directory item limit of /out is exceeded")
    assert WebHdfsAnswers().is_final(full)
    assert "dfs.namenode.fs-limits.max-directory-items" in WebHdfsAnswers().way_out(full)
