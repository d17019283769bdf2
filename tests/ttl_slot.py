"""A bare store through batches that have a time, for states with a TTL: deltas, bases and the expiry of each version,
as `checkpoint/` has them. No Spark, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.unit.state_bench import MAX_PARALLELISM, USER, bind, make_context

from holdfast import _core, rocksdb_library
from holdfast.checkpoint.expiry import BatchStamps, BatchTime, Lifetime, StateExpiry, next_expiry, to_writer
from holdfast.state import Processor, declared_states

WAYS = ("stays", "deltas", "base")
OPTIONS = _core.BaseOptions(max_runs=3)


def lifetimes_of(processor: Processor) -> list[Lifetime]:
    """Of the states of a processor, each with its number as id."""
    return [
        Lifetime(
            number, declared.ttl.time, declared.ttl.duration_ms, declared.ttl.step_ms, declared.ttl.refreshes_on_read
        )
        for number, (_, declared) in enumerate(declared_states(processor), start=1)
        if declared.ttl is not None
    ]


class TtlSlot:
    """One slot. ``way``: how the store comes from batch to batch: it stays, or is another one from all deltas, or
    over a base into which each delta is folded."""

    def __init__(self, folder: Path, *, way: str = "stays", complete: bool = False, keys: pa.Schema = USER) -> None:
        rocksdb_library.load()
        self.folder, self.way, self.complete, self.keys = folder, way, complete, keys
        self.deltas: list[pa.RecordBatch] = []
        self.expiry: tuple[StateExpiry, ...] = ()
        self.base: tuple[int, Path | None] = (0, None)
        self.store = self.opened()

    @property
    def sequence(self) -> int:
        return len(self.deltas)

    def opened(self) -> _core.Store:
        """Another store at the version at hand, over the newest base."""
        store = _core.Store(
            self.keys,
            max_parallelism=MAX_PARALLELISM,
            first_key_group=0,
            end_key_group=MAX_PARALLELISM,
            complete=self.complete,
        )
        folded, folder = self.base
        if folder is not None:
            base = _core.Base(str(folder), OPTIONS)
            store.set_base(None if self.complete else base, folded)
            if self.complete:
                store.load(base)
        for sequence, delta in enumerate(self.deltas[folded:], folded + 1):
            store.apply_delta(delta, sequence)
        return store

    def fold(self) -> None:
        """Makes the base of the version at hand."""
        folded, parent = self.base
        folder = self.folder / f"base-{self.sequence}"
        expired = to_writer(self.expiry, [])
        writer = _core.BaseWriter(None if parent is None else str(parent), str(folder), OPTIONS, expired)
        for delta in self.deltas[folded:]:
            writer.add(delta)
        writer.finish()
        self.base = (self.sequence, folder)

    def stored(self) -> dict[bytes, bytes]:
        """What the newest base has, by store key."""
        _, folder = self.base
        assert folder is not None
        batches = [pa.record_batch(batch) for batch in _core.Base(str(folder), OPTIONS).scan()]
        return {
            key: value for batch in batches for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist())
        }

    @contextmanager
    def batch(self, lifetimes: list[Lifetime], time: BatchTime) -> Iterator[BatchStamps]:
        """A batch that commits, at a time; then the store is opened in its way."""
        expiry = next_expiry(self.expiry, lifetimes, time, "here")
        self.store.begin(self.sequence + 1)
        stamps = BatchStamps(self.store, expiry, lifetimes, time)
        yield stamps
        self.deltas.append(pa.record_batch(self.store.take_delta()))
        assert not self.store.dirty_bytes
        self.store.commit()
        self.expiry = stamps.expiry
        if self.way == "base":
            self.fold()
        if self.way != "stays":
            self.store = self.opened()

    def run(
        self,
        processor: Processor,
        now_ms: int,
        rows: pa.RecordBatch,
        output: pa.Schema,
        watermark_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Output rows of a processor in one batch."""
        produced: list[dict[str, Any]] = []
        with self.batch(lifetimes_of(processor), BatchTime(now_ms, watermark_ms)):
            ctx = make_context(self.sequence, timestamp_ms=now_ms)
            with bind(processor, output, self.store, self.keys) as bound:
                for _, out in itertools.chain(bound.process(rows, ctx), bound.finish(ctx)):
                    produced += out.to_pylist()
        return produced

    def act(self, processor: Processor, now_ms: int, act: Callable[[Any], Any], watermark_ms: int | None = None) -> Any:
        """What `act` gives with the vectorised states of a processor in one batch."""
        with (
            self.batch(lifetimes_of(processor), BatchTime(now_ms, watermark_ms)),
            bind(processor, USER, self.store, self.keys),
        ):
            return act(processor)
