"""Partitions in which an open transaction holds readers back: invisible otherwise, since what cannot be read is no lag.

A read_committed reader goes up to the last stable offset, the first record of the oldest open transaction. Where that
stands still below the high watermark, records wait, and all figures say that the query is at the end of the log. Asks
for the high watermarks now and then, not with each batch. Used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.clock import Clock
from holdfast.kafka.client import logger
from holdfast.source.kafka.subscription import Partition

LOOK_EVERY_MS = 5_000.0
# A transaction is open for as long as a batch of its writer takes: what is shorter than this is no news.
WARN_AFTER_MS = 30_000.0
WARN_EVERY_MS = 300_000.0
# A partition without a leader says nothing for a while, and waits as it did; one that was deleted is silent for good.
FORGET_AFTER_MS = 120_000.0


@dataclass(frozen=True)
class Stall:
    """One partition that waits: since when, and what for. ``since_ms`` of the clock that never goes back, as
    ``heard_ms`` (when it last said so) and ``warned_ms`` are; ``seen_ms`` the same moment since 1970.
    """

    last_stable: int
    high_watermark: int
    since_ms: float
    heard_ms: float
    seen_ms: int
    warned_ms: float | None = None


class StallWatch:
    """What a source's partitions wait for.

    Parameters
    ----------
    high_watermarks
        Asks the brokers; only for partitions that might wait.
    """

    def __init__(self, high_watermarks: Callable[[Sequence[Partition]], Mapping[Partition, int]], clock: Clock) -> None:
        self._high_watermarks = high_watermarks
        self._clock = clock
        self._stalls: dict[Partition, Stall] = {}
        self._before: dict[Partition, int] = {}
        self._look_again_ms = float("-inf")

    def look(self, last_stable: Mapping[Partition, int]) -> None:
        """With each batch: the last stable offsets that it may read up to."""
        now_ms = self._clock.elapsed_ms()
        for key, stall in list(self._stalls.items()):
            offset = last_stable.get(key)
            if offset == stall.last_stable:
                self._stalls[key] = replace(stall, heard_ms=now_ms)
            elif offset is not None or now_ms - stall.heard_ms >= FORGET_AFTER_MS:
                self._goes_on(key, self._stalls.pop(key), now_ms)
        if now_ms < self._look_again_ms:
            return
        self._look_again_ms = now_ms + LOOK_EVERY_MS
        still = sorted(key for key, offset in last_stable.items() if self._before.get(key) == offset)
        self._before = dict(last_stable)
        for key, high in self._high_watermarks(still).items() if still else ():
            if high > last_stable[key]:
                known = self._stalls.get(key) or self._begun(last_stable[key], high, now_ms)
                self._stalls[key] = self._told(key, replace(known, high_watermark=high), now_ms)
            else:  # by an unclean election, the log has lost what waited
                self._stalls.pop(key, None)

    def tell_of_one_run(self, last_stable: Mapping[Partition, int]) -> None:
        """Trigger.AvailableNow goes no further than this: says what it leaves to the next run, in reports too."""
        now_ms = self._clock.elapsed_ms()
        for key, high in sorted(self._high_watermarks(sorted(last_stable)).items()):
            if high > last_stable[key]:
                self._stalls[key] = self._begun(last_stable[key], high, now_ms)
                logger.warning(
                    "%s-%d is read up to offset %d in this run, its last stable offset, though its high watermark is"
                    " %d: a transaction is open there. What is behind is left to the next run",
                    *(*key, last_stable[key], high),
                )

    def waiting(self) -> dict[Partition, dict[str, int]]:
        """For progress reports: what each partition that waits is read up to, what is there, and how long it waits.

        `holdfast.spark.source_stalls` reads it on the other side.
        """
        now_ms = self._clock.elapsed_ms()
        return {
            key: {
                "last_stable_offset": stall.last_stable,
                "high_watermark": stall.high_watermark,
                "since_ms": stall.seen_ms,
                "waiting_ms": round(now_ms - stall.since_ms),
            }
            for key, stall in sorted(self._stalls.items())
        }

    def _begun(self, last_stable: int, high_watermark: int, now_ms: float) -> Stall:
        return Stall(last_stable, high_watermark, now_ms, now_ms, self._clock.now_ms())

    def _told(self, key: Partition, stall: Stall, now_ms: float) -> Stall:
        due_ms = stall.since_ms + WARN_AFTER_MS if stall.warned_ms is None else stall.warned_ms + WARN_EVERY_MS
        if now_ms < due_ms:
            return stall
        topic, number = key
        logger.warning(
            "%s-%d has waited for %.0f s at offset %d, its last stable offset; its high watermark is %d. A transaction"
            " that began there is open: nothing behind it can be read with read_committed until its writer ends it, or"
            " the broker does after the writer's transaction.timeout.ms. `holdfast transactions list` names those of"
            " Holdfast, `kafka-transactions.sh describe-producers --topic %s --partition %d` all of them",
            *(topic, number, (now_ms - stall.since_ms) / 1000, stall.last_stable, stall.high_watermark, topic, number),
        )
        return replace(stall, warned_ms=now_ms)

    def _goes_on(self, key: Partition, stall: Stall, now_ms: float) -> None:
        if stall.warned_ms is not None:
            waited_s = (now_ms - stall.since_ms) / 1000
            logger.warning("%s-%d goes on at offset %d, after %.0f s", *key, stall.last_stable, waited_s)
