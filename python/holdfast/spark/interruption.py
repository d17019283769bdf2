"""A batch that ends because its query is stopped, told so that Spark sees it.

While a query stops, Spark looks for the interruption in the text of the error that foreachBatch's function raises
(StreamExecution.isInterruptionException), by a regular expression that takes a stack frame a character: the some ten
thousand characters of an error with its JVM stack overflow it, and the query's thread dies with a thousand lines of
java.util.regex instead of ending quietly. So the error is cut short.
"""

from __future__ import annotations

import logging

from holdfast.errors import Unavailable

_LOGGER = logging.getLogger("holdfast.spark")

# What Spark looks for in the text, and what it takes in place of them: the cancelled group of the run's jobs.
_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_FROM_THE_JVM = "An error occurred while calling"  #: how the text of an error from the JVM begins
_SHOWN = 800  #: characters


class Interrupted(Exception):
    """A batch was interrupted; the text is what Spark recognises."""


def interruption(error: Exception, run_id: str) -> Interrupted | None:
    """The beginning of the error, if it says that the job was interrupted or cancelled with the run; else None.
    All of it goes to the log, for those who look for what interrupted a query that was not stopped.
    """
    text = str(error)
    if not text.startswith(_FROM_THE_JVM):
        return None
    what = next((name for name in _INTERRUPTIONS if name in text), None)
    if what is None and run_id in text and "cancelled" in text:
        what = f"job group {run_id} was cancelled: {_INTERRUPTIONS[0]}"
    if what is None:
        return None
    _LOGGER.info("The job of a batch was interrupted: %s", text)
    return _interrupted(text, what)


def given_up(error: Unavailable) -> Interrupted:
    """What did not answer in a batch of a query that was stopped meanwhile: the next start asks again."""
    _LOGGER.info("A batch was given up, for its query was stopped: %s", error)
    return _interrupted(f"{_FROM_THE_JVM} what did not answer: {error}", _INTERRUPTIONS[0])


def _interrupted(text: str, what: str) -> Interrupted:
    return Interrupted(f"py4j.protocol.Py4JJavaError: {text[:_SHOWN]}… {what}")
