"""Several inputs below Spark: each has its method, its key columns and its late rows, and they share the states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, bind, make_context
from tests.unit.test_pack import SCHEMA, batches, packed, plan, slot_rows

import holdfast as hf
from holdfast.spark.inputs import common_key
from holdfast.spark.plan import InputPlan
from holdfast.state import BatchCounts, Input, check_methods

TOTALS = pa.schema([("user", pa.string()), ("source", pa.string()), ("total", pa.int64())])
INPUTS = (Input("orders", ("user",)), Input("refunds", ("account",)))
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Balance(hf.BatchProcessor):
    """Orders add to a user's total, refunds take from it; the key has another name there."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        totals = self.total.add(batch, batch["amount"])
        for user, total in zip(batch["user"].to_pylist(), totals.to_pylist()):
            yield {"user": user, "source": "orders", "total": total}

    def process_refunds(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        totals = self.total.add(batch, pa.compute.negate(batch["back"]))
        for user, total in zip(batch["account"].to_pylist(), totals.to_pylist()):
            yield {"user": user, "source": "refunds", "total": total}


class BalanceByKey(hf.KeyedProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        return [self._add(key, amount, "orders") for amount in rows["amount"].to_pylist()]

    def process_refunds(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        return [self._add(key, -back, "refunds") for back in rows["back"].to_pylist()]

    def _add(self, key: tuple[Any, ...], amount: int, source: str) -> dict[str, Any]:
        self.total.add(amount)
        return {"user": key[0], "source": source, "total": self.total.get()}


def orders(*rows: tuple[str, int]) -> pa.RecordBatch:
    return pa.record_batch({"user": [user for user, _ in rows], "amount": [amount for _, amount in rows]})


def refunds(*rows: tuple[str, int]) -> pa.RecordBatch:
    return pa.record_batch({"account": [user for user, _ in rows], "back": [back for _, back in rows]})


@pytest.mark.parametrize("rows_bytes_max", [1, 64 << 20], ids=["in pieces", "at once"])
@pytest.mark.parametrize("processor", [Balance(), BalanceByKey()], ids=["batch", "keyed"])
def test_inputs_share_the_states_and_come_one_after_the_other(processor: Any, rows_bytes_max: int) -> None:
    ctx = make_context()
    given = []
    with bind(processor, TOTALS, inputs=INPUTS, rows_bytes_max=rows_bytes_max) as bound:
        for number, batch in (
            (0, orders(("ada", 10), ("bob", 5))),
            (0, orders(("ada", 1))),
            (1, refunds(("bob", 2), ("cy", 4))),
            (1, refunds(("ada", 3))),
        ):
            given += list(bound.process(batch, ctx, number))
        given += list(bound.finish(ctx))
    found = [tuple(row.values()) for _, rows in given for row in rows.to_pylist()]
    by_user = {user: [row[1:] for row in found if row[0] == user] for user in ("ada", "bob", "cy")}
    assert by_user == {
        "ada": [("orders", 10), ("orders", 11), ("refunds", 8)],
        "bob": [("orders", 5), ("refunds", 3)],
        "cy": [("refunds", -4)],
    }
    assert [source for _, source, _ in found] == ["orders"] * 3 + ["refunds"] * 3


def test_each_input_has_late_rows_of_its_own() -> None:
    class Count(hf.BatchProcessor):
        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            ctx.counters.add("orders", batch.num_rows)

        def process_refunds(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            ctx.counters.add("refunds", batch.num_rows)

    times = pa.array([START + timedelta(seconds=s) for s in (0, 10)], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"user": ["a", "b"], "at": times})
    inputs = [Input("orders", ("user",), "at", "drop"), Input("refunds", ("user",))]
    ctx = make_context(watermark_ms=int(START.timestamp() * 1000))
    with bind(Count(), USER, inputs=inputs) as bound:
        assert [*bound.process(batch, ctx, 0), *bound.process(batch, ctx, 1), *bound.finish(ctx)] == []
    assert ctx.counters.values == {"orders": 1, "refunds": 2}
    assert bound.counts == BatchCounts(late_rows_dropped=1)


def test_a_missing_method_is_named() -> None:
    message = (
        r"operator 'o': Balance lacks the method process_returns\(self, batch, ctx\) for the rows of input 'returns'"
    )
    with pytest.raises(hf.InvalidRequest, match=message):
        check_methods(Balance(), (Input("orders"), Input("returns")), "operator 'o'")
    with pytest.raises(hf.InvalidRequest, match=r"lacks the method process\(self, key, rows, ctx\)$"):
        check_methods(BalanceByKey(), (Input(),), "operator 'o'")
    check_methods(Balance(), INPUTS, "operator 'o'")


def test_an_input_is_packed_by_its_own_key_columns_under_its_number() -> None:
    """Equal keys of two inputs must meet in one slot, whatever their columns are called."""
    labels = (1, 2, 3)
    renamed = [batch.rename_columns(["account", "ts", "amount"]) for batch in batches(300, 100)]
    others = plan(schema=renamed[0].schema, key_columns=("account",), input_number=1, input_name="refunds")
    first = slot_rows(packed(plan(), labels, batches(300, 100)))
    second = slot_rows(packed(others, labels, iter(renamed)), renamed[0].schema)
    users = {
        label: {user for _, rows in blobs for user in rows.column(0).to_pylist()} for label, blobs in first.items()
    }
    assert users == {
        label: {user for _, rows in blobs for user in rows.column(0).to_pylist()} for label, blobs in second.items()
    }
    assert {blob.channel for blobs in second.values() for blob, _ in blobs} == {1}
    assert {blob.channel for blobs in first.values() for blob, _ in blobs} == {0}
    wrong = plan(schema=SCHEMA, input_name="refunds")
    with pytest.raises(hf.InvalidRequest, match="operator 'totals', input 'refunds': the columns are"):
        packed(wrong, labels, iter(renamed))


def _struct(name: str, *, nullable: bool) -> pa.Schema:
    kind = pa.struct([pa.field("user", pa.string(), nullable), pa.field("region", pa.string())])
    return pa.schema([pa.field(name, kind, nullable), pa.field("amount", pa.int64())])


def test_keys_of_two_inputs_are_of_one_type_whatever_spark_knows_of_their_nulls() -> None:
    loose, strict = _struct("user", nullable=True), _struct("account", nullable=False)
    inputs = [
        InputPlan(Input(name, (key,)), schema, (key,), None, None)
        for name, key, schema in (("orders", "user", loose), ("refunds", "account", strict))
    ]
    common = common_key(inputs, "balance")
    assert common == pa.schema([loose.field("user")])
    packs = [
        plan(schema=one.schema, key_schema=common, key_columns=one.key_columns, input_number=number)
        for number, one in enumerate(inputs)
    ]
    rows = [{"user": f"user{i}", "region": None if i % 2 else ""} for i in range(50)]
    found = []
    for one in packs:
        source = pa.record_batch([pa.array(rows, one.schema.types[0]), list(range(50))], schema=one.schema)
        nulls = replace(one, null_keys=True)
        slots = slot_rows(packed(nulls, (1, 2, 3), iter([source])), one.schema)
        found.append({label: [part["amount"].to_pylist() for _, part in blobs] for label, blobs in slots.items()})
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_methods_that_would_never_run_are_refused() -> None:
    class Closes(Balance):
        def close(self) -> Any:
            yield {"user": "ada"}

    class Waits(Balance):
        async def process_orders(self, batch: Any, ctx: Any) -> Any:  # type: ignore[override]
            return batch

    with pytest.raises(hf.InvalidRequest, match=r"operator 'o': Closes.close would never run: it yields; expected"):
        check_methods(Closes(), INPUTS, "operator 'o'")
    with pytest.raises(hf.InvalidRequest, match=r"Waits.process_orders would never run: it is async; expected"):
        check_methods(Waits(), INPUTS, "operator 'o'")
