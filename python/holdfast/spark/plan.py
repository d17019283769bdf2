"""What the driver decides about one operator; travels in the closures to the map side and to the slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.checkpoint import OperatorRecord
from holdfast.settings import Settings
from holdfast.state import TTL, Input, Timers


@dataclass(frozen=True)
class InputPlan:
    """One input of an operator.

    Attributes
    ----------
    met
        The input as the processor meets it.
    key_columns
        Where the operator's key stands in it; nowhere, where it is broadcast.
    reported_column
        Column whose latest time pack must report for the watermark that is declared with the operator, or None.
    inherited_delay_ms
        The delay of the watermark that the DataFrame came with, or None.
    """

    met: Input
    schema: pa.Schema
    key_columns: tuple[str, ...]
    reported_column: str | None
    inherited_delay_ms: int | None

    @property
    def watermarked(self) -> bool:
        return self.reported_column is not None or self.inherited_delay_ms is not None


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
    inputs
        In the order in which a slot reads them.
    output_schema, side_outputs
        Of the main output, and of the others by name.
    arrow_rows_max
        Rows of an Arrow batch between Spark and Python, as the session has it.
    ttls
        By state, of those that have one. They are no part of the declaration that is compared: a TTL may change.
    """

    declared: OperatorRecord
    slots_given: bool
    instance: str
    checkpoint_dir: str
    settings: Settings
    inputs: tuple[InputPlan, ...]
    output_schema: pa.Schema
    side_outputs: tuple[tuple[str, pa.Schema], ...]
    arrow_rows_max: int
    ttls: tuple[tuple[str, TTL], ...] = ()

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def watermarked(self) -> bool:
        """Whether the query has a watermark here, declared for this operator or inherited."""
        return any(one.watermarked for one in self.inputs)

    @property
    def timers(self) -> bool:
        """Whether slots are called in every batch, with rows or without."""
        return any(state.kind == Timers.kind for state in self.declared.states)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key's own names, whatever they are in an input."""
        return tuple(self.declared.key_schema.names)

    def declared_over(self, recorded: OperatorRecord | None) -> OperatorRecord:
        """What is declared. A number of slots that nobody asked for follows the record, so that a session with other
        shuffle partitions can go on.
        """
        if recorded is None or self.slots_given:
            return self.declared
        return replace(self.declared, slots=recorded.slots, labels=recorded.labels)
