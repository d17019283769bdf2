"""The demo through Kafka: flights are fed into a real broker, kafka_job.py writes figures back exactly once and is
killed twice on the way; then an independent consumer reads what is visible, and every row and figure is checked.

Run it with `make demo-kafka`. It can be run again and again; Ctrl-C ends everything, the broker too.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_check import Findings, check_topics, decoded
from kafka_job import OUTPUT, SOURCE
from kafka_report import KafkaStory, Kill, draw_progress, write_kafka_report
from replay import write_replay
from report import write_table
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from screen import carrier_table
from session import Session, check_running, clear, committed_batches, progress

from holdfast.kafka.transactions import OPEN_STATES, Transactions
from holdfast.testing import KafkaBroker

# All that the demo ever writes below its output folder; a new run starts by removing them.
LEFT = [
    "input",
    "state",
    "local",
    "checkpoint",
    "progress.jsonl",
    "fed.jsonl",
    "visible.jsonl",
    "newest.json",
    "newest.tmp",
    "job.log",
    "feeder.log",
    "reader.log",
    "fault",
    "fault.struck",
    "fault.tmp",
    "fed.parquet",
    "figures.parquet",
    "uncommitted.parquet",
    "flights.parquet",
    "flights.png",
    "report.md",
]
PARTITIONS = 2
# Where the second run's driver dies: one transaction of the batch has ended, the others have not.
FAULT_POINT = "mid_commit:1"
SETTLED_WITHIN_S = 30.0


class Screen:
    """Bars of what was fed and what is visible, and the largest carriers' visible figures."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
        self._bars = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[what]}"))
        self._fed = self._bars.add_task("fed", total=rows, what="")
        self._visible = self._bars.add_task("visible", total=rows, what="")
        self.live = Live(self._bars, refresh_per_second=4)

    def show(self, what: str) -> int:
        """Moves the bars; gives how many rows are visible."""
        fed, visible = latest_rows(self._folder, "fed.jsonl"), latest_rows(self._folder, "visible.jsonl")
        self._bars.update(self._fed, completed=fed)
        self._bars.update(self._visible, completed=visible, what=what)
        self.live.update(Group(self._bars, self._figures()))
        return visible

    def _figures(self) -> Table:
        newest = {}
        with suppress(FileNotFoundError):
            newest = json.loads((self._folder / "newest.json").read_text(encoding="utf-8"))
        return carrier_table("what a read_committed consumer sees", newest)


class World:
    """The broker with both topics, the feeder, and the consumer that follows; all end with the block."""

    def __init__(self, folder: Path, rows: int, days_a_second: float) -> None:
        self.folder, self.rows, self._days_a_second = folder, rows, days_a_second
        self._open = ExitStack()

    def __enter__(self) -> World:
        with self._open:
            broker = self._open.enter_context(KafkaBroker())
            self.servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": self.servers})
            for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, OUTPUT)]).values():
                made.result(30)
            self._reader = self.start("reader", "kafka_reader.py", "follow", self.servers, OUTPUT, self.folder)
            days = str(self._days_a_second)
            self._feeder = self.start("feeder", "kafka_feeder.py", self.folder, self.servers, SOURCE, days)
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self, name: str, program: str, *arguments: str | Path, **environment: str) -> Session:
        """A program that is killed at the latest when the block ends."""
        session = Session(self.folder / f"{name}.log", program, *arguments, **environment)
        self._open.callback(session.kill)
        return session

    def job(self, **environment: str) -> Session:
        """A run of the job."""
        return self.start("job", "kafka_job.py", self.folder, self.servers, str(self.rows), **environment)

    def check(self) -> None:
        """Ends the demo when feeder or reader has failed."""
        for name, session in (("feeder", self._feeder), ("reader", self._reader)):
            if session.exit_code:
                raise SystemExit(f"the {name} ended with exit code {session.exit_code}: {self.folder}/{name}.log")

    def open_transactions(self) -> int:
        """How many transactions have not ended."""
        known = Transactions({"bootstrap.servers": self.servers}, SETTLED_WITHIN_S * 1000)
        return len(known.listing("holdfast-.*", OPEN_STATES))

    def settle(self) -> int:
        """Waits until the coordinators call all of them complete, and for the follower."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while (left := self.open_transactions()) and time.monotonic() < deadline:
            time.sleep(0.1)
        while latest_rows(self.folder, "visible.jsonl") < self.rows and time.monotonic() < deadline:
            time.sleep(0.1)
        self._reader.end(10)
        return left

    def read(self, topic: str, isolation: str, name: str) -> pa.Table:
        """What a new consumer in a process of its own reads, from the start to the end."""
        file = self.folder / f"{name}.parquet"
        reader = self.start("reader", "kafka_reader.py", "read", self.servers, topic, isolation, file)
        if reader.end(120) != 0:
            raise SystemExit(f"the reader of {topic} failed: {self.folder}/reader.log")
        return pq.read_table(file)


def main() -> int:
    """Runs the demo; 0 when nothing is lost, twice, out of order or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output-kafka"))
    parser.add_argument("--days", type=int, default=365, help="how much of the year is fed")
    parser.add_argument("--days-a-second", type=float, default=7.0, help="how fast")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    console, story = Console(), KafkaStory()
    clear(folder, LEFT)
    flights = write_replay(folder / "input", 1, arguments.days)
    console.print(
        f"{flights.num_rows:,} flights of 2013, from Kafka to Kafka, {arguments.days_a_second:g} days of 2013 a second"
    )
    with World(folder, flights.num_rows, arguments.days_a_second) as world:
        screen = Screen(folder, flights.num_rows)
        with screen.live:
            _until_the_whole_job_is_killed(world, story, screen)
            _until_the_driver_is_killed(world, story, screen)
            _to_the_end(world, story, screen)
            story.open_at_end = world.settle()
            screen.show("done")
        fed = world.read(SOURCE, "read_committed", "fed")
        visible = decoded(world.read(OUTPUT, "read_committed", "figures"))
        uncommitted = world.read(OUTPUT, "read_uncommitted", "uncommitted")
    story.fed, story.visible = progress(folder, "fed.jsonl"), progress(folder, "visible.jsonl")
    story.batches = progress(folder)
    found = check_topics(flights, fed, visible, uncommitted)
    draw_progress(story, folder / "flights.png")
    write_kafka_report(story, found, write_table(visible, folder / "flights.parquet"), folder / "report.md")
    _tell(console, story, found)
    console.print(f"report, plot, table, messages: {folder}/report.md, flights.png, flights.parquet, figures.parquet")
    return 0 if found.ok and not story.open_at_end else 1


