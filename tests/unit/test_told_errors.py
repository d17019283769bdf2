"""Errors of Python workers are read back from the texts that Spark makes of them: as of several releases, from Spark's
own sinks and from foreachBatch.
"""

from __future__ import annotations

import traceback

import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.spark.query import plain_error
from holdfast.spark.told_errors import lost_process, told_error

MESSAGE = """operator 'totals' is not what q/totals/operator.json in /state recorded at its first run:
  slots: recorded 2, declared 3 (take a savepoint)
  null keys: recorded False, declared True (a way out)"""
OURS = f"""Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/holdfast/spark/pack.py", line 179, in pack
    return Pack(plan, plan.labels(), task.partitionId()).run(batches)
                      ^^^^^^^^^^^^^
  File "/env/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 9, in main
holdfast.errors.Incompatible: {MESSAGE}
"""
USERS = """Traceback (most recent call last):
  File "/env/site-packages/holdfast/spark/slots.py", line 117, in _process
    for produced in bound.process(batch, ctx):
  File "/home/me/job.py", line 7, in process
    return price(batch)
           ^^^^^^^^^^^^
  File "/home/me/prices.py", line 3, in price
    return prices["b"]
           ~~~~~~^^^^^
KeyError: 'b'
while Failing ran operator 'totals', slot 1 of 2, batch 0
"""
SPARKS_OWN = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: [PYTHON_EXCEPTION] \
An exception was thrown from the Python worker: {told} SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 29, runId = d1]"""
OLDER = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 2) (host executor 1): \
org.apache.spark.api.python.PythonException: {told}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ==="""
FOREACH = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch \
sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/env/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/env/site-packages/holdfast/spark/write.py", line 140, in __call__
    self._run(batch, batch_id)
