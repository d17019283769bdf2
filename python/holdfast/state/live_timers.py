"""Timers while their processor runs: vectorised, and the current key's.

A timer is a time and a namespace of a key; setting it twice is setting it once. The core keeps timers in order of
time; times are microseconds since 1970 (UTC) there, timestamps here. What fires is taken out first, so a timer that is
set again while it fires fires again.
"""

from __future__ import annotations

import builtins
import datetime as dt
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.arrow.arrays import decoded
from holdfast.errors import InvalidRequest
from holdfast.state.batch_states import BatchState
from holdfast.state.columns import CoreKeys, KeyColumns, Keys, ValueColumns, Values
from holdfast.state.context import Context
from holdfast.state.keyed_scope import KeyedState, KeyScope
from holdfast.state.live_state import operation
from holdfast.state.python_values import NotKept, keeper

TIME = pa.timestamp("us", "UTC")
NAMESPACE = pa.string()
DOMAINS = ("event", "processing")

_LISTED = pa.list_(pa.struct([("time", TIME), ("namespace", NAMESPACE)]))
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)

_KEEPERS = {"time": keeper(TIME), "namespace": keeper(NAMESPACE)}


def due_until(domain: str, ctx: Context) -> int | None:
    """Timers up to this time fire in the batch, in microseconds since 1970: up to its watermark, or to its own
    timestamp; both are in Spark's checkpoint, so a replay fires the same. None: no watermark has come.
    """
    until_ms = ctx.timestamp_ms if domain == "processing" else ctx.watermark_ms
    return until_ms * 1000 if until_ms else None  # Spark's watermark begins as 0, which says nothing of times before


_WHOEVER_FIRES_THEM = frozenset({"take_due", "put_back", "next_due"})


class BatchTimers(BatchState):
    """Timers of a BatchProcessor: arrays of keys, times and namespaces.

    Times are timestamps of any unit, with a zone or in UTC; namespaces are strings, one a row or one for all.
    """

    _not_for_users = _WHOEVER_FIRES_THEM

    def __init__(self, name: str, domain: str, keys: KeyColumns, table: _core.TimerTable) -> None:
        super().__init__(name, keys)
        self.domain = domain
        self._table = table
        self._times = ValueColumns(TIME, f"timers {name!r}", "times")
        self._namespaces = ValueColumns(NAMESPACE, f"timers {name!r}", "namespaces")
        self.registered = self.deleted = 0

    @operation
    def register(self, keys: Keys, times: Values, namespaces: Values = "") -> None:
        """Sets one timer a row; a row whose time is null sets none. One that is set already stays."""
        timers = self._timers(keys, times, namespaces)
        self._run(self._table.register, *timers)
        self.registered += len(timers[1])

    @operation
    def delete(self, keys: Keys, times: Values, namespaces: Values = "") -> None:
        """Removes one timer a row; one that is not there is no error, nor is a time that is null."""
        timers = self._timers(keys, times, namespaces)
        self._run(self._table.delete, *timers)
        self.deleted += len(timers[1])

    def list(self, keys: Keys) -> pa.Array:
        """The timers of each row's key as list<struct<time: timestamp, namespace: string>>, in order of time.

        Reads all timers that are stored near the key's: for some keys, not for each row.
        """
        return pa.array(self._ask(self._table.list, self._keys.of(keys))).cast(_LISTED)

    def take_due(self, until: int, limit: int) -> pa.RecordBatch:
        """The first timers up to a time, taken out: key columns, time, namespace. For whoever fires them."""
        found = pa.array(self._run(self._table.take_due, until, limit))
        keys, times, namespaces = found.flatten()
        schema = [*self._keys.schema, pa.field("time", TIME), pa.field("namespace", NAMESPACE)]
        return pa.RecordBatch.from_arrays([*keys.flatten(), times.cast(TIME), namespaces], schema=pa.schema(schema))

    def _timers(self, keys: Keys, times: Values, namespaces: Values) -> tuple[CoreKeys, pa.Array, pa.Array]:
        rows = self._keys.of(keys)
        # A dictionary's rows know of no null that stands among its values.
        at = decoded(self._times.of(times, len(rows)))
        named = decoded(self._namespaces.of(namespaces, len(rows)))
        if named.null_count:
            raise InvalidRequest(
                f'timers {self.name!r}, namespaces: expected strings, found {named.null_count} nulls; "" is the '
                "namespace of timers that need none"
            )
        if at.null_count:
            valid = pc.is_valid(at)
            rows, at, named = rows.filter(valid), at.filter(valid), named.filter(valid)
        return rows, at.cast(pa.int64()), named


