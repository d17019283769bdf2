"""Checkpoints that earlier code wrote are opened by today's: tests/golden/older/<release>-<where it died>.tar.gz, made
once by tests/upgrade/make_checkpoints.py and never again. Spark's checkpoint, the state, the files, and what the query
had left in Kafka, which happens once more at a new broker before today's code starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.older_archives import OLDER, name_of, unpack
from tests.upgrade.judge import ROWS_A_BATCH, judge
from tests.upgrade.kafka_past import KafkaPast
from tests.upgrade.make_checkpoints import TOPIC, todays_code_goes_on

from holdfast.testing import KafkaBroker

pytestmark = pytest.mark.spark

#: What a start has most to do with; the others are for the night.
SHORT = ("mid_commit",)
LAST_BATCH = 9


def _cases() -> list[object]:
    return [pytest.param(path, id=name_of(path), marks=[] if _is_short(path) else [pytest.mark.slow]) for path in OLDER]


def _is_short(path: Path) -> bool:
    return name_of(path).endswith(SHORT)


def test_there_are_checkpoints_of_each_step() -> None:
    steps = {name_of(path).partition("-")[2] for path in OLDER}
    assert {"idle", "before_record", "after_record", "mid_commit", "after_commit"} <= steps


@pytest.mark.parametrize("older", _cases())
def test_a_checkpoint_that_earlier_code_wrote_goes_on_with_nothing_lost_and_nothing_twice(
    older: Path, tmp_path: Path
) -> None:
    unpack(older, tmp_path)
    with KafkaBroker() as broker:
        KafkaPast.read(tmp_path / "past.json").happen(broker.bootstrap_servers)
        todays_code_goes_on(tmp_path, broker.bootstrap_servers, LAST_BATCH)
        # One more may have been committed before it was stopped.
        assert judge(broker.bootstrap_servers, TOPIC, tmp_path / "out") >= (LAST_BATCH + 1) * ROWS_A_BATCH
