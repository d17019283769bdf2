"""What Spark's JVM writes to the terminal: a line for each event. Runs on the driver, before there is a session.

Spark logs one failure of a task six times, each time with the worker's traceback and the JVM's stack: some 500 lines,
above the few that Python says at the end. Its logging is configured when the JVM starts, and by public means only then.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from holdfast.storage import check_spelling

_CONFIGURATION = Path(__file__).with_name("terminal.log4j2.properties")


def terminal_log(file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Settings by which Spark's log takes one line for each event on the terminal.

    ``SparkSession.builder.config(map=hf.terminal_log("/var/log/totals.log"))``

    They hold where the session starts its JVM, as it does in a program that Python runs: not where the JVM runs
    already (a second session, ``spark-submit``, a notebook service), nor for executors on other machines.

    Parameters
    ----------
    file
        Where all of the log goes as well, with every stack; it is appended to. By default it is kept nowhere.

    Returns
    -------
    dict[str, Any]
        ``spark.driver.extraJavaOptions``, in place of what was set before, and no progress bar.

    Raises
    ------
    InvalidRequest
        ``file`` is no path of this machine.
    """
    options = [f"-Dlog4j2.configurationFile={_CONFIGURATION}"]
    if file is not None:
        check_spelling(os.fspath(file))
        options.append(f"-Dholdfast.log.file={os.path.abspath(file)}")
    # Texts, all of them; but a dict[str, str] is none of the dicts that `config(map=...)` is declared to take.
    return {
        "spark.driver.extraJavaOptions": " ".join(map(shlex.quote, options)),
        "spark.ui.showConsoleProgress": "false",
    }