pyspark.errors.exceptions.captured.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
{told} SQLSTATE: 38000

 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ==="""
#: As pyspark 4.0 has it on the driver.
OLDER_FOREACH = FOREACH.replace(
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n",
)
CLASSES = ["Corrupt", "Fenced", "Incompatible", "InternalError", "InvalidRequest", "Unavailable", "Undecided"]
TEXTS = [SPARKS_OWN, OLDER, FOREACH]


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
def test_an_error_of_holdfast_comes_back_whole(text: str) -> None:
    told = told_error(text.format(told=OURS))
    assert told is not None
    error = told.as_holdfast()
    assert type(error) is hf.Incompatible
    assert str(error) == MESSAGE


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
def test_an_error_of_the_users_comes_with_their_lines_and_no_others(text: str) -> None:
    told = told_error(text.format(told=USERS))
    assert told is not None
    assert told.as_holdfast() is None
    assert str(told).splitlines() == [
        '  File "/home/me/job.py", line 7, in process',
        "    return price(batch)",
        "           ^^^^^^^^^^^^",
        '  File "/home/me/prices.py", line 3, in price',
        '    return prices["b"]',
        "           ~~~~~~^^^^^",
        "KeyError: 'b'",
        "while Failing ran operator 'totals', slot 1 of 2, batch 0",
    ]


def test_an_error_that_a_line_of_the_users_led_to_names_the_line() -> None:
    told = told_error(SPARKS_OWN.format(told=USERS.replace("KeyError: 'b'", "holdfast.errors.InvalidRequest: no")))
    assert told is not None
    error = told.as_holdfast()
    assert type(error) is hf.InvalidRequest
    assert str(error) == (
        "no\nwhile Failing ran operator 'totals', slot 1 of 2, batch 0\nat /home/me/prices.py, line 3, in price"
    )


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
def test_of_errors_that_led_to_each_other_the_last_one_is_told(text: str) -> None:
    """As Python prints them: what the processor raised in the end, whatever Holdfast said before that."""

    def both(first: Exception, second: Exception, chain: bool) -> str:
        try:
            try:
                raise first
            except type(first) as error:
                second.__cause__ = error if chain else None
                raise second  # noqa: B904
        except type(second):
            return traceback.format_exc()

    for chain in (False, True):
        users = told_error(text.format(told=both(hf.Corrupt("damaged"), ValueError("mine"), chain)))
        assert users is not None
        assert (users.type, users.message, users.as_holdfast()) == ("ValueError", "mine", None)
        ours = told_error(text.format(told=both(OSError("disk"), hf.Unavailable("no room\n\nat all"), chain)))
        assert ours is not None
        assert str(ours.as_holdfast()).startswith("no room\n\nat all")


def test_where_python_has_no_notes_what_ran_stands_behind_the_error() -> None:
    """As `BoundProcessor` tells it on Python 3.10."""
    note = "while Failing ran operator 'totals', slot 1 of 2, batch 0"
    first, _, _ = USERS.rpartition(note)
    chained = (
        f"{first}\nThe above exception was the direct cause of the following exception:\n\n"
        f"Traceback (most recent call last):\n"
        f'  File "/env/site-packages/holdfast/state/bound.py", line 164, in _note\n'
        f"    raise RuntimeError(note) from error\nRuntimeError: {note}\n"
    )
    without, with_notes = (told_error(SPARKS_OWN.format(told=told)) for told in (chained, USERS))
    assert without == with_notes


def test_a_recursion_without_end_is_told_too() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    lines = "".join(traceback.format_exception(caught.value))
    assert "Previous line repeated" in lines
    told = told_error(SPARKS_OWN.format(told=lines))
    assert told is not None
    assert told.type == "RecursionError"
    assert len(str(told).splitlines()) < 30


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_comes_back(name: str) -> None:
    told = told_error(SPARKS_OWN.format(told=f"Traceback (most recent call last):\nholdfast.errors.{name}: so it is\n"))
    assert told is not None
    assert type(told.as_holdfast()) is getattr(hf, name)


@pytest.mark.parametrize("text", [*TEXTS, FOREACH.replace("worker: ", "worker:\n"), OLDER_FOREACH])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_comes_back_where_spark_hides_tracebacks(name: str, text: str) -> None:
    """spark.sql.execution.pyspark.udf.hideTraceback.enabled leaves the last lines: class, message and notes."""
    told = told_error(text.format(told=f"holdfast.errors.{name}: {MESSAGE}\nwhile Failing ran operator 'totals'\n"))
    assert told is not None
    error = told.as_holdfast()
    assert type(error) is getattr(hf, name)
    assert str(error) == f"{MESSAGE}\nwhile Failing ran operator 'totals'"
    assert told.place == told.frames == ""


def _with_locals(error: Exception, held: object, held_outside: object) -> str:
    """The traceback of an error, as pyspark tells it with the locals of each frame."""

    def process(held: object) -> None:
        raise error

    def main(infile: object) -> None:
        process(held)

    try:
        main(held_outside)
    except type(error) as caught:
        told = traceback.TracebackException(
            type(caught), caught, caught.__traceback__, compact=True, capture_locals=True
        )
        return "".join(told.format())
    raise AssertionError


HELD = {
    "a number": 7,
    "a DataFrame": pd.DataFrame({"slot": [1, 2], "blob": [b"x", None]}),
    "a batch": pa.record_batch({"user": ["a"]}),
    "a table": pa.table({"user": ["a", "b"]}),
}


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
@pytest.mark.parametrize("outside", HELD)
@pytest.mark.parametrize("inside", HELD)
def test_an_error_of_holdfast_comes_back_whole_where_spark_tells_locals(inside: str, outside: str, text: str) -> None:
    """spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled: its class was lost, or became a column's name."""
    told = told_error(text.format(told=_with_locals(hf.Incompatible(MESSAGE), HELD[inside], HELD[outside])))
    assert told is not None
    error = told.as_holdfast()
    assert type(error) is hf.Incompatible
    message, _, place = str(error).rpartition("\nat ")
    assert message == MESSAGE
    assert place.startswith(__file__)
    assert place.endswith("in process")


@pytest.mark.parametrize("inside", HELD)
def test_where_spark_tells_locals_an_error_that_led_to_another_is_not_told_for_it(inside: str) -> None:
    first, second = (
        _with_locals(error, HELD[inside], HELD["a DataFrame"]) for error in (hf.Corrupt("damaged"), hf.Fenced("by one"))
    )
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    told = told_error(SPARKS_OWN.format(told=f"{first}{between}{second}"))
    assert told is not None
    assert type(told.as_holdfast()) is hf.Fenced
    assert told.message == "by one"


@pytest.mark.parametrize("outside", HELD)
@pytest.mark.parametrize("inside", HELD)
def test_an_error_of_the_users_loses_no_word_where_spark_tells_locals(inside: str, outside: str) -> None:
    text = SPARKS_OWN.format(told=_with_locals(KeyError("b"), HELD[inside], HELD[outside]))
    found = plain_error(RuntimeError(text))
    if (outside if inside == "a number" else inside) == "a DataFrame":
        assert found is None, "its rows are taken for no error: Spark's own text tells all"
    else:
        assert found is not None and not isinstance(found, hf.HoldfastError)
        assert "KeyError: 'b'" in str(found)
        assert "raise error" in str(found)


