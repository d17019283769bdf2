"""Native savepoints, whichever stores state and savepoint are in: whole, the savepoint's own, disposed of by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.first_versions import begun, first_versions
from tests.native_savepoints import OPERATOR, kept_query, rows_of, tables_of, uploaded
from tests.s3_server import S3Server

import holdfast as hf
from holdfast.storage import StorageOptions, open_file_store


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("kept")
    kept_query(folder)
    return folder


Place = Callable[[str], str]


@pytest.fixture
def places(s3: S3Server, tmp_path: Path) -> dict[str, Place]:
    """URIs by name, in a folder, in a bucket, and in another bucket."""
    bucket, other = s3.bucket(), s3.bucket()
    return {
        "folder": lambda name: str(tmp_path / "of savepoints" / name),
        "bucket": lambda name: f"s3://{bucket}/a b/{name}",
        "another bucket": lambda name: f"s3://{other}/{name}",
    }


PAIRS = [
    ("folder", "folder"),
    ("folder", "bucket"),
    ("bucket", "folder"),
    ("bucket", "bucket"),
    ("bucket", "another bucket"),
]


@pytest.mark.parametrize(("state", "savepoint"), PAIRS, ids=[f"{one} to {other}" for one, other in PAIRS])
def test_it_is_the_savepoints_own_wherever_it_is(
    kept: Path, tmp_path: Path, places: dict[str, Place], s3: S3Server, state: str, savepoint: str
) -> None:
    storage = StorageOptions(endpoint=s3.url)
    of_query = {name: places[state](name) for name in ("checkpoint", "state")}
    for name, uri in of_query.items():
        uploaded(kept / name, open_file_store(uri, storage))
    to = places[savepoint]("saved")
    given: dict[str, Any] = {"state": of_query["state"], "storage": storage, "format": "native"}
    saved = hf.Savepoint.create(checkpoint=of_query["checkpoint"], to=to, **given)
    with hf.Checkpoint(kept / "checkpoint") as checkpoint:
        expected = tables_of(checkpoint)
    for uri in of_query.values():  # the query is gone
        store = open_file_store(uri, storage)
        store.delete([file.name for file in store.list("")])
    assert saved.verify() == ()
    assert rows_of(tables_of(hf.Savepoint(to, storage=storage))) == rows_of(expected)
    canonical = saved.convert(places[state]("canonical"), storage=storage)
    back = canonical.convert(places[savepoint]("back"), storage=storage)
    assert rows_of(tables_of(back)) == rows_of(expected)
    plan = hf.Restore(savepoint=to, storage=storage).plan(name=OPERATOR)
    assert plan.refused == ()
    found = hf.Savepoint.dispose(to, apply=True, storage=storage)
    assert found.deleted and found.others == ()
    assert open_file_store(to, storage).list("") == []
    assert back.verify() == ()
    if savepoint == "folder":
        shutil.rmtree(to, ignore_errors=True)
        with first_versions(begun(Path(places[savepoint]("back")), OPERATOR, 3), tmp_path / "new") as checkpoint:
            assert rows_of(tables_of(checkpoint), places=False) == rows_of(expected, places=False)


def test_within_a_bucket_no_table_passes_through_this_machine(
    kept: Path, places: dict[str, Place], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = StorageOptions(endpoint=s3.url)
    for name in ("checkpoint", "state"):
        uploaded(kept / name, open_file_store(places["bucket"](name), storage))
    fetched: list[str] = []
    store = open_file_store(places["bucket"]("state"), storage)
    monkeypatch.setattr(type(store), "fetch", lambda _, name, path: fetched.append(name))
    hf.Savepoint.create(
        checkpoint=places["bucket"]("checkpoint"),
        state=places["bucket"]("state"),
        to=places["bucket"]("saved"),
        storage=storage,
        format="native",
    )
    assert fetched == []
    assert any("/sst/" in file.name for file in open_file_store(places["bucket"]("saved"), storage).list(""))
