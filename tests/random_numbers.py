"""A processor that does not repeat itself: its output tells whether the state it left is that of the same run."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

import pyarrow as pa

import holdfast as hf

NUMBERS = "user string, amount long, before long, number long"


class RandomNumbers(hf.BatchProcessor):
    """Draws a number for each row and keeps the last one of each user. ``before``: the one that it kept before."""

    last = hf.ValueState(pa.int64())

    def chance(self, ctx: hf.Context) -> Callable[[], int]:
        """Draws the numbers of one call."""
        return functools.partial(random.SystemRandom().randrange, 1 << 40)

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        draw = self.chance(ctx)
        kept = dict(zip(batch["user"].to_pylist(), self.last.get(batch["user"]).to_pylist()))
        before, numbers = [], []
        for user in batch["user"].to_pylist():
            before.append(kept[user])
            kept[user] = draw()
            numbers.append(kept[user])
        self.last.put(pa.array(list(kept)), pa.array(list(kept.values()), pa.int64()))
        rows = batch.append_column("before", pa.array(before, pa.int64()))
        yield rows.append_column("number", pa.array(numbers, pa.int64()))


class RepeatableNumbers(RandomNumbers):
    """The same with the context's random numbers: another attempt at a batch draws the same."""

    def chance(self, ctx: hf.Context) -> Callable[[], int]:
        return lambda: int(ctx.random.integers(1 << 40))