class PipelineError(Exception):
    """As of the program's main file, whose classes Python prints without a module."""


PipelineError.__module__ = "__main__"


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
@pytest.mark.parametrize("with_locals", [False, True])
def test_an_error_of_the_users_that_quotes_one_of_holdfast_stays_theirs(with_locals: bool, text: str) -> None:
    """It was raised as the one that it quotes."""
    try:
        raise hf.Unavailable("no answer of the price service")
    except hf.Unavailable:
        quoted = traceback.format_exc()
    error = PipelineError(f"prices could not be read:\n{quoted}")
    try:
        raise error
    except PipelineError:
        told = traceback.format_exc()
    if with_locals:
        told = _with_locals(PipelineError(*error.args), 7, HELD["a number"])
    found = plain_error(RuntimeError(text.format(told=told)))
    assert found is not None and not isinstance(found, hf.HoldfastError)
    assert "PipelineError: prices could not be read:\nTraceback (most recent call last):" in str(found)
    assert "holdfast.errors.Unavailable: no answer of the price service" in str(found)


@pytest.mark.parametrize("text", TEXTS, ids=["4.3", "4.0", "foreachBatch"])
def test_what_an_error_of_the_users_quotes_is_not_told_behind_locals_of_several_lines(text: str) -> None:
    quoted = "Traceback (most recent call last):\nholdfast.errors.Unavailable: no answer of the price service"
    told = _with_locals(PipelineError(f"prices could not be read:\n{quoted}"), HELD["a DataFrame"], 7)
    assert not isinstance(plain_error(RuntimeError(text.format(told=told))), hf.HoldfastError)


@pytest.mark.parametrize("said", ["ValueError: of holdfast.errors.Fenced: it was", "holdfast.errors.Fenceds: so it is"])
def test_a_hidden_traceback_of_no_error_of_holdfast_tells_none(said: str) -> None:
    assert told_error(SPARKS_OWN.format(told=said)) is None
    assert told_error(f"PythonWorker: {said}") is None


@pytest.mark.parametrize("last", ["KeyError", "job.Refused: no", "job.make.<locals>.Refused: no: 'x'"])
def test_classes_and_texts_of_all_kinds(last: str) -> None:
    told = told_error(SPARKS_OWN.format(told=f"Traceback (most recent call last):\n{last}\n"))
    assert told is not None
    assert str(told) == last


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[TABLE_OR_VIEW_NOT_FOUND] holdfast.errors.Incompatible: in a text without a traceback",
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n\n\n=== Streaming Query ===",
    ],
)
def test_a_text_that_tells_none(text: str) -> None:
    assert told_error(text) is None


@pytest.mark.parametrize("filling", ["\n", " ", "\t", "\n\t", "\n ", "a\n", "SQLSTATE: ", "Caused by: ", "{"])
def test_a_long_text_of_whatever_is_read_at_once(filling: str) -> None:
    """By expressions that went back and back over empty lines, the driver hung in place of telling the error."""
    message = "so it is" + filling * (1_000_000 // len(filling)) + "."
    for text in TEXTS:
        told = told_error(text.format(told=f"Traceback (most recent call last):\njob.Refused: {message}\n"))
        assert told is not None
        assert told.type == "job.Refused"
        assert told.message == message


CRASHED = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 2) (host executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed){said}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\t... 44 more

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ==="""
SEGMENTATION_FAULT = """: Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/me/job.py", line 7 in process
"""
EXECUTOR_LOST = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: Job aborted due to stage \
failure: Task 1 in stage 9.0 failed 4 times, most recent failure: Lost task 1.3 in stage 9.0 (TID 31) (10.0.0.7 \
executor 4): ExecutorLostFailure (executor 4 exited caused by one of the running tasks) Reason: Command exited with \
code 137
Driver stacktrace: SQLSTATE: XXKST"""


@pytest.mark.parametrize("said", ["", ". Consider setting 'spark.python.worker.faulthandler.enabled' to 'true'."])
def test_a_worker_that_was_killed_is_unavailable_in_one_line(said: str) -> None:
    found = plain_error(RuntimeError(CRASHED.format(said=said)))
    assert type(found) is hf.Unavailable
    assert "a Python worker of Spark's ended in the middle of a task" in str(found)
    assert "Start the program again" in str(found)
    assert "delete spark.holdfast.local.dir there, and the state is restored from storage" in str(found)
    assert len(str(found).splitlines()) == 1


