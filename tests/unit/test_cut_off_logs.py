"""Spark's logs in a copy of a checkpoint that was cut off: what they lack is told, what they need not have is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.first_versions import QUERY, slots_of
from tests.spark_files import SparkFiles
from tests.unit.test_checkpoint_reading import BATCHES, Recorded, expected, totals

import holdfast as hf
from holdfast.checkpoint import Handle, VersionsOrigin, operator_prefix, recorded_operator
from holdfast.checkpoint.continued import continued
from holdfast.cli import main
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.earlier import EarlierQuery
from holdfast.inspect.settled import HAS_BEGUN
from holdfast.settings import Settings
from holdfast.spark.plan import OperatorPlan
from holdfast.spark_files import logs
from holdfast.storage import LocalFileStore, StorageOptions, open_file_store
from holdfast.testing.harness import QUERY_ID


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def take(recorded: Recorded, *names: str) -> None:
    for name in names:
        path = recorded.folder / "checkpoint" / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    ("gone", "lacks", "restorable"),
    [
        (["commits"], "commits/4", 0),
        (["offsets"], "offsets/5", 0),
        (["commits", "offsets"], "commits/", 0),
        (["commits", "offsets", "state"], "commits/", 0),
        (["offsets/5"], "offsets/5", BATCHES - 1),
        (["commits", *(f"offsets/{number}" for number in range(1, BATCHES))], "commits/", 0),
    ],
    ids=["commits", "offsets", "logs", "all", "newest", "first"],
)
def test_commands_say_that_the_logs_were_cut_off(
    recorded: Recorded, gone: list[str], lacks: str, restorable: int
) -> None:
    """`verify` called it whole, of no batch; `list` showed an empty table."""
    take(recorded, *gone)
    checkpoint = recorded.folder / "checkpoint"
    told = run("checkpoints", "verify", checkpoint)
    assert told.exit_code == 1 and f"lacks {lacks}: " in told.output and "a copy that was cut off" in told.output
    assert f"{restorable} of {restorable + 1} batches can be restored" in told.output
    told = run("checkpoints", "list", checkpoint)
    assert told.exit_code == 1 and "cannot be read" in told.stdout and f"lacks {lacks}: " in told.stderr
    for apply in ([], ["--yes"]):
        assert run("checkpoints", "repair", checkpoint, *apply).exit_code == 1
    assert "a copy that was cut off" in run("checkpoints", "gc", checkpoint).output
    with recorded.open() as opened:
        with pytest.raises(Corrupt, match=f"lacks {lacks}: batch . was committed, since there is "):
            totals(opened)
        with pytest.raises(Corrupt, match="a copy that was cut off"):
            totals(opened, BATCHES - 1)
        for batch_id in range(restorable):
            assert totals(opened, batch_id) == expected(batch_id)


@pytest.mark.parametrize("planned", [False, True])
def test_a_query_of_no_committed_batch_is_not_damaged(tmp_path: Path, planned: bool) -> None:
    recorded = Recorded(tmp_path, 1)  # its first batch was prepared, and perhaps begun
    take(recorded, "commits", "state/0/0", *([] if planned else ["offsets"]))
    assert run("checkpoints", "verify", tmp_path / "checkpoint").exit_code == 0
    assert run("checkpoints", "list", tmp_path / "checkpoint").exit_code == 0
    with recorded.open() as opened, pytest.raises(InvalidRequest, match="no committed batch yet"):
        totals(opened)


def prepared(recorded: Recorded, folder: Path, query: str, name: str = "sums") -> Iterator[Handle]:
    """The first batches of an operator that begins with the state of ``recorded``."""
    earlier = recorded_operator(open_file_store(str(recorded.folder / "state")), operator_prefix(QUERY_ID, "sums"))
    assert earlier is not None
    handle = recorded.handles[-1].stored()
    assert handle.sequence > 1
    origin = VersionsOrigin(str(recorded.folder / "state"), QUERY_ID, "sums", BATCHES - 1, (handle,), ("sums",))
    (slot,) = slots_of(continued(earlier, replace(earlier, name=name), origin), folder, query)
    version = slot.first_version()
    for batch_id in range(2):
        slot.open(version)
        slot.begin(batch_id)
        version = slot.prepare()
        yield version


def test_a_query_that_begins_with_a_restore_is_not_damaged_before_its_first_commit(
    recorded: Recorded, tmp_path: Path
) -> None:
    """Its versions go on above those of the earlier query: the first was taken for one that had been committed."""
    spark = SparkFiles(tmp_path / "new/checkpoint", QUERY)
    batches = prepared(recorded, tmp_path / "new", QUERY)
    next(batches)
    spark.plan(0)
    for command in ("verify", "list"):
        told = run("checkpoints", command, spark.folder)
        assert told.exit_code == 0, told.output
    assert "no committed batch yet" in run("checkpoints", "gc", spark.folder).output
    with hf.Checkpoint(spark.folder) as opened, pytest.raises(InvalidRequest, match="no committed batch yet"):
        opened.at()
    next(batches)  # on top of the first one, which is committed therefore
    told = run("checkpoints", "verify", spark.folder)
    assert told.exit_code == 1 and "lacks commits/: " in told.output and "a version of operator 'sums'" in told.output


def test_a_restored_operator_that_was_renamed_before_its_first_commit_is_no_reason(recorded: Recorded) -> None:
    """Its folder stays, and each later read was refused, as that of a copy without Spark's state of it."""
    batches = prepared(recorded, recorded.folder, QUERY_ID, "before")
    next(batches)
    with recorded.open() as opened:
        assert totals(opened) == expected(BATCHES - 1)
    next(batches)
    with recorded.open() as opened, pytest.raises(Corrupt, match="2 that have committed versions: 'before', 'sums'"):
        totals(opened)