class KeyedTimers(KeyedState):
    """The current key's timers. Setting and deleting read nothing."""

    _not_for_users = _WHOEVER_FIRES_THEM

    def __init__(self, name: str, domain: str, scope: KeyScope, table: _core.TimerTable) -> None:
        super().__init__(name, scope)
        self.domain = domain
        self._table = table
        self._changes: dict[tuple[int, int, str], bool] = {}  # (key, time, namespace): whether it was set, at last
        self.registered = self.deleted = 0

    @operation
    def register(self, time: dt.datetime, namespace: str = "") -> None:
        """Sets a timer, for the current key; one that is set already stays.

        Parameters
        ----------
        time
            When: with a time zone, or in UTC.
        namespace
            Tells timers of one key and time apart.
        """
        self._changes[self._timer(time, namespace)] = True
        self.registered += 1

    @operation
    def delete(self, time: dt.datetime, namespace: str = "") -> None:
        """Removes a timer; one that is not there is no error."""
        self._changes[self._timer(time, namespace)] = False
        self.deleted += 1

    def list(self) -> builtins.list[tuple[dt.datetime, str]]:
        """The current key's timers that have not fired: (time, namespace), in order of time.

        Reads all timers that are stored near the key's: for some keys, not for each.

        Raises
        ------
        InvalidRequest
            A time that Python has no value for, which a BatchProcessor set: a year past 9999.
        """
        index = self._index()
        [found] = self._read(self._table.list, self._scope.current())
        timers = {(timer["time"], timer["namespace"]) for timer in found}
        for (changed, time, namespace), is_set in self._changes.items():
            if changed == index:
                (timers.add if is_set else timers.discard)((time, namespace))
        return [(time_of(time, self.name), namespace) for time, namespace in sorted(timers)]

    def take_due(self, until: int, limit: int) -> pa.StructArray:
        """The first timers up to a time, taken out: key (a struct), time, namespace. For whoever fires them."""
        return pa.array(self._run(self._table.take_due, until, limit))

    def put_back(self, timers: pa.StructArray) -> None:
        """Sets again what was taken and does not fire yet."""
        keys, times, namespaces = timers.flatten()
        self._run(self._table.register, core_keys(keys), times, namespaces)

    def next_due(self) -> int | None:
        """The time of the first timer, or None where there is none. For whoever fires them."""
        earliest: int | None = self._run(self._table.next_due)
        return earliest

    def begin(self, size: int) -> None:
        self._changes = {}

    @operation
    def flush(self) -> None:
        changes, self._changes = self._changes, {}
        for change, wanted in ((self._table.register, True), (self._table.delete, False)):
            timers = [timer for timer, is_set in changes.items() if is_set is wanted]
            self._in_parts(partial(self._write, change, timers), len(timers))

    def _write(self, change: Callable[..., Any], timers: Sequence[tuple[int, int, str]], first: int, end: int) -> None:
        indices, times, namespaces = map(list, zip(*timers[first:end]))
        at = self._asked_arrow(times, pa.int64(), indices, ", time")
        named = self._asked_arrow(namespaces, NAMESPACE, indices, ", namespace")
        self._run(change, self._scope.several(indices), at, named)

    def _timer(self, time: dt.datetime, namespace: str) -> tuple[int, int, str]:
        index = self._index()
        at = self._kept(time, TIME, "time", "a timer has a time")
        named = self._kept(namespace, NAMESPACE, "namespace", '"" is the namespace of timers that need none')
        return index, (at - _EPOCH) // _MICROSECOND, named

    def _kept(self, value: Any, type: pa.DataType, argument: str, if_null: str) -> Any:
        try:
            kept = _KEEPERS[argument](value)
            if kept is None:
                raise NotKept(if_null)
        except NotKept as reason:
            raise self._refused(value, type, reason, f", {argument}") from None
        return kept


