"""Names of folders of this machine: whoever is told one, Holdfast or Spark, in whatever call, means the same folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.first_versions import begun, first_versions
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.cli import main
from holdfast.errors import InvalidRequest
from holdfast.source.state import StateDataSource
from holdfast.spark import declared_operators
from holdfast.spark.checkpoint_path import spark_path
from holdfast.storage import open_file_store, store_uri

#: Of which a URI, or Hadoop, might make something else.
ODD = ["ck#1", "a%20b", "a b", "ck?x", "with:colon", "a%", "ä%C3%A4", "[x]*{y}", "new\nline", "x/y:/z", "..#"]


class Total(hf.KeyedProcessor):
    total = hf.ValueState(pa.int64())

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> None: ...


def written(folder: Path, total: int = 7) -> hf.Savepoint:
    table = pa.table({"user": ["a"], "value": [total]})
    made = hf.Savepoint.write(folder, hf.OperatorTables("o", {"total": table}, processor=Total, key="user string"))
    assert isinstance(made, hf.Savepoint)
    return made


# --- URIs of local folders


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("file:///backup/monday#old", "/backup/monday#old"),
        ("file:/backup/monday?old", "/backup/monday?old"),
        ("file://localhost/a%20b#c", "/a b#c"),
        ("file:///data/x\ny", "/data/x\ny"),
        ("file:///data/x%0Ay", "/data/x\ny"),
        ("file:///data/x\ty", "/data/x\ty"),
        ("file:///data/%00", "/data/\0"),
        ("file:///data/%FF", "/data/\udcff"),
    ],
)
def test_what_would_be_left_out_of_a_file_uri_is_refused_and_the_plain_path_told(uri: str, plain: str) -> None:
    """The fragment and the query were dropped, and a line break: another folder was meant, to be deleted even."""
    for use in (store_uri, open_file_store, hf.Savepoint, hf.Savepoint.dispose, hf.Checkpoint, spark_path):
        with pytest.raises(InvalidRequest, match="expected the plain path") as caught:
            cast(Any, use)(uri)
        assert repr(plain) in str(caught.value)


def test_disposing_of_a_savepoint_with_a_fragment_leaves_the_one_without(tmp_path: Path) -> None:
    monday = written(tmp_path / "monday")
    found = CliRunner().invoke(main, ["savepoint", "dispose", f"file://{tmp_path}/monday#old", "--yes"])
    assert found.exit_code == 1
    assert f"expected the plain path, where these are characters like others, '{tmp_path}/monday#old'" in found.output
    assert monday.verify() == ()
    written(tmp_path / "monday#old", 8)
    found = CliRunner().invoke(main, ["savepoint", "dispose", f"{tmp_path}/monday#old", "--yes"])
    assert (found.exit_code, monday.verify()) == (0, ())
    assert sorted(os.listdir(tmp_path)) == ["monday"]


@pytest.mark.parametrize(
    "path", ["/data/x", "//data/x", "///data//x/", "file:///data/x", "file:////data/x", "file:/data/x"]
)
def test_slashes_at_the_beginning_are_one(path: str) -> None:
    """Of ``//data/x`` Hadoop and the name that it was told made a host ``data``."""
    assert (store_uri(path), spark_path(path)) == ("/data/x", "file:/data/x")


# --- plain paths


@pytest.mark.parametrize("name", ODD)
def test_in_a_plain_path_all_characters_are_the_folder_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / name
    assert store_uri(str(folder)) == str(folder)
    assert spark_path(str(folder)) == f"file:{folder}", "Hadoop takes what follows as it stands"
    made = written(folder / "saved")
    assert made.verify() == () and made.path("o", "total").startswith(f"{folder}/saved/")
    with first_versions(begun(folder / "saved", "o", 2), folder) as checkpoint:
        assert checkpoint.read("o", "total").read_all()["value"].to_pylist() == [7]
    again = hf.Savepoint.create(checkpoint=f"{folder}/next", to=f"{folder}/again")
    native = hf.Savepoint.create(checkpoint=f"{folder}/next", to=f"{folder}/native", format="native")
    for saved in (again, native):
        assert saved.read("o", "total").read_all()["value"].to_pylist() == [7]
    with hf.Checkpoint(f"{name}/next", state=f"{name}/state") as checkpoint:
        assert checkpoint.verify().whole
    assert hf.Restore(f"{name}/next", state_dir=f"{name}/state").operators() == ("o",)
    for saved in (again, native):
        assert hf.Savepoint.dispose(str(saved._store.uri), apply=True).deleted
    assert sorted(os.listdir(folder)) == ["local", "next", "saved", "state"]


