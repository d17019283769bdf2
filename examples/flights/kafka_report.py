"""What the demo through Kafka leaves: a page that says what happened, and a plot of rows fed and rows visible."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from kafka_check import Findings
from report import carrier_lines, verdict_lines

PAGE = """\
# Flights through Kafka, exactly once, with two kill -9

{flights:,} flights that left New York in 2013 were fed into a Kafka topic in order of time, over {feeding:.0f} s. A
streaming query kept figures of each carrier in Holdfast's state, and wrote a row for each flight to another topic, by
`hf.KafkaSink` and `hf.write_exactly_once`. The broker was a real one, of one node.

| killed with SIGKILL | processes | batches until then | transactions left open | next batch committed after |
| --- | --- | --- | --- | --- |
{kills}

## What an independent consumer read

In a process of its own, `read_committed`, from the start of the topic to its end.

| | rows |
| --- | --- |
| fed into topic `flights` | {fed:,} |
| visible in topic `figures` | {visible:,} |
| lost | {lost} |
| twice | {twice} |
| of no flight | {extra} |
| out of their carrier's order | {disorder} |
| carriers in more than one partition | {scattered} |
| of killed attempts: in the log, and not visible | {hidden:,} |

Transactions that were open at the end: {open}.

## Each figure against DuckDB

Each visible row, against window functions over all flights. Averages may differ by 1e-9 of their value.

| operator | keys | rows | figures | missing | extra | repeated | wrong |
| --- | --- | --- | --- | --- | --- | --- | --- |
{verdicts}

{outcome}

## How long it took

{batches} batches: median {median} ms, slowest {slowest} ms.

![Fed and visible](flights.png)

## Carriers at the end

Delays in minutes, at arrival.

| carrier | flights | mean delay | standard deviation | worst | destinations |
| --- | --- | --- | --- | --- | --- |
{carriers}

The final figures: `flights.parquet`. Every message that the consumer read: `figures.parquet`.
"""


@dataclass
class Kill:
    """One kill -9, and how it went on."""

    what: str
    at: float
    processes: int
    batches: int
    open: int
    resume_s: float = 0.0


@dataclass
class KafkaStory:
    """What happened, as the supervisor saw it."""

    kills: list[Kill] = field(default_factory=list)
    fed: list[dict[str, Any]] = field(default_factory=list)
    visible: list[dict[str, Any]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    open_at_end: int = 0


def draw_progress(story: KafkaStory, path: Path) -> None:
    """Rows fed and rows visible over time; what was killed, and when."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    began = story.fed[0]["at"]
    figure, axes = pyplot.subplots(figsize=(11, 5))
    for name, lines, color in (("fed", story.fed, "#999999"), ("visible", story.visible, "#4878a8")):
        axes.plot([line["at"] - began for line in lines], [line["rows"] for line in lines], label=name, color=color)
    for kill in story.kills:
        axes.axvline(kill.at - began, color="black", linestyle="--", linewidth=1)
        axes.annotate(f" kill -9: {kill.what}", (kill.at - began, 0), rotation=90, va="bottom", ha="left")
    axes.set(title="Rows for a read_committed consumer", xlabel="seconds since the first flight was fed", ylabel="rows")
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_kafka_report(story: KafkaStory, found: Findings, latest: pa.Table, path: Path) -> None:
    """The page that says what happened."""
    db = duckdb.connect()
    db.register("latest", latest)
    ms = sorted(batch["ms"] for batch in story.batches)
    page = PAGE.format(
        flights=found.flights,
        feeding=story.fed[-1]["at"] - story.fed[0]["at"],
        kills="\n".join(
            f"| {kill.what} | {kill.processes} | {kill.batches} | {kill.open} | {kill.resume_s:.1f} s |"
            for kill in story.kills
        ),
        fed=found.fed,
        visible=found.visible,
        lost=found.figures.missing,
        twice=found.figures.repeated,
        extra=found.figures.extra,
        disorder=found.disorder,
        scattered=found.scattered,
        hidden=found.hidden,
        open=story.open_at_end,
        verdicts=verdict_lines([found.figures]),
        outcome="No figure differs." if found.ok else "**There are differences.**",
        batches=len(ms),
        median=ms[len(ms) // 2],
        slowest=ms[-1],
        carriers=carrier_lines(db),
    )
    path.write_text(page, encoding="utf-8")
