"""What Spark's JVM writes to the terminal: a line for each event. Runs on the driver, before there is a session.

Spark logs one failure of a task six times, each time with the worker's traceback and the JVM's stack: some 500 lines,
above the few that Python says at the end. Its logging is configured when the JVM starts, and by public means only then.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidRequest
from holdfast.storage import check_spelling

_TERMINAL = Path(__file__).with_name("terminal.log4j2.properties")
_TERMINAL_AND_FILE = Path(__file__).with_name("terminal_and_file.log4j2.properties")


def terminal_log(file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Settings by which Spark's log takes one line for each event on the terminal.

    ``SparkSession.builder.config(map=hf.terminal_log("/var/log/totals.log"))``

    They hold where the session starts its JVM, as it does in a program that Python runs: not where the JVM runs
    already (a second session, ``spark-submit``, a notebook service), nor for executors on other machines.

    Parameters
    ----------
    file
        Where all of the log goes as well, with every stack; it is appended to. At 64 MB it is renamed to the same name
        with ``.1`` behind it, what was so to ``.2``; up to ``.4`` they are kept, 320 MB in all. Each program needs one
        of its own. By default the log is kept nowhere.

    Returns
    -------
    dict[str, Any]
        ``spark.driver.extraJavaOptions``, in place of what was set before, and no progress bar.

    Raises
    ------
    InvalidRequest
        ``file`` is no path of this machine, or a device: it could not be renamed.
    """
    options = [f"-Dlog4j2.configurationFile={_TERMINAL}"]
    if file is not None:
        path = _log_file(os.fspath(file))
        pattern = path.replace("%", "%%") + ".%i"  # of the names of what is renamed
        options = [f"-Dlog4j2.configurationFile={_TERMINAL_AND_FILE}"]
        options += [f"-Dholdfast.log.file={path}", f"-Dholdfast.log.pattern={pattern}"]
    # Texts, all of them; but a dict[str, str] is none of the dicts that `config(map=...)` is declared to take.
    return {
        "spark.driver.extraJavaOptions": " ".join(map(shlex.quote, options)),
        "spark.ui.showConsoleProgress": "false",
    }


def _log_file(given: str) -> str:
    check_spelling(given)
    path = os.path.realpath(given)  # a link stays, and its file is renamed
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidRequest(
            f"terminal_log: {path} is no file; expected one, which is renamed as it grows. The terminal has a line for "
            f"each event without it"
        )
    return path
