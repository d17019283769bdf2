"""What a user writes: a class that is called with rows and keeps states. Two kinds, by what they are called with.

| | called with | its states are |
| --- | --- | --- |
| BatchProcessor | a record batch of many keys | vectorised: arrays of keys in, arrays out |
| KeyedProcessor | one key and all its rows of the batch | the current key's |
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Union

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.state.context import Context
from holdfast.state.declarations import StateDeclaration, declared_in

if TYPE_CHECKING:
    import pandas as pd

# What process may yield, or return: rows as dicts by column or tuples by position, or many rows in Arrow or pandas.
Produced = Union[None, "dict[str, Any]", "tuple[Any, ...]", pa.RecordBatch, pa.Table, "pd.DataFrame", Iterable[Any]]

ROW_FORMS = ("arrow", "pandas")


class Processor:
    """Base of both kinds.

    An instance travels pickled to each task; keep what it needs in ``__init__``, and states in declarations.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        declared_in(cls)

    def open(self, ctx: Context) -> None:
        """Called before the first rows of a slot in a batch."""

    def close(self) -> None:
        """Called once the slot's rows are done, also when they failed. States are gone by then."""


class BatchProcessor(Processor):
    """A processor of whole Arrow record batches."""

    def process(self, batch: pa.RecordBatch, ctx: Context) -> Produced:
        """Called with each record batch of a slot, in order.

        Parameters
        ----------
        batch
            Rows of the slot's keys with all columns of the input. Rows of one key keep the order in which their
            source partition had them.
        ctx
            See :class:`Context`.

        Returns
        -------
        Record batches or tables (or frames, dicts, tuples) in the operator's output schema: one, several by
        ``yield``, or None.
        """
        raise NotImplementedError

    def on_timers(self, batch: pa.RecordBatch, ctx: Context) -> Produced:
        """Called with timers that are due, after the batch's rows, until no more are; declaration by declaration.

        Parameters
        ----------
        batch
            The key columns, then ``time`` (timestamp, UTC) and ``namespace`` (string); in order of time, then key,
            then namespace. They have been taken out: one that is set again fires again.
        ctx
            See :class:`Context`; ``ctx.timers`` names the declaration.

        Returns
        -------
        As of :meth:`process`.
        """
        raise NotImplementedError


class KeyedProcessor(Processor):
    """A processor of one key at a time.

    Attributes
    ----------
    rows
        "arrow": rows come as a ``pyarrow.Table``; "pandas": as a ``pandas.DataFrame``, which costs some 40 µs a key.
    """

    rows: ClassVar[str] = "arrow"

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.rows not in ROW_FORMS:
            raise InvalidRequest(f"{cls.__name__}.rows is {cls.rows!r}; expected {' or '.join(map(repr, ROW_FORMS))}")

    def process(self, key: tuple[Any, ...], rows: Any, ctx: Context) -> Produced:
        """Called once a key and batch, with all rows of the key in the batch.
        Keys come in the order of their first row.

        Where a slot's rows of one batch outgrow the memory limit, keys are called with the rows gathered so far, and
        a key whose rows go on is called again in the same batch, with its later rows only.

        Parameters
        ----------
        key
            The key columns' values as Python values, in order.
        rows
            All columns of the input, key columns included.
        ctx
            See :class:`Context`.

        Returns
        -------
        Rows in the operator's output schema, by ``yield`` or ``return``: a dict by column name, a tuple by position,
        a frame, a table or a record batch; several of them in a list; or None.
        Key columns are not added by themselves.
        """
        raise NotImplementedError

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: Context) -> Produced:
        """Called once for each timer that is due, with the key's states, after all rows of the batch.

        One key's timers come in order of time, of one kind of time also those of several declarations. One that is set
        meanwhile and is due comes in its place too.

        Parameters
        ----------
        key
            The key columns' values as Python values, in order.
        time, namespace
            As they were set; the time is in UTC.
        ctx
            See :class:`Context`; ``ctx.timers`` names the declaration.

        Returns
        -------
        As of :meth:`process`.
        """
        raise NotImplementedError


def declared_states(processor: Processor | type[Processor]) -> tuple[tuple[str, StateDeclaration[Any, Any]], ...]:
    """Names and declarations of a processor's states in order of declaration, base classes first."""
    return declared_in(processor if isinstance(processor, type) else type(processor))
