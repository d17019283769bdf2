"""Versions of a slot's state: handles, deltas, snapshots, recovery, retention.
Knows storage's interface and the core.
"""

from __future__ import annotations

from holdfast.checkpoint.background import Background, process_background
from holdfast.checkpoint.background_work import BackgroundFigures, BackgroundWork
from holdfast.checkpoint.evolution import StateChanges
from holdfast.checkpoint.expiry import BatchStamps, BatchTime, Lifetime
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef, StoredHandle
from holdfast.checkpoint.host import Host
from holdfast.checkpoint.names import operator_prefix
from holdfast.checkpoint.operator_record import (
    OperatorRecord,
    QueryPhase,
    check_operator,
    recorded_operator,
    register_operator,
)
from holdfast.checkpoint.origin import Origin, SavepointOrigin, VersionsOrigin
from holdfast.checkpoint.restoring import Recovery
from holdfast.checkpoint.runs import Runs
from holdfast.checkpoint.schema_evolution import FieldChange
from holdfast.checkpoint.settings import CheckpointSettings
from holdfast.checkpoint.slot_state import SlotState
from holdfast.checkpoint.slot_work import SlotWork
from holdfast.checkpoint.state_ids import FIRST_OPERATOR_STATE_ID, FIRST_TIMERS_ID
from holdfast.checkpoint.state_record import StateRecord

__all__ = [
    "FIRST_OPERATOR_STATE_ID",
    "FIRST_TIMERS_ID",
    "Background",
    "BackgroundFigures",
    "BackgroundWork",
    "BatchStamps",
    "BatchTime",
    "CheckpointSettings",
    "DeltaRef",
    "FieldChange",
    "Handle",
    "Host",
    "Lifetime",
    "OperatorRecord",
    "Origin",
    "QueryPhase",
    "Recovery",
    "Runs",
    "SavepointOrigin",
    "SlotState",
    "SlotWork",
    "SnapshotRef",
    "StateChanges",
    "StateRecord",
    "StoredHandle",
    "VersionsOrigin",
    "check_operator",
    "operator_prefix",
    "process_background",
    "recorded_operator",
    "register_operator",
]
