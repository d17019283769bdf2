"""What Spark is told of a batch that was interrupted:
little enough for its regular expression, and all that it looks for.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import Fenced, HoldfastError, Unavailable
from holdfast.spark.interruption import Interrupted, interruption
from holdfast.spark.write import BatchOutput

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


def output_that_ends_with(error: HoldfastError, *, is_active: bool) -> BatchOutput:
    class Output(BatchOutput):
        def _run(self, *_: Any) -> None:
            raise error

    given: Any = None
    output = Output(given, [], given, given)
    query: Any = SimpleNamespace(isActive=is_active)
    output.query = query
    return output


def test_what_does_not_answer_while_the_query_is_stopped_is_an_interruption() -> None:
    """The query was stopped, and said that it had failed."""
    batch: Any = None
    output = output_that_ends_with(Unavailable("no answer " * 300), is_active=False)
    with pytest.raises(Interrupted) as told:
        output(batch, 0)
    assert _LOOKED_FOR.search(str(told.value))
    assert "no answer" in str(told.value) and len(str(told.value)) < 1000
    assert output.error is None


@pytest.mark.parametrize(
    ("error", "is_active"), [(Unavailable("no answer"), True), (Fenced("another one"), False), (Fenced("one"), True)]
)
def test_what_ends_a_query_by_itself_is_what_it_is(error: HoldfastError, is_active: bool) -> None:
    batch: Any = None
    output = output_that_ends_with(error, is_active=is_active)
    with pytest.raises(type(error)) as told:
        output(batch, 0)
    assert told.value is output.error is error