class TimerQueue:
    """The timers of a KeyedProcessor that go by one kind of time, as one queue: in order of time, those of one time in
    order of declaration.
    """

    def __init__(self, declared: Sequence[KeyedTimers]) -> None:
        self.domain = declared[0].domain
        self.is_several = len(declared) > 1
        self._declared = declared
        self._of: np.ndarray[Any, Any] | None = None  # which declaration's each is that was taken last

    def take_due(self, until: int, limit: int) -> pa.StructArray:
        """As of one declaration's timers; the first of all."""
        if len(self._declared) == 1:
            return self._declared[0].take_due(until, limit)
        taken: dict[int, pa.StructArray] = {}
        for timers in sorted(self._declared, key=_earliest):  # so that little is taken that comes after what is fired
            taken[self._declared.index(timers)] = due = timers.take_due(until, limit)
            if len(due) == limit:
                until = due[-1]["time"].as_py()
        parts = [taken[number] for number in range(len(self._declared))]
        every = pa.concat_arrays(parts)
        order = np.argsort(every.field("time").to_numpy(), kind="stable")
        self._of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]
        every = every.take(pa.array(order))
        if len(every) > limit:  # who has more than were taken was asked for so many: none of them comes before these
            self.put_back(every, limit)
        return every.slice(0, limit)

    def put_back(self, timers: pa.StructArray, first: int) -> None:
        """Sets again what was taken and does not fire yet: from the timer at ``first`` on."""
        if self._of is None:
            self._declared[0].put_back(timers.slice(first))
            return
        for number, declared in enumerate(self._declared):
            mine = first + np.flatnonzero(self._of[first : len(timers)] == number)
            if len(mine):
                declared.put_back(timers.take(pa.array(mine)))

    def names(self, count: int) -> Sequence[str]:
        """The declaration's name of each of so many timers that were taken last; one name where it is that of all."""
        if self._of is None:
            return [self._declared[0].name]
        return [self._declared[number].name for number in self._of[:count]]


def queues_of(declared: Sequence[KeyedTimers]) -> list[TimerQueue]:
    """One a kind of time."""
    by_domain: dict[str, list[KeyedTimers]] = {}
    for timers in declared:
        by_domain.setdefault(timers.domain, []).append(timers)
    return [TimerQueue(timers) for timers in by_domain.values()]


def _earliest(timers: KeyedTimers) -> float:
    earliest = timers.next_due()
    return math.inf if earliest is None else earliest


def core_keys(keys: pa.StructArray) -> CoreKeys:
    """Keys that the core gave, as it takes them."""
    columns = keys.flatten()
    return columns[0] if len(columns) == 1 else pa.RecordBatch.from_arrays(columns, names=keys.type.names)


def time_of(microseconds: int, timers: str) -> dt.datetime:
    """A time of the core's as users see it; InvalidRequest, which names the timers, where Python has none."""
    try:
        return _EPOCH + microseconds * _MICROSECOND
    except OverflowError as error:
        raise InvalidRequest(
            f"timers {timers!r}, times: {microseconds} microseconds since 1970 have no Python value ({error}); use "
            "them in arrays, in a BatchProcessor"
        ) from None