def _until_the_whole_job_is_killed(world: World, story: KafkaStory, screen: Screen) -> None:
    """Kills driver, JVM and Python workers when a third is visible, while a batch is being written."""
    began = time.monotonic()
    job = world.job()
    while screen.show("running") < world.rows // 3:
        _wait(world, job, began)
    while not world.open_transactions():
        check_running(job, world.folder, began)
    at, processes = time.time(), job.kill()
    _record_kill(world, story, "driver, JVM and Python workers, in a batch", at, processes)
    screen.show("killed with SIGKILL: all of the job")


def _until_the_driver_is_killed(world: World, story: KafkaStory, screen: Screen) -> None:
    """Starts the job again; when two thirds are visible, its driver dies between two transactions of one batch."""
    fault = world.folder / "fault"
    job = world.job(HOLDFAST_FAULT_FILE=str(fault))

    def arm(visible: int) -> None:
        if visible >= world.rows * 2 // 3 and not fault.exists() and not fault.with_suffix(".struck").exists():
            fault.with_suffix(".tmp").write_text(FAULT_POINT, encoding="utf-8")
            fault.with_suffix(".tmp").replace(fault)

    _watch(world, job, story.kills[-1], screen, -signal.SIGKILL, arm)
    at = time.time()
    job.kill()  # what is left of it: a JVM that ends by itself, and its workers
    _record_kill(world, story, "driver, while it commits a batch", at, 1)
    screen.show("killed with SIGKILL: the driver, while it commits")


def _to_the_end(world: World, story: KafkaStory, screen: Screen) -> None:
    """Starts the job again, and waits until all is committed."""
    job = world.job()
    _watch(world, job, story.kills[-1], screen, 0)
    job.kill()


def _watch(
    world: World, job: Session, kill: Kill, screen: Screen, ends_with: int, look: Callable[[int], None] = lambda _: None
) -> None:
    """Until a run that goes on after a kill ends with this exit code; `look` is told how many rows are visible."""
    began = time.monotonic()
    while job.exit_code != ends_with:
        if not kill.resume_s and committed_batches(world.folder) > kill.batches:
            kill.resume_s = time.monotonic() - began
        look(screen.show("running again" if kill.resume_s else "starting again"))
        _wait(world, job, began, ends_with)


def _wait(world: World, job: Session, began: float, ends_with: int = 0) -> None:
    check_running(job, world.folder, began, ends_with)
    world.check()
    time.sleep(0.2)


def _record_kill(world: World, story: KafkaStory, what: str, at: float, processes: int) -> None:
    story.kills.append(Kill(what, at, processes, committed_batches(world.folder), world.open_transactions()))


def latest_rows(folder: Path, name: str) -> int:
    """The newest count that feeder or reader has told."""
    told = progress(folder, name)
    return int(told[-1]["rows"]) if told else 0


def _tell(console: Console, story: KafkaStory, found: Findings) -> None:
    for kill in story.kills:
        console.print(
            f"kill -9 of the {kill.what}, after {kill.batches} batches: {kill.open} transactions left open, "
            f"next batch committed {kill.resume_s:.1f} s after the restart"
        )
    console.print(
        f"{found.fed:,} rows in, {found.visible:,} rows out for an independent read_committed consumer "
        f"({found.hidden:,} more are in the log, of killed attempts, and not visible)"
    )
    verdict = found.figures
    color = "green" if found.ok else "red"
    console.print(
        f"[{color}]lost {verdict.missing}, twice {verdict.repeated}, of no flight {verdict.extra}, "
        f"out of their carrier's order {found.disorder}[/]"
    )
    outcome = "[green]no difference[/]" if verdict.ok else f"[red]differences: {verdict}[/]"
    console.print(f"{verdict.figures:,} figures of {verdict.keys:,} carriers against DuckDB: {outcome}")


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; `make demo-kafka` starts afresh", file=sys.stderr)
        sys.exit(130)
