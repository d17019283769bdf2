"""The JVM of one Kafka node: started, watched, asked to end, killed. Knows nothing of what Kafka serves."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Unavailable

# C1 only and the serial collector: a test broker must be up in a second and leave the cores to Spark.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)
#: More options for each of these JVMs, as Kafka's own scripts take KAFKA_OPTS.
OPTIONS_VARIABLE = "HOLDFAST_KAFKA_OPTS"
TOOL_TIMEOUT_S = 120
_WATCHDOG = Path(__file__).with_name("watchdog.py")


@dataclass(frozen=True)
class Installation:
    """One release of Kafka as one node uses it: log4j2.properties is looked for in ``folder``."""

    jars: Sequence[Path]
    folder: Path


def java_command(
    kafka: Installation, main_class: str, arguments: Sequence[str], jvm_options: Sequence[str]
) -> list[str]:
    """The command line for one of Kafka's main classes."""
    class_path = os.pathsep.join(str(jar) for jar in kafka.jars)
    logging = f"-Dlog4j2.configurationFile={kafka.folder / 'log4j2.properties'}"
    of_all = (*_JVM_OPTIONS, *shlex.split(os.environ.get(OPTIONS_VARIABLE, "")))
    return [_java(), *of_all, *jvm_options, logging, "-cp", class_path, main_class, *arguments]


def run_tool(kafka: Installation, main_class: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()) -> None:
    """Run one of Kafka's tools to its end."""
    command = java_command(kafka, main_class, arguments, jvm_options)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{main_class} {arguments[0]} did not end within {TOOL_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{main_class} {' '.join(arguments)} ended with {done.returncode}: {done.stdout[-2000:]}")


#: Brokers that outlive their owner on purpose: Python warns of a running process whose object is gone.
_outliving: list[subprocess.Popen[bytes]] = []


class KafkaProcess:
    """One running JVM, in a session of its own so that a Ctrl-C reaches only its owner. For one thread at a time."""

    def __init__(self, command: Sequence[str], log_file: Path, detached: bool) -> None:
        self.log_file = log_file
        with log_file.open("ab") as log:
            self._jvm = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=log_file.parent,
            )
        self._watchdog: subprocess.Popen[bytes] | None = None
        if detached:
            _outliving.append(self._jvm)
        else:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WATCHDOG), str(os.getpid()), str(self._jvm.pid)],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._jvm.pid

    @property
    def running(self) -> bool:
        return self._jvm.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._jvm.poll()

    def terminate(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL when it has not ended in time."""
        if self.running:
            self._jvm.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._jvm.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no goodbye to the controller."""
        if self.running:
            self._jvm.kill()
        self._jvm.wait()
        if self._watchdog is not None:
            self._watchdog.wait()
            self._watchdog = None


def process_start(pid: int) -> int | None:
    """When a process started, in kernel ticks: with its pid, the name of one process for good. None: not alive."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def end_foreign(pid: int, started: int, timeout_s: float) -> bool:
    """End a process that an earlier program started. False: it was gone already (or its pid is someone else's now)."""
    if process_start(pid) != started:
        return False
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if process_start(pid) != started:
                return True
            time.sleep(0.05)
    raise Unavailable(f"Process {pid} did not end after SIGKILL within {timeout_s:g} s")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise Unavailable(
            "A Kafka broker needs Java 17 or later: `java` was found neither in JAVA_HOME nor on PATH."
            " Install a JRE, or set JAVA_HOME"
        )
    return java
