"""A query of which state and output, or all, is in a store behind a proxy."""

from __future__ import annotations

from os import PathLike
from typing import Any

from tests.fault_proxy import FaultProxy
from tests.integration.test_exactly_once import found
from tests.processors import TOTALS, RunningTotal
from tests.streams import FileStream

import holdfast as hf


class StoredTotals:
    """Running totals. ``state``, ``out``, ``checkpoint``: where its parts are."""

    def __init__(
        self, stream: FileStream, proxy: FaultProxy, *, state: str, out: str, checkpoint: str | PathLike[str]
    ) -> None:
        self.stream, self.proxy = stream, proxy
        self.state, self.out, self.checkpoint = state, out, checkpoint
        self.settings: dict[str, Any] = {
            "checkpoint.dir": state,
            "storage.endpoint": proxy.url,
            "storage.retry.max": "500 ms",
            "fold.deltas.max": 2,
            "snapshot.deltas.max": 3,
        }
        for name in ("storage.endpoint", "storage.retry.max"):
            stream.spark.conf.set(f"spark.holdfast.{name}", self.settings[name])

    def run(self, **settings: Any) -> None:
        operator = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings={**self.settings, **settings})
        hf.write_exactly_once(
            self.stream.events().transform(operator),
            hf.FileSink(self.out),
            checkpoint=self.checkpoint,
            trigger={"availableNow": True},
            settings={"commit.retry.max": "1 s"},
        ).awaitTermination()

    def found(self) -> list[tuple[str, int, int]]:
        return found(hf.FileSink.read(self.out, hf.StorageOptions(endpoint=self.proxy.url)))
