"""What a Python worker raised, taken from the text in which Spark tells it on the driver.

Spark carries an error from a worker as the text of its traceback, inside the text of an error of its own, inside that
of the query's; foreachBatch adds py4j's and the driver's traceback around it. The class is lost on the way. It stands
in the text, though, behind the traceback's frames, and so do the message and the notes: they are read back here.
"""

from __future__ import annotations

import builtins
import os
import re
from dataclasses import dataclass, replace

from holdfast import errors
from holdfast.errors import HoldfastError, Unavailable

_HEADER = "Traceback (most recent call last):\n"
# Python's own lines between an error and the one that it led to.
_CHAINED = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
# What Spark writes behind the text of a worker's error. The last is from foreachBatch, by way of py4j. No part of these
# may repeat line ends: over ten thousand empty lines a search that does went back and forth for hours.
_END = re.compile(
    r"SQLSTATE: \w{5}\b|\n\tat |\nDriver stacktrace:|\n=== Streaming Query ===|\nJVM stacktrace:|\nCaused by: "
    r"|\n[ \t]*at py4j\."
)
_RAISED = re.compile(r"(?P<type>[\w<][\w.<>]*)(?:: (?P<message>.*))?", re.DOTALL)
_FRAME = re.compile(
    r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.*)\n'
    r"(?:    .*\n|  \[Previous line repeated .*\n)*",
    re.MULTILINE,
)
# Where the libraries of the machine that runs the worker are; in development, Holdfast is where it is here.
_LIBRARIES = re.compile(
    rf"(?:site|dist)-packages/(?:pyspark|py4j|holdfast)/|/python/pyspark/|/(?:pyspark|py4j-[^/]*)\.zip/|^<frozen "
    rf"|^{re.escape(os.path.dirname(errors.__file__))}/"
)
# Where Python has no notes (3.10), what ran is an error of its own, behind the one that it is about.
_NOTE = re.compile(r"while \S+ ran operator ")
#: Libraries whose errors only carry another one, from further down.
_CARRIERS = ("pyspark.", "py4j.")
_CLASSES = {
    f"{errors.__name__}.{name}": found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, HoldfastError)
}
# With spark.sql.execution.pyspark.udf.hideTraceback.enabled a worker's error is its class, message and notes alone.
_BARE = re.compile(
    r"(?:Python worker:[ \n]|Python worker\. Please see the stack trace below\.\n|PythonException: )"
    rf"(?P<type>{'|'.join(map(re.escape, _CLASSES))})(?:: |\n)"
)
# With spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled each frame is followed by what its names hold: of
# tables and frames of data over many lines, at whose beginning anything may stand.
_LOCAL = re.compile(r"    \S+ = ")
_OURS = re.compile(rf"^(?:{'|'.join(map(re.escape, _CLASSES))})(?=: |$)", re.MULTILINE)


