"""Reads checkpoints that no query runs on, or that one runs on: lists, verifies, reads as tables, compares, saves.

Claims nothing, clears nothing, writes nothing into a checkpoint: what it makes is in a temporary folder of its own.
Only garbage.py and repairs.py change one, and disposal.py deletes a savepoint, when told to. See docs/rfcs/0014.
"""

from __future__ import annotations

from holdfast.inspect.checkpoint import Checkpoint
from holdfast.inspect.descriptions import (
    Damage,
    Disposal,
    Garbage,
    OperatorDescription,
    Repair,
    Repairs,
    StateDescription,
    Unneeded,
    Verification,
    Version,
)
from holdfast.inspect.operator_tables import OperatorTables
from holdfast.inspect.savepoint import Savepoint

__all__ = [
    "Checkpoint",
    "Damage",
    "Disposal",
    "Garbage",
    "OperatorDescription",
    "OperatorTables",
    "Repair",
    "Repairs",
    "Savepoint",
    "StateDescription",
    "Unneeded",
    "Verification",
    "Version",
]
