"""Forks of a checkpoint: by the function, by the command, and what a query does from there."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.commit_world import Clock, Run, World, drive

import holdfast as hf
from holdfast.cli import main
from holdfast.commit.epochs import Driver, Epochs
from holdfast.commit.timeline import FORMAT, VERSION, Fork, fork_checkpoint, newest_fork, spark_query_id, timeline_of
from holdfast.errors import Corrupt, Fenced, Incompatible, InvalidRequest
from holdfast.sealed import seal
from holdfast.storage import LocalFileStore, open_file_store

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    return tmp_path


def test_a_checkpoint_that_was_never_forked_goes_by_sparks_id(checkpoint: Path) -> None:
    store = open_file_store(str(checkpoint))
    assert (newest_fork(store), timeline_of(store, QUERY), spark_query_id(store)) == (None, QUERY, QUERY)


def test_each_fork_has_an_identity_of_its_own_and_the_newest_counts(checkpoint: Path) -> None:
    store = open_file_store(str(checkpoint))
    first, second = hf.fork_checkpoint(checkpoint), hf.fork_checkpoint(checkpoint)
    assert (first.parent, second.parent, second.query_id) == (QUERY, first.timeline, QUERY)
    assert timeline_of(store, QUERY) == second.timeline == str(uuid.UUID(second.timeline))
    assert sorted(os.listdir(checkpoint / "holdfast" / "forks")) == ["000001.json", "000002.json"]


def test_a_fork_fences_the_driver_that_runs_on_the_folder(checkpoint: Path) -> None:
    epochs = Epochs(open_file_store(str(checkpoint)), QUERY, Driver("run", "host", 1, 0))
    epochs.claim()
    fork = fork_checkpoint(checkpoint)
    with pytest.raises(Fenced, match=fork.timeline):
        epochs.check()


def test_a_fork_says_who_made_it_and_when(checkpoint: Path) -> None:
    clock = Clock()
    clock.ms = 1_800_000_000_000
    epochs = Epochs(open_file_store(str(checkpoint)), QUERY, Driver("run", "host", 1, 0))
    epochs.claim()
    fork = fork_checkpoint(checkpoint, clock=clock)
    me = socket.gethostname(), os.getpid()
    assert (fork.host, fork.pid, fork.forked_ms) == (*me, 1_800_000_000_000)
    assert epochs.driver_of(epochs.numbers()[-1]) == Driver(fork.timeline, *me, 1_800_000_000_000)


def test_of_two_forks_at_the_same_moment_each_has_a_number_of_its_own(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_file_store(str(checkpoint))
    create = type(store).create_if_absent
    first: list[Fork] = []

    def after_another(self: LocalFileStore, name: str, data: bytes) -> bool:
        if "forks/" in name and not first:
            first.append(Fork(QUERY, str(uuid.uuid4()), QUERY, "other", 2, 0))
            create(self, name, seal(FORMAT, VERSION, asdict(first[0])).encode())
        return create(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "create_if_absent", after_another)
        second = fork_checkpoint(checkpoint)
    assert sorted(os.listdir(checkpoint / "holdfast" / "forks")) == ["000001.json", "000002.json"]
    assert newest_fork(store) == second != first[0]


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no checkpoint of a streaming query: expected Spark's file `metadata`"):
        fork_checkpoint(tmp_path)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(InvalidRequest, match="no checkpoint"):
        fork_checkpoint(tmp_path)


def test_a_damaged_fork_and_one_of_another_query_are_told(checkpoint: Path) -> None:
    store = open_file_store(str(checkpoint))
    fork_checkpoint(checkpoint)
    with pytest.raises(Corrupt, match=f"is of query {QUERY}, and the checkpoint is of query other"):
        timeline_of(store, "other")
    file = checkpoint / "holdfast" / "forks" / "000001.json"
    file.write_text(file.read_text().replace(QUERY, QUERY.replace("0f", "1f", 1)))
    with pytest.raises(Corrupt, match=f"the fork holdfast/forks/000001.json in {store.uri} is damaged"):
        timeline_of(store, QUERY)
    file.write_text(seal(FORMAT, VERSION, {"query_id": QUERY}))
    with pytest.raises(Corrupt, match=f"the fork holdfast/forks/000001.json in {store.uri} lacks what a fork has"):
        timeline_of(store, QUERY)


def test_a_fork_that_is_listed_and_not_there_is_told(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Spark's id the query would write again what the fork has written."""
    store = open_file_store(str(checkpoint))
    fork_checkpoint(checkpoint)
    monkeypatch.setattr(type(store), "get", lambda *_: None)
    with pytest.raises(Corrupt, match=f"the fork holdfast/forks/000001.json was listed in {store.uri} and is missing"):
        timeline_of(store, QUERY)


