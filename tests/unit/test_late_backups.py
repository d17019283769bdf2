"""A backup of a query that runs, Spark's folder first: how late its state may be copied, and who tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.test_checkpoint_reading import BATCHES, FOLDED, Recorded, expected, totals

from holdfast.cli import main
from holdfast.errors import Corrupt


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The state of a query that has gone on, and has retained few batches."""
    monkeypatch.setattr("holdfast.testing.harness._RETAINED_BATCHES", 2)
    return Recorded(tmp_path, 2 * BATCHES, settled=True, **FOLDED, **{"snapshot.stateFraction": 0.01})


def spark_stood_at(copied: Recorded, newest: int) -> None:
    for batch_id in range(newest + 1, 2 * BATCHES):
        (copied.folder / f"checkpoint/commits/{batch_id}").unlink()


def lost(copied: Recorded) -> list[int]:
    """The batches that the command names."""
    told = CliRunner().invoke(main, ["checkpoints", "verify", str(copied.folder / "checkpoint")])
    assert told.exit_code == 1
    return [int(number) for number in re.findall(r"^lost +batch (\d+):", told.output, re.MULTILINE)]


def test_a_state_that_was_copied_after_more_batches_than_are_retained_is_not_whole(late: Recorded) -> None:
    """The guide said that such a copy needs no more than spark.holdfast.abandonedRuns."""
    with late.open() as checkpoint:
        newest = checkpoint.verify().unretained[-1]
    spark_stood_at(late, newest)
    with late.open() as checkpoint:
        found = checkpoint.verify()
        assert newest in found.lost and not found.whole
        with pytest.raises(Corrupt, match="missing"):
            totals(checkpoint)
    assert newest in lost(late)


def test_a_state_that_was_copied_soon_enough_has_the_newest_batch_of_the_copy(late: Recorded) -> None:
    """Of those before it some are gone, and are told: nothing in the copy says that they may be."""
    with late.open() as checkpoint:
        newest = checkpoint.verify().readable[0]
    assert newest < 2 * BATCHES - 1
    spark_stood_at(late, newest)
    with late.open() as checkpoint:
        found = checkpoint.verify()
        assert found.readable[-1] == newest and newest not in found.lost
        assert totals(checkpoint) == expected(newest)
    assert max(lost(late)) < newest
