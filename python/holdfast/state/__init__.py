"""What a user declares and calls: processors, their states, and the context of a call.

Knows the core, and no engine.
"""

from holdfast.state.aggregate_function import AggregateFunction
from holdfast.state.batch_counts import BatchCounts
from holdfast.state.batch_states import (
    BatchAggregatingState,
    BatchListState,
    BatchMapState,
    BatchReducingState,
    BatchValueState,
)
from holdfast.state.bound import BoundProcessor
from holdfast.state.changes import DroppedState, declared_changes, declared_field_marks, renamed_from
from holdfast.state.context import Context, Counters
from holdfast.state.copies import fresh_copy
from holdfast.state.declarations import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDeclaration,
    ValueState,
)
from holdfast.state.fields import dropped_field, with_default
from holdfast.state.inputs import DROP, KEEP, Broadcast, Input, Late, broadcast, check_methods
from holdfast.state.keyed_collections import KeyedListState, KeyedMapState
from holdfast.state.keyed_values import KeyedAggregatingState, KeyedReducingState, KeyedValueState
from holdfast.state.live_operator_states import (
    BatchBroadcastState,
    BatchOperatorState,
    KeyedBroadcastState,
    KeyedOperatorState,
)
from holdfast.state.live_timers import BatchTimers, KeyedTimers
from holdfast.state.operator_states import BroadcastState, OperatorState, check_broadcast
from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor, declared_states
from holdfast.state.side_outputs import MAIN, Outputs, SideOutput, TaggedRows, check_side_outputs
from holdfast.state.timers import Timers, any_due, declared_timers
from holdfast.state.ttl import TTL

__all__ = [
    "DROP",
    "KEEP",
    "MAIN",
    "TTL",
    "AggregateFunction",
    "AggregatingState",
    "BatchAggregatingState",
    "BatchBroadcastState",
    "BatchCounts",
    "BatchListState",
    "BatchMapState",
    "BatchOperatorState",
    "BatchProcessor",
    "BatchReducingState",
    "BatchTimers",
    "BatchValueState",
    "BoundProcessor",
    "Broadcast",
    "BroadcastState",
    "Context",
    "Counters",
    "DroppedState",
    "Input",
    "KeyedAggregatingState",
    "KeyedBroadcastState",
    "KeyedListState",
    "KeyedMapState",
    "KeyedOperatorState",
    "KeyedProcessor",
    "KeyedReducingState",
    "KeyedTimers",
    "KeyedValueState",
    "Late",
    "ListState",
    "MapState",
    "OperatorState",
    "Outputs",
    "Processor",
    "ReducingState",
    "SideOutput",
    "StateDeclaration",
    "TaggedRows",
    "Timers",
    "ValueState",
    "any_due",
    "broadcast",
    "check_broadcast",
    "check_methods",
    "check_side_outputs",
    "declared_changes",
    "declared_field_marks",
    "declared_states",
    "declared_timers",
    "dropped_field",
    "fresh_copy",
    "renamed_from",
    "with_default",
]
