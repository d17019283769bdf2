"""What Spark is told of a batch that was interrupted:
little enough for its regular expression, and all that it looks for.
"""

from __future__ import annotations

import re

import pytest

from holdfast.spark.interruption import interruption

RUN = "7c7261714-b3b2-4147-ad6c-2616829b44ec"
_STACK = "\n\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1077)" * 200
# StreamExecution.PROXY_ERROR of Spark 4.
_LOOKED_FOR = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)"
    r"(java\.lang\.InterruptedException|java\.io\.InterruptedIOException|java\.nio\.channels\.ClosedByInterruptException)"
)


@pytest.mark.parametrize(
    "what",
    [
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
        f"org.apache.spark.SparkException: Job 3 cancelled part of cancelled job group {RUN}",
    ],
)
def test_an_interruption_is_told_in_few_characters(what: str) -> None:
    error = interruption(Exception(f"An error occurred while calling o9.collectToPython.\n: {what}{_STACK}"), RUN)
    assert error is not None
    assert len(str(error)) < 1000
    assert _LOOKED_FOR.search(str(error))
    assert "o9.collectToPython" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        f"An error occurred while calling o9.collectToPython.\n: org.apache.spark.SparkException: Job aborted{_STACK}",
        f"An error occurred while calling o9.collectToPython.\n: Job 3 cancelled part of cancelled job group x{_STACK}",
        "[PYTHON_EXCEPTION] a processor said: java.lang.InterruptedException",
    ],
)
def test_other_errors_are_left_as_they_are(text: str) -> None:
    assert interruption(Exception(text), RUN) is None
