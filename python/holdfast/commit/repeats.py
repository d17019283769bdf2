"""Whether a batch that runs again gave its rows to the tasks that had them: what is written again is a part of them.

Of a task that is done, nothing is written. So rows that are gone (compaction, retention) do no harm; rows that moved to
a task that is written again would be there twice. Counts tell a move from a loss, but not from both at once: that
nothing moved must be known of the sources. See docs/rfcs/0004. Owner: the thread that runs the query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.commit.batch import Replay, TaskResult
from holdfast.errors import Incompatible

_LOGGER = logging.getLogger("holdfast.commit")
_DOES_NOT_REPEAT = "the source or the program does not repeat itself. Start it once as it was"


@dataclass(frozen=True)
class Repeating:
    """What is known of a query that runs a batch again.

    Attributes
    ----------
    checkpoint
        Its URI, for messages.
    slots_take_over
        Whether it has operators, whose slots give no rows where they take over a version.
    keeps_tasks
        Whether each of its sources reads the same offsets in the same tasks, and what is made of them stays there;
        asked where it matters.
    """

    checkpoint: str
    slots_take_over: bool
    keeps_tasks: Callable[[], bool]


def check_repeats(replay: Replay, results: Sequence[TaskResult], query: Repeating) -> None:
    """Incompatible unless what was lost can be written again without a row that is visible elsewhere.

    A warning where rows of the input are gone since.
    """
    record = replay.record
    said = f"batch {record.batch_id}: some of its output is visible and partitions {sorted(replay.lost_partitions)}"
    if len(results) != record.partitions:
        raise Incompatible(
            f"{said} were lost, but it has {len(results)} partitions now, recorded are {record.partitions}. Start it "
            f"once with the settings it had (spark.sql.shuffle.partitions, slots, minPartitions of another source than "
            f"holdfast-kafka). Where an earlier Holdfast wrote it without an operator, Spark chose their number by "
            f"cores and sizes (spark.sql.adaptive.streaming.stateless.enabled): start it once with that version and as "
            f"many cores"
        )
    shrunk: dict[int, str] = {}
    for lost in filter(None, replay.lost.values()):
        shrunk.update(_shrunk(replay, lost, results, f"{said} were lost, but", query))
    if not shrunk:
        return
    if query.slots_take_over or not query.keeps_tasks():  # an operator before a shuffle need not repeat itself
        raise Incompatible(
            f"{said} were lost, but {', '.join(shrunk.values())}: {_DOES_NOT_REPEAT}. Where that cannot be, since "
            f"compaction or retention took rows of the input: only of queries without operators and shuffles, all of "
            f"whose sources are holdfast-kafka, is it known that no other row has changed its task and would be "
            f"written twice. To write this batch and all later ones once more, beside what is visible and under "
            f"identities of their own, run `holdfast fork {query.checkpoint}`"
        )
    _LOGGER.warning(
        "batch %d: %s: compaction or retention took rows of the input since then. What is visible stays",
        record.batch_id,
        ", ".join(shrunk.values()),
    )


def _shrunk(
    replay: Replay, lost: frozenset[int], results: Sequence[TaskResult], said: str, query: Repeating
) -> dict[int, str]:
    """Of one sink: the tasks that are done and have fewer rows than they had, in words. Incompatible where rows must
    have moved: such a task has more, or one has fewer and one that is written again has more.
    """
    shrunk: dict[int, str] = {}
    grown: list[str] = []
    for result in results:
        partition, rows, recorded = result.partition, result.rows, replay.record.tasks[result.partition].rows
        told = f"partition {partition} has {rows} rows now, recorded are {recorded}"
        if partition in lost:
            if rows > recorded:
                grown.append(told)
        elif query.slots_take_over and (rows == 0 or partition in replay.lost_partitions):
            # Its slots gave none, or ran their processors for another sink: those need not repeat themselves.
            continue
        elif rows > recorded:
            raise Incompatible(f"{said} {told}: {_DOES_NOT_REPEAT}")
        elif rows < recorded:
            shrunk[partition] = told
    if shrunk and grown:
        raise Incompatible(f"{said} {', '.join([*shrunk.values(), *grown])}: {_DOES_NOT_REPEAT}")
    return shrunk


def keeps_its_tasks(offset: str | None) -> bool:
    """Whether a source reads the same offsets in the same tasks when a batch runs again, by the batch's end in it as
    Spark has it: holdfast-kafka (docs/formats/kafka_offset.md), and one that had nothing yet.
    """
    try:
        told = json.loads(offset or "null")
    except ValueError:
        return False
    if told is None:
        return True
    return isinstance(told, dict) and type(told.get("format")) is int and isinstance(told.get("split"), dict)