def test_a_worker_that_crashed_says_where_if_spark_was_told_to_ask() -> None:
    found = str(lost_process(CRASHED.format(said=SEGMENTATION_FAULT)))
    assert found.endswith("Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
                          '  File "/home/me/job.py", line 7 in process')  # fmt: skip
    endless = ": " + "\n" * 100_000
    assert len(str(lost_process(CRASHED.format(said=endless))).splitlines()) <= 21


def test_an_executor_that_was_lost_is_unavailable() -> None:
    found = plain_error(RuntimeError(EXECUTOR_LOST))
    assert type(found) is hf.Unavailable
    assert "executor 4 exited caused by one of the running tasks) Reason: Command exited with code 137. Start" in str(
        found
    )


SHUFFLE_LOST = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: Job aborted due to stage \
failure: ShuffleMapStage 20 (start at <unknown>:0) has {often}: 4. Most recent failure reason:
org.apache.spark.shuffle.{fetch}
\tat org.apache.spark.errors.SparkCoreErrors$.fetchFailedError(SparkCoreErrors.scala:437)
Driver stacktrace: SQLSTATE: XXKST"""
SHUT_DOWN = """[STREAM_FAILED] Query [id = 29, runId = d1] terminated with exception: Job 12 cancelled because \
SparkContext was shut down SQLSTATE: XXKST
=== Streaming Query ==="""


@pytest.mark.parametrize(
    "often",
    ["failed the maximum allowable number of times", "exceeded the maximum allowable total stage attempts"],
)
@pytest.mark.parametrize(
    "fetch",
    [
        "FetchFailedException: Connection reset by peer: /10.0.0.7:35001",
        "MetadataFetchFailedException: Missing an output location for shuffle 9 partition 1",
    ],
)
def test_executors_that_took_along_what_they_had_shuffled_are_unavailable(often: str, fetch: str) -> None:
    found = plain_error(RuntimeError(SHUFFLE_LOST.format(often=often, fetch=fetch)))
    assert type(found) is hf.Unavailable
    assert f"org.apache.spark.shuffle.{fetch}. Start the program again" in str(found)
    assert "spark.executor.memoryOverhead" in str(found)
    assert len(str(found).splitlines()) == 1


def test_a_stage_that_failed_for_another_reason_is_no_lost_executor() -> None:
    told = SHUFFLE_LOST.format(often="failed the maximum allowable number of times", fetch="Refused: no")
    assert plain_error(RuntimeError(told)) is None


def test_a_spark_that_was_shut_down_in_a_batch_is_unavailable() -> None:
    found = plain_error(RuntimeError(SHUT_DOWN))
    assert type(found) is hf.Unavailable
    assert "Spark was shut down in the middle of a batch" in str(found)


def test_who_lost_a_worker_or_an_executor_is_told_of_the_containers_memory() -> None:
    for text in (CRASHED.format(said=""), EXECUTOR_LOST):
        found = str(plain_error(RuntimeError(text)))
        assert "spark.executor.memoryOverhead, or lower spark.holdfast.memory.*" in found


IN_FOREACH = FOREACH.partition("pyspark.errors")[0] + (
    "py4j.protocol.Py4JJavaError: An error occurred while calling o77.collectToPython.\n"
    ": org.apache.spark.SparkException: {told}\n\n SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ==="
)


@pytest.mark.parametrize(
    "text",
    [
        CRASHED.format(said=""),
        EXECUTOR_LOST,
        SHUFFLE_LOST.format(often="failed the maximum allowable number of times", fetch="FetchFailedException: gone"),
        SHUT_DOWN,
    ],
    ids=["worker", "executor", "shuffle", "all of Spark"],
)
def test_what_was_lost_in_a_batch_of_foreach_is_unavailable_too(text: str) -> None:
    """`hf.write_exactly_once` told it as an exception of the user's own code, py4j's."""
    _, _, told = text.partition("with exception: ")
    found = plain_error(RuntimeError(IN_FOREACH.format(told=told)))
    assert type(found) is hf.Unavailable
    assert str(found) == str(plain_error(RuntimeError(text)))


def test_what_the_jvm_says_of_something_else_in_foreach_stays_what_it_is() -> None:
    found = plain_error(RuntimeError(IN_FOREACH.format(told="the disk is full")))
    assert type(found) is not hf.Unavailable
    assert "py4j.protocol.Py4JJavaError" in str(found)
    assert "the disk is full" in str(found)


def test_an_exception_that_only_speaks_of_a_crash_is_that_exception() -> None:
    users = USERS.replace("'b'", "'Python worker exited unexpectedly (crashed)'")
    assert "KeyError" in str(plain_error(RuntimeError(SPARKS_OWN.format(told=users))))
    assert plain_error(RuntimeError("[STREAM_FAILED] the folder is gone")) is None
