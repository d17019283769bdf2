"""What an operator says of the session that it is made in."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark.sessions import warn_of_idle_tasks


def _session(partitions: int | None, cores: int | None) -> Any:
    conf = {} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}
    context = {} if cores is None else {"sparkContext": SimpleNamespace(defaultParallelism=cores)}
    return SimpleNamespace(conf=conf, **context)


@pytest.mark.parametrize(
    ("partitions", "cores", "told"),
    [
        (None, 2, "is 200, for 2 cores: .* about 10 s. Set it to 2,"),
        (200, 4, "is 200, for 4 cores: .* about 5 s. Set it to 4,"),
        (200, 16, None),
        (32, 2, None),
        (200, None, None),  # Spark Connect: nobody tells the cores
    ],
)
def test_many_more_partitions_than_cores_are_told_with_what_they_cost(
    partitions: int | None, cores: int | None, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.spark"):
        warn_of_idle_tasks(_session(partitions, cores), "totals")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (told is not None)
    if told is not None:
        assert messages[0].startswith("operator 'totals': spark.sql.shuffle.partitions ")
        assert re.search(told, messages[0])
