"""Whether Spark ran a stage anew: an executor was lost, and what its tasks had shuffled with it.

A stage's second run numbers its tasks' attempts from 0 again, and no task is told of it. So tasks tell their stage, and
the driver asks Spark which run of it there was last. Runs on the driver, once a batch, in about a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import SparkContext


def run_anew(spark: SparkContext, stages: Iterable[int]) -> set[int]:
    """Those stages of a job that has just ended which Spark ran more than once.

    Spark's status is written down by a thread of its own, and of the newest stages only. What it does not know, or not
    yet, counts as run anew: a look too many harms nobody. A second run is known of in any case but one, that all of
    it took less time than its start took to be written down.
    """
    tracker = spark.statusTracker()
    told = {stage: tracker.getStageInfo(stage) for stage in set(stages)}
    return {stage for stage, info in told.items() if info is None or info.currentAttemptId > 0}