# --- checkpoints that Spark is told by name

ESCAPED = "file:///data/a%20b"


def _started(checkpoint: str) -> None:
    hf.start(Writer(), checkpoint=checkpoint, session=Session())


def _read_in_spark(checkpoint: str) -> None:
    StateDataSource({"checkpoint": checkpoint, "operator": "o", "state": "total"}).schema()


def _forked_at_a_shell(checkpoint: str) -> None:
    found = CliRunner().invoke(main, ["fork", checkpoint])
    assert found.exit_code == 1
    raise InvalidRequest(found.output)


def _shown_at_a_shell(checkpoint: str) -> None:
    found = CliRunner().invoke(main, ["checkpoints", "list", checkpoint])
    assert found.exit_code == 1
    raise InvalidRequest(found.output)


_CALLS: list[Callable[[str], Any]] = [
    _started,
    hf.Checkpoint,
    hf.Restore,
    hf.fork_checkpoint,
    lambda name: hf.Savepoint.create(checkpoint=name, to="/nowhere"),
    _read_in_spark,
    _forked_at_a_shell,
    _shown_at_a_shell,
]


@pytest.mark.parametrize("call", _CALLS)
def test_an_escape_in_the_name_of_a_checkpoint_is_refused_wherever_it_is_told(call: Callable[[str], Any]) -> None:
    """Holdfast looked at ``/data/a b``, and Spark wrote to ``/data/a%20b``: nothing was compared, without a word."""
    with pytest.raises(
        InvalidRequest, match="'%20' in it, which Spark does not decode: .*'/data/a b', or '/data/a%20b'"
    ):
        call(ESCAPED)


class Session(SparkSession):
    """One that has no more than settings."""

    def __init__(self) -> None: ...

    @property
    def conf(self) -> Any:
        return SimpleNamespace(getAll={})


class Writer(DataStreamWriter):
    """One that notes what checkpoint it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def option(self, name: str, value: Any) -> Any:
        self.told.append(value)
        return self

    def start(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(_jsq=None)


@pytest.mark.parametrize("name", ["file:///data/ck#1", "file:/data/ck?x", "file:///data/c\nk"])
def test_a_query_is_not_started_under_a_name_that_is_two_folders(name: str) -> None:
    writer = Writer()
    with pytest.raises(InvalidRequest, match="expected the plain path"):
        hf.start(writer, checkpoint=name, session=Session())
    assert writer.told == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("with:colon/x", "begins with what is a scheme for Spark: expected the whole path, '/.*/with:colon/x'"),
        ("//data/ck", "begins with what is a host for Spark: expected the whole path, '/data/ck'"),
    ],
)
def test_a_path_that_hadoop_takes_for_a_uri_is_refused_where_spark_is_told_it_as_it_is(name: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        hf.start(Writer(), checkpoint=name, session=Session())


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_checkpoint_that_spark_keeps_elsewhere_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Of one with a scheme nothing was said."""
    monkeypatch.setattr(declared_operators, "_declared", {})  # those of other tests, whose stores are gone
    hf.start(Writer(), checkpoint=f"{scheme}{tmp_path}/checkpoint", session=Session())
    (said,) = caplog.messages
    assert f"Spark does not keep it in {tmp_path}/checkpoint of this machine" in said
    caplog.clear()
    SparkFiles(tmp_path / "checkpoint", "11111111-0000-4000-8000-000000000000")
    hf.start(Writer(), checkpoint=f"{scheme}{tmp_path}/checkpoint", session=Session())
    assert caplog.messages == []


def test_what_spark_is_told_is_what_was_given(tmp_path: Path) -> None:
    """A query would begin anew under another name."""
    for name in (f"{tmp_path}/a%20b#c?d e", f"file://{tmp_path}/a b", "s3a://bucket/a%20b"):
        writer = Writer()
        hf.start(writer, checkpoint=name, session=Session())
        assert writer.told == [name]
