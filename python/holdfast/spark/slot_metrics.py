"""What one slot did in one batch, as it is told to the driver: one line of JSON a slot and batch.

Filled by who runs the batch (`slot_batch.py`, and Spark's task or the test harness). Knows no Spark. The driver adds
slots up: `operator_metrics.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from holdfast.checkpoint import SlotState
from holdfast.state import MAIN, BatchCounts, Counters, TaggedRows

#: Names the rows of an input that has no name.
ONLY_INPUT = "input"
#: Of the rows between a slot and what unpacks them.
METRICS_COLUMN = "metrics"
#: What names of watched operators begin with (`metrics.observed`).
OBSERVED = "holdfast."


@dataclass
class SlotMetrics:
    """Figures of one slot and batch; those that the driver adds up have the names of :class:`OperatorMetrics`.

    Attributes
    ----------
    slot, task
        Which slot, and the number of the task's attempt in the run: of two that tell of one slot, the later counts.
    taken_over
        Whether the version of an earlier attempt was taken over, so that nothing was computed.
    opened
        The way to the version, as :class:`holdfast.checkpoint.Recovery` calls it.
    open_ms, prepare_ms, slot_ms
        Milliseconds: to have the state at hand, to make the new version durable, and all in all.
    """

    slot: int = 0
    task: int = 0
    taken_over: int = 0
    rows_in: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    late_rows_kept: int = 0
    late_rows_dropped: int = 0
    late_rows_aside: int = 0
    timers_registered: int = 0
    timers_deleted: int = 0
    timers_fired: int = 0
    lookups: int = 0
    base_reads: int = 0
    entries_written: int = 0
    entries_removed: int = 0
    entries_expired: int = 0
    delta_bytes: int = 0
    spills: int = 0
    opened: str = ""
    restored_bytes: int = 0
    folds: int = 0
    fold_ms: float = 0.0
    fold_expired_entries: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    memory_entries: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    open_ms: float = 0.0
    prepare_ms: float = 0.0
    slot_ms: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    counters_left_out: int = 0

    def note_in(self, name: str | None, rows: pa.RecordBatch) -> None:
        """Rows of an input; None: the only one."""
        name = ONLY_INPUT if name is None else name
        self.rows_in[name] = self.rows_in.get(name, 0) + rows.num_rows

    def note_out(self, produced: TaggedRows) -> None:
        """Rows of an output."""
        name = MAIN if produced[0] is None else produced[0]
        self.rows_out[name] = self.rows_out.get(name, 0) + produced[1].num_rows

    def note_processed(self, counts: BatchCounts, counters: Counters) -> None:
        """The processor has come to its end."""
        vars(self).update(asdict(counts))
        self.counters, self.counters_left_out = counters.values, counters.left_out

    def note_prepared(self, state: SlotState) -> None:
        """The slot's next version is there, and so is all that it took."""
        for told in state.take_work():
            vars(self).update(asdict(told))

    def to_text(self) -> str:
        """Without what is 0 or empty: most is, and Spark keeps the text of some batches and logs it."""
        told = {name: round(value, 1) if isinstance(value, float) else value for name, value in vars(self).items()}
        return json.dumps({name: value for name, value in told.items() if value or name == "slot"})

    @classmethod
    def from_text(cls, text: Any) -> SlotMetrics | None:
        """None for what is no such text, as another version of Holdfast may write it."""
        try:
            told = json.loads(text)
            if not isinstance(told, dict) or "slot" not in told:
                return None
            kinds = {one.name: one.type for one in fields(cls) if one.name in told}
            return cls(**{name: _checked(name, told[name], kind) for name, kind in kinds.items()})
        except (TypeError, ValueError):
            return None


def _checked(name: str, value: Any, kind: Any) -> Any:
    """A figure as JSON gave it; ValueError for one of another type."""
    if kind == "dict[str, int]":
        fits = isinstance(value, dict) and all(type(count) is int for count in value.values())
    else:
        fits = type(value) in {"int": (int,), "float": (int, float), "str": (str,)}[kind]
    if not fits:
        raise ValueError(f"{name} is {value!r}")
    return value
