"""`hf.OperatorTables`: the states of one operator as tables, of which a savepoint is made. docs/guide/checkpoints.md"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.savepoint import SavedOperator, SavedState, StateColumns, StateTtl
from holdfast.settings import Settings
from holdfast.state import Processor, declared_states

_GROUPS_MAX = 32768


@dataclass(frozen=True)
class OperatorTables:
    """One operator of a savepoint that is written: ``hf.Savepoint.write(to, hf.OperatorTables(…))``.

    Parameters
    ----------
    name
        The operator's name.
    tables
        By the name of a state its rows, with the columns that :meth:`Savepoint.read` gives: a table of Arrow, pandas,
        Polars, DuckDB or Spark, a RecordBatchReader, or a ``pyarrow.dataset`` of files. May be left out:
        ``expiry``, ``key_group``, ``namespace`` (then ""), ``slot`` (then 0), ``position`` (then elements come in the
        order of the rows), and ``value`` where there is an ``accumulator``. A state without a table is as in ``base``,
        or empty.
    processor
        What declares the states: a BatchProcessor or KeyedProcessor, or its class. Of an operator that ``base`` has:
        left out.
    key
        The key columns: a ``pyarrow.Schema``, or DDL as for ``output_schema``: ``"user string"``. As ``processor``.
    null_keys
        As of ``hf.keyed``.
    max_parallelism
        Key groups: the ``spark.holdfast.maxParallelism`` of the queries that shall begin with it, 4096 by default.
    """

    name: str
    tables: Mapping[str, Any]
    processor: Processor | type[Processor] | None = field(default=None, kw_only=True)
    key: pa.Schema | str | None = field(default=None, kw_only=True)
    null_keys: bool = field(default=False, kw_only=True)
    max_parallelism: int | None = field(default=None, kw_only=True)

    def described(self, base: SavedOperator | None, now_ms: int) -> SavedOperator:
        """What the manifest will say, without the files of the states that have tables.

        Raises
        ------
        InvalidRequest
            What is needed is missing, or contradicts ``base``; or a table is of no state.
        """
        where = f"operator {self.name!r}"
        told = [self.processor, self.key, self.null_keys or None, self.max_parallelism]
        if base is not None and any(one is not None for one in told):
            raise InvalidRequest(
                f"{where} is in base, which says its processor, key, null_keys and max_parallelism: leave them out; or "
                "give what shall be another operator another name"
            )
        operator = base if base is not None else self._new(where, now_ms)
        names = [state.name for state in operator.states]
        unknown = next((name for name in self.tables if name not in names), None)
        if unknown is not None:
            raise InvalidRequest(f"{where} has no state {unknown!r}; it has {', '.join(names) or 'none'}")
        states = tuple(replace(one, files=()) if one.name in self.tables else one for one in operator.states)
        return replace(operator, versions=(), states=states)

    def _new(self, where: str, now_ms: int) -> SavedOperator:
        if self.processor is None or self.key is None:
            raise InvalidRequest(f"{where} is not in base: expected processor= and key=, which say what it keeps")
        from holdfast.spark.keyed import check_name  # loads pyspark

        check_name(self.name)  # a query that shall begin with it has the name
        groups = self.max_parallelism if self.max_parallelism is not None else Settings.from_mapping({}).max_parallelism
        if not 1 <= groups <= _GROUPS_MAX:
            raise InvalidRequest(f"{where}: max_parallelism is {groups}; expected 1 to {_GROUPS_MAX}")
        key = _key_schema(self.key, where)
        _core.KeyCodec(key, null_keys=self.null_keys)  # told here: a type that no key has
        ttls = _ttls(self.processor, now_ms)
        return SavedOperator(
            name=self.name,
            max_parallelism=groups,
            slots=1,
            null_keys=self.null_keys,
            key_schema=key,
            inputs=(),
            versions=(),
            states=tuple(sorted(_states(self.processor, key, ttls), key=lambda state: state.name)),
        )


def _states(processor: Processor | type[Processor], key: pa.Schema, ttls: Mapping[str, StateTtl]) -> list[SavedState]:
    from holdfast.spark.keyed import state_records  # loads pyspark

    return [
        SavedState(
            name=state.name,
            kind=state.kind,
            schema=state.schema,
            function=state.function,
            columns=StateColumns.of(key, state.kind, state.schema, state.function),
            ttl=ttls.get(state.name),
            files=(),
        )
        for state in state_records(processor)
    ]


def _ttls(processor: Processor | type[Processor], now_ms: int) -> dict[str, StateTtl]:
    """Of rows that do not say when they expire the TTL begins now. Event time is that of the rows, as they will say."""
    found = {}
    for name, declaration in declared_states(processor):
        if declaration.ttl is not None:
            time = declaration.ttl.time
            found[name] = StateTtl(time, declaration.ttl.duration_ms, now_ms if time == "processing" else 0)
    return found


def _key_schema(given: pa.Schema | str, where: str) -> pa.Schema:
    from holdfast.spark import schemas  # loads pyspark
    from holdfast.spark.ddl import parse_ddl

    key = schemas.arrow_schema(parse_ddl(given, f"{where}, key"), where) if isinstance(given, str) else given
    if not isinstance(key, pa.Schema) or not len(key):
        raise InvalidRequest(f'{where}: key is {given!r}; expected a pyarrow.Schema or DDL such as "user string"')
    twice = [name for name, count in Counter(key.names).items() if count > 1]
    if twice:
        raise InvalidRequest(f"{where}: expected each key column once, found {twice[0]!r} more than once")
    return schemas.key_schema(key, key.names)
