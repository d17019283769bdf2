"""A row belongs to the output from the call on: a processor may change what it gave, and give it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import bind, make_context, purchases

import holdfast as hf

ROWS = pa.schema(
    [
        ("user", pa.string()),
        ("number", pa.int64()),
        ("seen", pa.list_(pa.int64())),
        ("by_name", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
    ]
)
ASIDE = hf.SideOutput("aside")


class Reused:
    """One row, of one form, that is changed from amount to amount."""

    def __init__(self, form: str) -> None:
        self.form = form

    def rows(self, user: str, amounts: list[int]) -> Iterator[Any]:
        row: dict[str, Any] = {"user": user, "seen": [], "by_name": {}, "raw": bytearray()}
        frame = pd.DataFrame([{**row, "number": 0}])
        for number in amounts:
            row["number"] = frame.loc[0, "number"] = number
            row["seen"].append(number)
            row["by_name"][f"n{number}"] = number
            row["raw"].append(number)
            given = [row[name] for name in ROWS.names]
            yield {"dict": row, "tuple": tuple(given), "frame": frame}[self.form]


class ByBatch(hf.BatchProcessor):
    def __init__(self, reused: Reused) -> None:
        self.reused = reused

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        for row in self.reused.rows("ada", batch["amount"].to_pylist()):
            ctx.output(ASIDE, row)
            yield row


class ByKey(hf.KeyedProcessor):
    def __init__(self, reused: Reused) -> None:
        self.reused = reused

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        for row in self.reused.rows(key[0], rows["amount"].to_pylist()):
            ctx.output(ASIDE, row)
            yield row


@pytest.mark.parametrize("form", ["dict", "tuple", "frame"])
@pytest.mark.parametrize("processor", [ByBatch, ByKey])
def test_a_row_that_is_changed_and_given_again_was_given_as_it_was(processor: Any, form: str) -> None:
    """Rows wait to be converted together: all of them were what the last one was, and nobody was told."""
    ctx = make_context()
    with bind(processor(Reused(form)), ROWS, side_outputs={"aside": ROWS}) as bound:
        given = [*bound.process(purchases(["ada"] * 3, [1, 2, 3]), ctx), *bound.finish(ctx)]
    expected = [
        {
            "user": "ada",
            "number": last,
            "seen": list(range(1, last + 1)),
            "by_name": [(f"n{number}", number) for number in range(1, last + 1)],
            "raw": bytes(range(1, last + 1)),
        }
        for last in (1, 2, 3)
    ]
    for output in (None, "aside"):
        assert [row for name, rows in given if name == output for row in rows.to_pylist()] == expected