# What Spark says of a process that was there no more; it has no traceback. Behind the first may stand what Python's
# fault handler has written, of all threads.
_CRASHED = re.compile(r"Python worker exited unexpectedly \(crashed\)(?P<said>: (?:(?!\t).*\n){1,20})?")
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \((?P<said>executor .*)")
# Of an executor that took along what others were to read: their stage is tried again, and then no more.
_SHUFFLE_LOST = re.compile(
    r"has (?:failed the maximum allowable number of times|exceeded the maximum allowable total stage attempts): \d+\. "
    r"Most recent failure reason: ?\n?(?P<said>.*FetchFailed.*)"
)
_SHUT_DOWN = "cancelled because SparkContext was shut down"
_START_AGAIN = "Start the program again: a query goes on from the last batch that was committed"
_MORE_MEMORY = (
    "give it more memory: spark.executor.memoryOverhead, or lower spark.holdfast.memory.* "
    "(docs/guide/operators.md#memory)"
)


@dataclass(frozen=True)
class ToldError:
    """An error that a worker raised.

    Attributes
    ----------
    type
        Its class, by its full name.
    message
        Its text, with the notes behind it.
    frames
        The traceback's frames in the user's own files, as Python prints them.
    place
        File, line and function of the innermost of these; empty where there is none.
    """

    type: str
    message: str
    frames: str
    place: str

    @property
    def is_carrier(self) -> bool:
        """Whether it only carries what the JVM tells, such as a job that failed of foreachBatch's function."""
        return self.type.startswith(_CARRIERS)

    def as_holdfast(self) -> HoldfastError | None:
        """The error itself, if it is one of Holdfast's; behind its message, the user's line that led to it."""
        found = _CLASSES.get(self.type)
        if found is None:
            return None
        return found(f"{self.message}\nat {self.place}" if self.place else self.message)

    def __str__(self) -> str:
        return f"{self.frames}{self.type}: {self.message}" if self.message else f"{self.frames}{self.type}"


def told_error(text: str) -> ToldError | None:
    """The error that a text of Spark's tells; None where no Python worker raised one. Where Spark hides tracebacks,
    errors of Holdfast alone are told.
    """
    start = text.find(_HEADER)
    found = None
    while start >= 0:
        parsed = _block(text, start + len(_HEADER))
        if parsed is None:
            break
        error, end = parsed
        if error.is_carrier:
            error = told_error(error.message) or error
        if found is not None and error.type == "RuntimeError" and _NOTE.match(error.message):
            error = replace(found, message=f"{found.message}\n{error.message}")
        found = error
        chained = _CHAINED.match(text, end)
        start = text.find(_HEADER, chained.end()) if chained is not None else -1
    return found or _bare(text)


def _bare(text: str) -> ToldError | None:
    """The error of Holdfast that stands in the text without a traceback."""
    raised = _BARE.search(text)
    if raised is None:
        return None
    end = _END.search(text, raised.end())
    return ToldError(raised["type"], text[raised.end() : end.start() if end else len(text)].strip(), "", "")


def _block(text: str, start: int) -> tuple[ToldError, int] | None:
    """The error of one traceback, whose first frame is at ``start``; and where its text ends."""
    at = start
    frames = []
    while (frame := _FRAME.match(text, at)) is not None:
        frames.append(frame)
        at = frame.end()
    ends = [match.start() for match in (_CHAINED.search(text, at), _END.search(text, at)) if match is not None]
    end = min(ends, default=len(text))
    raised = _RAISED.fullmatch(text[at:end].strip())
    if any(map(_has_locals, frames)) and (raised is None or not _names_a_class(raised["type"])):
        told = text.find(_HEADER, at, end)  # another traceback, in the error's message
        ours = _OURS.search(text, at, end if told < 0 else told)
        if ours is not None:
            frames = list(_FRAME.finditer(text, start, ours.start()))
            raised = _RAISED.fullmatch(text[ours.start() : end].strip())
    if raised is None:
        return None
    own = [frame for frame in frames if not _LIBRARIES.search(frame["file"])]
    place = f"{own[-1]['file']}, line {own[-1]['line']}, in {own[-1]['function']}" if own else ""
    shown = "".join(frame.group() for frame in own)
    return ToldError(raised["type"], (raised["message"] or "").strip(), shown, place), end


def _has_locals(frame: re.Match[str]) -> bool:
    """Whether one stands behind a frame's place and its line of source, which may be an assignment itself."""
    return any(map(_LOCAL.match, frame.group().split("\n")[2:]))


def _names_a_class(name: str) -> bool:
    """Whether Python may print a class so: by its module, or as one of its own. One of a program's first file it prints
    without a module, as a name of anything looks.
    """
    return "." in name or isinstance(getattr(builtins, name, None), type)


def lost_process(text: str) -> Unavailable | None:
    """The error for a worker, an executor or all of Spark that ended in the middle of a task, as a text of Spark's
    tells it; None where none did.
    """
    crashed = _CRASHED.search(text)
    if crashed is not None:
        said = f"\n{crashed['said'].strip(': ').rstrip()}" if crashed["said"] else ""
        return Unavailable(
            "a Python worker of Spark's ended in the middle of a task, as often as Spark tries one "
            f"(spark.task.maxFailures): it was killed, ran out of memory, or crashed. {_START_AGAIN}. "
            "If it happens again, look for it in the kernel's messages (dmesg), which name what was killed for its "
            f"memory, and {_MORE_MEMORY}; or set spark.python.worker.faulthandler.enabled to true, which tells where "
            "it crashed. If it is always on one machine, a file of the state may be on a bad block of its disk: delete "
            f"spark.holdfast.local.dir there, and the state is restored from storage{said}"
        )
    executor = _EXECUTOR_LOST.search(text)
    if executor is not None:
        return Unavailable(
            f"Spark lost an executor in the middle of a task, as often as it tries one (spark.task.maxFailures): "
            f"{executor['said'].rstrip()}. {_START_AGAIN}. If its container ended it, {_MORE_MEMORY}"
        )
    shuffle = _SHUFFLE_LOST.search(text)
    if shuffle is not None:
        return Unavailable(
            "Spark lost executors with what they had shuffled, as often as it tries a stage "
            f"(spark.stage.maxConsecutiveAttempts): {shuffle['said'].rstrip()}. {_START_AGAIN}. "
            f"If their containers ended them, {_MORE_MEMORY}"
        )
    if _SHUT_DOWN in text:
        return Unavailable(
            "Spark was shut down in the middle of a batch: the program stopped the session, or the cluster ended the "
            f"application, as where too many executors were lost; its log says which. {_START_AGAIN}"
        )
    return None