def test_the_command_says_what_it_would_do_and_does_it_with_yes(checkpoint: Path) -> None:
    run = CliRunner().invoke
    said = run(main, ["fork", str(checkpoint)])
    assert (said.exit_code, newest_fork(open_file_store(str(checkpoint)))) == (0, None)
    assert "would fork" in said.output and "add --yes" in said.output
    would = json.loads(run(main, ["fork", str(checkpoint), "--json"]).output)
    assert (would["would"], would["identity"]) == ("fork", QUERY)
    done = json.loads(run(main, ["fork", str(checkpoint), "--json", "--yes"]).output)
    assert done["forked"] == timeline_of(open_file_store(str(checkpoint)), QUERY)
    assert "forked" in run(main, ["fork", str(checkpoint), "--yes"]).output
    nothing = run(main, ["fork", str(checkpoint / "holdfast")])
    assert nothing.exit_code == 1 and "no checkpoint" in nothing.output
    assert run(main, ["fork"]).exit_code == 2


def own(files: dict[str, bytes]) -> dict[str, bytes]:
    """What Holdfast has in a checkpoint, beside Spark's own files."""
    return {name: data for name, data in files.items() if name.startswith("holdfast/")}


def test_a_copy_is_refused_until_it_is_forked_and_then_writes_what_came_after_it_once_more() -> None:
    world = World(batches=6)
    assert drive(world, 2) is None
    files, state = dict(world.files), dict(world.spark_state)
    assert drive(world, 4) is None
    mine = world.files, world.spark_state
    world.files, world.spark_state = files, state
    before = {name: list(rows) for name, rows in world.visible.items()}
    as_copied, owners = own(files), dict(world.owners)
    end = drive(world, 4)
    assert isinstance(end, Incompatible)
    assert str(end).startswith("Sink 'sink0' was written on without the checkpoint world: ")
    assert "the newest record here is of batch 1, at the sink's other side there is batch 3" in str(end)
    assert "run `holdfast fork world`" in str(end)
    assert (world.visible, own(files), world.owners) == (before, as_copied, owners), (
        "nothing was written, nobody fenced"
    )
    world.fork("query")
    assert drive(world, 4) is None
    assert sorted(row[0] for row in world.visible["sink0"]) == sorted([0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3])
    world.files, world.spark_state = mine
    run = Run(world)
    run.play(4)
    assert run.committer.scope("sink0").query_id == "query", "the original goes on as if there were no copy"


def test_a_fork_that_dies_half_way_has_fenced_the_driver_that_runs_on_the_folder(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later fork only knows of the identity that it ends."""
    store = open_file_store(str(checkpoint))
    epochs = Epochs(store, QUERY, Driver("run", "host", 1, 0))
    epochs.claim()
    create = type(store).create_if_absent

    def dies(self: object, name: str, data: bytes) -> bool:
        create(self, name, data)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(store), "create_if_absent", lambda *a: dies(*a) if "forks/" in a[1] else create(*a))
        fork_checkpoint(checkpoint)
    fork_checkpoint(checkpoint)
    with pytest.raises(Fenced):
        epochs.check()
