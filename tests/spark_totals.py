"""Running totals as a user of Spark writes them, called once a key. Spark's workers import this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from tests.processors import TOTALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_spark(events: DataFrame) -> DataFrame:
    """What tests.processors.RunningTotal gives, by Spark's own state."""
    made: DataFrame = events.groupBy("user").applyInPandasWithState(_total, TOTALS, "total long", "append", "NoTimeout")
    return made


def _total(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for frame in frames:
        sums = frame["amount"].cumsum() + total
        total = int(sums.iloc[-1])
        yield pd.DataFrame({"user": key[0], "amount": frame["amount"], "total": sums})
    state.update((total,))
