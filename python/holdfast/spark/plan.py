"""What the driver decides about one operator; travels in the closures to the map side and to the slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.checkpoint import OperatorRecord
from holdfast.settings import Settings
from holdfast.state import Timers


@dataclass(frozen=True)
class OperatorPlan:
    """One operator in one query.

    Attributes
    ----------
    declared
        The operator as the program declares it; the record in the checkpoint may know better (labels, state ids).
    slots_given
        Whether the number of slots was asked for, or follows from the session and gives way to the recorded one.
    instance
        Tells this operator from another of the same name.
    event_time_column
        Column whose latest time pack must report for the watermark, or None.
    watermarked
        Whether the query has a watermark here, declared for this operator or inherited.
    arrow_rows_max
        Rows of an Arrow batch between Spark and Python, as the session has it.
    """

    declared: OperatorRecord
    slots_given: bool
    instance: str
    checkpoint_dir: str
    settings: Settings
    input_schema: pa.Schema
    output_schema: pa.Schema
    event_time_column: str | None
    watermarked: bool
    arrow_rows_max: int

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def timers(self) -> bool:
        """Whether slots are called in every batch, with rows or without."""
        return any(state.kind == Timers.kind for state in self.declared.states)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(self.declared.key_schema.names)

    def declared_over(self, recorded: OperatorRecord | None) -> OperatorRecord:
        """What is declared. A number of slots that nobody asked for follows the record, so that a session with other
        shuffle partitions can go on.
        """
        if recorded is None or self.slots_given:
            return self.declared
        return replace(self.declared, slots=recorded.slots, labels=recorded.labels)
