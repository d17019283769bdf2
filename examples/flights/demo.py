"""The demo: a year of flights through job.py, which is killed half-way and started again; then every figure is checked.

Run it with `make demo`. It can be run again and again; Ctrl-C stops it and the job.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from check import Verdict, check
from replay import write_replay
from report import Story, draw, write_report, write_table
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from screen import carrier_table
from session import (
    Session,
    check_running,
    clear,
    committed_batches,
    committed_files,
    planned_batches,
    progress,
)

# All that the demo ever writes below its output folder; a new run starts by removing them.
LEFT = [
    "input",
    "state",
    "local",
    "checkpoint",
    "rows",
    "progress.jsonl",
    "job.log",
    "flights.parquet",
    "flights.png",
    "report.md",
]


class Screen:
    """A progress bar and the largest carriers' figures of the latest committed batch."""

    def __init__(self, folder: Path, files: int) -> None:
        self._folder = folder
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("batches"),
            TimeElapsedColumn(),
        )
        self._task = self._bar.add_task("", total=files)
        self._shown = 0
        self._figures = Table()
        self.live = Live(self._bar, refresh_per_second=8)

    def show(self, what: str, committed: int) -> None:
        """Moves the bar; reads the newest output when there is some."""
        self._bar.update(self._task, description=what, completed=committed)
        if committed > self._shown:
            self._shown = committed
            self._figures = self._latest()
        self.live.update(Group(self._bar, self._figures))

    def _latest(self) -> Table:
        files = committed_files(self._folder)[-4:]
        rows = [row for file in files for row in pq.read_table(file).to_pylist() if row["kind"] == "carrier"]
        newest = {row["key"]: row for row in sorted(rows, key=lambda row: row["flight"])}
        return carrier_table(f"after batch {self._shown - 1}", newest)


def main() -> int:
    """Runs the demo; 0 when no figure differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--days", type=int, default=7, help="days of flights in a file, and so in a batch")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    console = Console()
    clear(folder, LEFT)
    story = Story()
    flights = write_replay(folder / "input", arguments.days)
    story.flights = flights.num_rows
    story.files = len(list((folder / "input").glob("*.parquet")))
    console.print(f"{story.flights:,} flights of 2013 in {story.files} files, one file a batch")

    screen = Screen(folder, story.files)
    with screen.live:
        _first_run(folder, story, screen)
        _second_run(folder, story, screen)
    console.print(
        f"killed after {story.killed_after_batches} batches ({story.killed_processes} processes), next batch committed "
        f"{story.seconds['resume']:.1f} s after the restart"
    )
    rows = pa.concat_tables([pq.read_table(file) for file in committed_files(folder)])
    verdicts = check(flights, rows)
    latest = write_table(rows, folder / "flights.parquet")
    draw(flights, rows, latest, story, folder / "flights.png")
    write_report(story, verdicts, latest, folder / "report.md")
    _tell(console, verdicts)
    console.print(f"table, plot and report: {folder}/flights.parquet, flights.png, report.md")
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _first_run(folder: Path, story: Story, screen: Screen) -> None:
    """Runs the job up to the middle of the batch after the middle one, and kills it."""
    half = story.files // 2
    began = time.monotonic()
    job = Session(folder / "job.log", "job.py", folder)
    try:
        while committed_batches(folder) < half:
            check_running(job, folder, began)
            screen.show("running", committed_batches(folder))
            time.sleep(0.05)
        while planned_batches(folder) <= committed_batches(folder) and job.exit_code is None:
            time.sleep(0.005)
        told = [batch["ms"] for batch in progress(folder)]
        time.sleep((told[-1] if told else 500) / 3000)
    finally:
        story.killed_processes = job.kill()
    story.killed_after_batches = committed_batches(folder)
    story.killed_in_batch = planned_batches(folder) > story.killed_after_batches
    story.seconds["first"] = time.monotonic() - began
    screen.show("killed with SIGKILL", story.killed_after_batches)


def _second_run(folder: Path, story: Story, screen: Screen) -> None:
    """Starts the job again and waits for its end."""
    began = time.monotonic()
    job = Session(folder / "job.log", "job.py", folder)
    try:
        while job.exit_code is None:
            check_running(job, folder, began)
            committed = committed_batches(folder)
            if committed > story.killed_after_batches and "resume" not in story.seconds:
                story.seconds["resume"] = time.monotonic() - began
            screen.show("running again" if "resume" in story.seconds else "starting again", committed)
            time.sleep(0.05)
        check_running(job, folder, began)
    finally:
        job.kill()
    story.seconds["second"] = time.monotonic() - began
    story.batches = progress(folder)
    screen.show("done", committed_batches(folder))


def _tell(console: Console, verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        outcome = "[green]no difference[/]" if verdict.ok else f"[red]differences: {verdict}[/]"
        console.print(f"{verdict.kind}: {verdict.figures:,} figures of {verdict.keys:,} keys against DuckDB: {outcome}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; `make demo` starts afresh", file=sys.stderr)
        sys.exit(130)