def test_batches_that_were_only_planned_are_not_lost(recorded: Recorded) -> None:
    """As in a backup of a query that ran: its commits were copied first."""
    take(recorded, "commits/4", "commits/5")
    assert run("checkpoints", "verify", recorded.folder / "checkpoint").exit_code == 0
    with recorded.open() as opened:
        assert totals(opened) == expected(3)


@pytest.mark.parametrize("newest", [None, 5])
def test_a_query_that_goes_on_between_two_listings_has_lost_nothing(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, newest: int | None
) -> None:
    """It commits, plans, and cleans away the rest, while its commits were listed and its offsets were not."""
    listed = logs.batch_numbers
    before = [set() if newest is None else {newest}]

    def batch_numbers(store: LocalFileStore, folder: str) -> set[int]:
        return before.pop() if folder == "commits/" and before else listed(store, folder)

    for number in (6, 7):
        recorded.spark.commit(number, [])
    take(recorded, "offsets/5")
    monkeypatch.setattr(logs, "batch_numbers", batch_numbers)
    assert logs.newest_lost(LocalFileStore(str(recorded.folder / "checkpoint"))) is None
    assert not before


def test_a_restore_of_a_copy_that_was_cut_off_is_refused(recorded: Recorded) -> None:
    """It began with no operator, and that was said to be well."""
    take(recorded, "state")
    told = run("restore", "plan", "--checkpoint", recorded.folder / "checkpoint")
    assert told.exit_code == 1 and "a copy that was cut off" in told.output and "it would begin" not in told.output
    take(recorded, "commits", "offsets")
    for operator in ([], ["--operator", "sums"]):
        told = run("restore", "plan", "--checkpoint", recorded.folder / "checkpoint", *operator)
        assert told.exit_code == 1 and "a copy that was cut off" in told.output
    with pytest.raises(Corrupt, match="a copy that was cut off"):
        hf.Restore(recorded.folder / "checkpoint").operators()


@pytest.mark.parametrize("gone", [["commits", "offsets"], ["state"], ["metadata"]], ids=["logs", "state", "all"])
def test_a_query_that_has_begun_is_told_the_way_on_whatever_became_of_the_earlier_one(
    recorded: Recorded, gone: list[str]
) -> None:
    """A program that still gives ``restore`` was told to copy the earlier checkpoint again, which it needs no more."""
    folder = str(recorded.folder / "state")
    declared = recorded_operator(open_file_store(folder), operator_prefix(QUERY_ID, "sums"))
    assert declared is not None
    plan = OperatorPlan(declared, True, "instance", folder, Settings(), (), pa.schema([]), (), 1000)
    assert hf.Restore(recorded.folder / "checkpoint", storage=StorageOptions()).begin(None, plan).origin is not None
    take(recorded, *gone)
    with pytest.raises(InvalidRequest if gone == ["metadata"] else Corrupt) as told:
        hf.Restore(recorded.folder / "checkpoint", storage=StorageOptions()).begin(None, plan)
    assert str(told.value).startswith("operator 'sums': restore: ")
    assert str(told.value).endswith(f". {HAS_BEGUN}")


def test_an_operator_that_a_copy_lacks_is_not_said_to_have_never_been(recorded: Recorded, tmp_path: Path) -> None:
    """Where its state is, only the operator knows that begins with it."""
    own_store = open_file_store(str((tmp_path / "state").rename(tmp_path.parent / f"{tmp_path.name}-elsewhere")))
    earlier = EarlierQuery(str(tmp_path / "checkpoint"), None, None, StorageOptions(), None)
    assert earlier.operator("sums", "here", own_store)[0].name == "sums"
    take(recorded, "state")
    earlier = EarlierQuery(str(tmp_path / "checkpoint"), None, None, StorageOptions(), None)
    assert earlier.sources == ('{"offset":5}', None)  # read before the operator is declared
    with pytest.raises(Corrupt, match="has Spark's state of 0 stateful operators.*a copy that was cut off"):
        earlier.operator("sums", "here", own_store)


def test_a_restore_of_a_query_without_state_of_holdfast_is_refused(tmp_path: Path) -> None:
    """The command said nothing, in a line, and its exit code was that of a plan that is well."""
    spark = SparkFiles(tmp_path / "checkpoint", QUERY_ID)
    spark.commit(0, [])
    for more in ([], ["--json"]):
        told = run("restore", "plan", "--checkpoint", spark.folder, *more)
        assert told.exit_code == 1 and "has no state of an operator of Holdfast" in told.stderr and not told.stdout
    with pytest.raises(InvalidRequest, match="has no state of an operator of Holdfast"):
        hf.Restore(spark.folder).plan()
