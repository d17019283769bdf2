"""Whether what a stranger sees of the program's output is exactly once, and of one line of state. Knows nothing of
Holdfast: plain consumers, and DuckDB over a listing.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.faults.file_reading import FolderReader
from tests.kafka_reading import read_messages, unstable

ROWS_A_BATCH = 24
COLUMNS = ("seq", "user", "number", "before", "total", "rows")


def judge(servers: str, topic: str, files: Path, *, source: bool = False) -> int:
    """The number of rows. Asserts that a topic and a folder show each row of the input once, up to the same one, and
    that each total, count and former number is that of the visible rows before.
    """
    assert not unstable(servers, topic), "something is open: readers stand still"
    messages = read_messages(servers, topic)
    in_topic = [{**json.loads(one.value()), "user": one.key().decode()} for one in messages]
    in_files = FolderReader(files).rows()
    assert _counted(in_topic) == _counted(in_files), "the topic and the files differ"
    rows = sorted(in_topic, key=lambda row: (row["user"], row["rows"]))
    seqs = Counter(row["seq"] for row in rows)
    twice = sorted(seq for seq, times in seqs.items() if times > 1)
    assert not twice, f"twice: {twice}"
    for user, of_user in groupby(rows, key=lambda row: row["user"]):
        before, total = None, 0
        for number, row in enumerate(of_user):
            total += row["number"]
            found = row["seq"] % 7, row["rows"], row["before"], row["total"]
            assert found == (int(user[5:]), number + 1, before, total), f"{row}: expected {total} after {before}"
            # Each user's rows are every seventh.
            assert row["seq"] == 7 * number + int(user[5:]), f"lost before {row}"
            before = row["number"]
    if not source:  # batches of so many, without a gap
        assert sorted(seqs) == list(range(len(seqs))) and len(seqs) % ROWS_A_BATCH == 0, f"lost: {len(seqs)} rows"
    return len(rows)


def _counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.get(column) for column in COLUMNS) for row in rows)
