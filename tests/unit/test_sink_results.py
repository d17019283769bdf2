"""What a sink's task tells the driver, and what Spark tells it of the task's stage."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.commit.batch import TaskResult
from holdfast.commit.sink import Committable
from holdfast.spark.sink_task import decode_results, encode_result
from holdfast.spark.stages import run_anew

RESULT = TaskResult(3, 0, 17, 5, {"files": Committable(3, 0, 5, 100, {"staged": "x"})})


def test_a_result_comes_back_as_it_was() -> None:
    asked: list[set[int]] = []

    def first_run(stages: set[int]) -> set[int]:
        asked.append(stages)
        return set()

    assert decode_results([encode_result(RESULT, 7)] * 2, first_run) == [RESULT] * 2
    assert asked == [{7}]


def test_tasks_of_a_stage_that_ran_anew_and_of_one_that_is_not_told() -> None:
    untold = json.loads(encode_result(RESULT, 8))
    del untold["stage"]  # as executors of an earlier version
    data = [encode_result(RESULT, 7), encode_result(RESULT, 8), json.dumps(untold).encode()]
    assert [one.run_anew for one in decode_results(data, lambda stages: {7})] == [True, False, True]


@pytest.mark.parametrize(("info", "anew"), [(0, False), (1, True), (None, True)])
def test_a_stage_that_spark_knows_of_one_run_of_did_not_run_anew(info: int | None, anew: bool) -> None:
    known = None if info is None else SimpleNamespace(currentAttemptId=info)
    spark: Any = SimpleNamespace(statusTracker=lambda: SimpleNamespace(getStageInfo=lambda stage: known))
    assert run_anew(spark, [7, 7]) == ({7} if anew else set())
