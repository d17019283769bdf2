"""The inputs of an operator under test: what is declared of each, and the rows that a test gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.spark import schemas
from holdfast.spark.inputs import broadcast_first, by_input, check_late, common_key, input_names, no_event_time
from holdfast.spark.pack import check_keys, keys_of
from holdfast.spark.plan import InputPlan
from holdfast.state import KEEP, Broadcast, Input, Processor, SideOutput, check_broadcast, check_side_outputs
from holdfast.state.columns import KeyColumns
from holdfast.testing.rows import Rows, input_batches, schema_of

_EVENT_TIME = pa.timestamp("us", "UTC")

#: Rows, and the number of the input that they are for.
NumberedRows = tuple[int, pa.RecordBatch]


class HarnessInputs:
    """One input without a name, or several by name: then each argument is for all of them, or a mapping by name.

    Raises
    ------
    InvalidRequest
        A wrong schema, key, event time or policy for late rows;
        or inputs that do not go with the processor's broadcast states.
    """

    def __init__(self, processor: Processor, schema: Any, key: Any, event_time: Any, late: Any, operator: str) -> None:
        self._operator = operator
        where = f"operator {operator!r}"
        names: list[Any] = [None]
        given: dict[Any, Any] = {None: schema}
        keys: dict[Any, Any] = {None: key}
        times: dict[Any, Any] = {None: event_time}
        lates: dict[Any, Any] = {None: late}
        if isinstance(schema, Mapping):
            given = broadcast_first(schema)
            names = [*input_names(given, where)]
        marked = [name for name in names if isinstance(given[name], Broadcast)]
        check_broadcast(processor, [Input(name, broadcast=name in marked) for name in names], where)
        if isinstance(schema, Mapping):
            keys = by_input("key", key, names, where, marked)
            times = by_input("event_time", {} if event_time is None else event_time, names, where, marked)
            lates = by_input("late", late, names, where, marked)
        self.plans = tuple(
            self._plan(name, given[name], keys.get(name), times.get(name), lates.get(name, KEEP)) for name in names
        )
        self.key_schema = common_key(self.plans, operator)

    @property
    def met(self) -> tuple[Input, ...]:
        """The inputs as a processor meets them."""
        return tuple(plan.met for plan in self.plans)

    @property
    def watermarked(self) -> bool:
        """Whether the query has a watermark."""
        return any(plan.watermarked for plan in self.plans)

    def side_schemas(self, tags: Sequence[SideOutput]) -> dict[str, pa.Schema]:
        """The schema of each side output, of those for late rows too, though they are not among ``tags``."""
        late = [one.late for one in self.met if isinstance(one.late, SideOutput)]
        every = check_side_outputs(dict.fromkeys((*tags, *late)), f"operator {self._operator!r}")
        return {tag.name: self._side_schema(tag) for tag in every}

    def batches(self, rows: Sequence[Rows], by_name: Mapping[str, Rows]) -> tuple[NumberedRows, ...]:
        """Rows as they are given, in the order of the inputs; InvalidRequest where they are none or for none."""
        names: list[Any] = [one.name for one in self.met]
        if names == [None]:
            if by_name:
                raise InvalidRequest(
                    f"process: rows for {', '.join(by_name)}; the only input has no name: process(rows)"
                )
            return tuple((0, batch) for batch in input_batches(rows, self.plans[0].schema))
        strangers = [name for name in by_name if name not in names]
        if rows or strangers:
            found = f"rows for {', '.join(strangers)}" if strangers else "rows that name no input"
            raise InvalidRequest(
                f"process: {found}; the inputs are {', '.join(map(str, names))}: process({names[0]}=rows)"
            )
        return tuple(
            (number, batch)
            for number, name in enumerate(names)
            if name in by_name
            for batch in input_batches([by_name[name]], self.plans[number].schema)
        )

    def check_keys(self, batches: Iterable[NumberedRows], codec: _core.KeyCodec, max_parallelism: int) -> None:
        """Refuses what a query refuses where it packs the rows: InvalidRequest for a null key."""
        for number, rows in batches:
            plan = self.plans[number]
            if not plan.met.broadcast:
                check_keys(codec, keys_of(rows, plan.key_columns, self.key_schema), max_parallelism)

    def keys(self, columns: KeyColumns, batches: Iterable[NumberedRows]) -> list[tuple[Any, ...]]:
        """The keys of rows, as Python values; without those that have none, which a BatchProcessor does not ask for."""
        found: list[tuple[Any, ...]] = []
        for number, rows in batches:
            if self.plans[number].met.broadcast:
                continue
            columns.look_for(self.plans[number].key_columns)
            keys = columns.of(rows)
            try:
                found += columns.tuples(keys)
            except InvalidRequest:
                for row in range(len(rows)):
                    with suppress(InvalidRequest):
                        found += columns.tuples(keys.slice(row, 1))
        columns.forget()
        return found

    def _plan(self, name: str | None, schema: Any, key: Any, event_time: Any, late: Any) -> InputPlan:
        where = f"operator {self._operator!r}" + (f", input {name!r}" if name else "")
        if isinstance(schema, Broadcast):
            read = schema_of(schema.marked, where)
            return InputPlan(Input(name, (), broadcast=True), read, (), None, None)
        read = schema_of(schema, where if name else f"{where}, input")
        if key is None:
            raise InvalidRequest(
                f"{where}: key names no key columns of it; all inputs need them, but those marked by hf.broadcast"
            )
        columns = schemas.key_columns(key, read, self._operator)
        check_late(late, where)
        if event_time is None:
            if late != KEEP:
                raise InvalidRequest(f"{where}: late rows are told by event_time=, which is missing")
        elif event_time in read.names and read.field(event_time).type == pa.timestamp("us"):
            raise InvalidRequest(f"{where}: event_time {no_event_time(read, event_time)}")
        elif event_time not in read.names or read.field(event_time).type != _EVENT_TIME:
            raise InvalidRequest(f"{where}: event_time is {event_time!r}; expected a timestamp column of the input")
        times = () if event_time is None else (event_time,)
        return InputPlan(Input(name, columns, event_time, late, times), read, columns, event_time, None)

    def _side_schema(self, tag: SideOutput) -> pa.Schema:
        where = f"operator {self._operator!r}, side output {tag.name!r}"
        takes = [plan.schema for plan in self.plans if plan.met.late == tag]
        if tag.schema is not None:
            schema = schema_of(tag.schema, where)
        elif takes or len(self.plans) == 1:
            schema = (takes or [self.plans[0].schema])[0]
        else:
            raise InvalidRequest(f"{where}: it takes the late rows of no input, so it needs a schema")
        if any((late.names, late.types) != (schema.names, schema.types) for late in takes):
            raise InvalidRequest(
                f"{where}: late rows have the input's columns, not its own. Leave out its schema, or give each input a "
                "side output of its own"
            )
        return schema
