"""Declaring states: what a class may say, in which order it is found, and how wrong declarations are told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.unit.state_bench import USER, bind, make_store, purchases

import holdfast as hf
from holdfast.errors import InternalError, InvalidRequest
from holdfast.state import BatchValueState, KeyedValueState, declared_states
from holdfast.state.declarations import (
    AGGREGATING_FUNCTIONS,
    REDUCING_FUNCTIONS,
    AggregatingFunction,
    ReducingFunction,
)


class Base(hf.BatchProcessor):
    zebra = hf.ValueState(pa.int64())
    apple = hf.ListState(pa.string())


class Derived(Base):
    middle = hf.MapState(pa.string(), pa.int64())
    apple = hf.ReducingState(pa.int64(), "sum")  # type: ignore[assignment]


class Mean:
    """An aggregate that derives from nothing."""

    def create(self) -> dict[str, Any]:
        return {"sum": 0.0, "n": 0}

    def add(self, accumulator: dict[str, Any], value: float) -> dict[str, Any]:
        return {"sum": accumulator["sum"] + value, "n": accumulator["n"] + 1}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"sum": a["sum"] + b["sum"], "n": a["n"] + b["n"]}

    def result(self, accumulator: dict[str, Any]) -> float:
        return accumulator["sum"] / accumulator["n"]


MEAN = pa.struct([("sum", pa.float64()), ("n", pa.int64())])


def names(processor: Any) -> list[str]:
    return [name for name, _ in declared_states(processor)]


def test_states_are_found_in_order_of_declaration() -> None:
    assert names(Base) == ["zebra", "apple"]
    assert names(Base()) == ["zebra", "apple"]


def test_base_classes_come_first_and_a_subclass_may_declare_anew() -> None:
    assert names(Derived) == ["zebra", "apple", "middle"]
    assert dict(declared_states(Derived))["apple"].kind == "reducing"


def test_a_subclass_may_undo_a_declaration() -> None:
    class Without(Base):
        zebra = None  # type: ignore[assignment]

    assert names(Without) == ["apple"]


def test_states_of_a_mixin_are_found() -> None:
    class Counting:
        seen = hf.ValueState(pa.int64())

    class Mixed(Counting, hf.BatchProcessor):
        last = hf.ValueState(pa.int64())

    assert names(Mixed) == ["seen", "last"]


def test_a_pickled_processor_keeps_states_and_order() -> None:
    class Local(hf.BatchProcessor):
        zebra = hf.ValueState(pa.int64())
        apple = hf.ReducingState(pa.int64(), lambda a, b: a + b)

    loaded = cloudpickle.loads(cloudpickle.dumps(Local()))
    assert names(loaded) == ["zebra", "apple"]
    zebra: Any = dict(declared_states(loaded))["zebra"]
    assert zebra.type == pa.int64()


def test_what_is_recorded_of_a_state() -> None:
    declared = dict(declared_states(Derived))
    assert declared["middle"].types == {"key": pa.string(), "value": pa.int64()}
    assert (declared["zebra"].function_name, declared["apple"].function_name) == (None, "sum")
    python = hf.AggregatingState(pa.float64(), Mean, accumulator=MEAN, result=pa.float64())
    assert python.types == {"value": pa.float64(), "accumulator": MEAN, "result": pa.float64()}
    assert python.function_name == "python"


def test_a_declaration_reads_well() -> None:
    assert repr(Derived.apple) == "ReducingState('apple', value: int64, sum)"


@pytest.mark.parametrize("function", REDUCING_FUNCTIONS)
def test_every_reducing_function_exists_in_the_core(function: ReducingFunction) -> None:
    hf.ReducingState(pa.bool_() if function.startswith("bool") else pa.int64(), function)


@pytest.mark.parametrize("function", [*AGGREGATING_FUNCTIONS, "approx_count_distinct"])
def test_every_aggregating_function_exists(function: AggregatingFunction) -> None:
    hf.AggregatingState(pa.int64(), function)


def test_an_unknown_function_is_told_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"no function 'summ'.*sum, min, max, product"):
        hf.ReducingState(pa.int64(), "summ")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"no function 'median'.*count, avg, variance, stddev, approx_count_dist"):
        hf.AggregatingState(pa.int64(), "median")  # type: ignore[arg-type]


def test_a_function_that_the_type_does_not_have() -> None:
    with pytest.raises(InvalidRequest, match="no 'sum' of string"):
        hf.ReducingState(pa.string(), "sum")
    with pytest.raises(InvalidRequest, match="no 'avg' of string"):
        hf.AggregatingState(pa.string(), "avg")
    with pytest.raises(InvalidRequest, match="approx_count_distinct cannot count list"):
        hf.AggregatingState(pa.list_(pa.int64()), "approx_count_distinct")


@pytest.mark.parametrize(
    "declare",
    [
        lambda: hf.ValueState(pa.decimal256(50, 2)),
        lambda: hf.ListState(pa.float16()),
        lambda: hf.MapState(pa.list_(pa.int64()), pa.int64()),
        lambda: hf.MapState(pa.int64(), pa.dense_union([pa.field("a", pa.int64())])),
    ],
)
def test_types_that_the_core_does_not_keep(declare: Any) -> None:
    with pytest.raises(InvalidRequest, match="cannot be kept"):
        declare()


def test_a_type_must_be_an_arrow_type() -> None:
    with pytest.raises(InvalidRequest, match=r"expected an Arrow type such as pyarrow.int64\(\), found 'bigint'"):
        hf.ValueState("bigint")
    with pytest.raises(InvalidRequest, match="expected an Arrow type"):
        hf.ValueState(int)


def test_a_function_must_be_a_name_or_a_function() -> None:
    with pytest.raises(InvalidRequest, match="expected a name"):
        hf.ReducingState(pa.int64(), 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="has no create and no add and no result; expected a name"):
        hf.AggregatingState(pa.int64(), int, accumulator=pa.int64(), result=pa.int64())
    with pytest.raises(InvalidRequest, match="needs accumulator= and result="):
        hf.AggregatingState(pa.float64(), Mean)
    with pytest.raises(InvalidRequest, match="'count' knows its accumulator"):
        hf.AggregatingState(pa.float64(), "count", result=pa.int64())


def test_one_declaration_is_one_state() -> None:
    shared = hf.ValueState(pa.int64())
    with pytest.raises(InvalidRequest, match="'a' and 'b' are the same declaration"):

        class Twice(hf.BatchProcessor):
            a = shared
            b = shared


def test_a_state_outside_a_call() -> None:
    with pytest.raises(InvalidRequest, match="state 'zebra' of Base used outside a call of process"):
        Base().zebra  # noqa: B018


def test_a_state_cannot_be_assigned() -> None:
    with pytest.raises(InvalidRequest, match="state 'zebra' of Base is declared in its class and cannot be assigned"):
        Base().zebra = 7


def test_the_kind_of_processor_decides_what_a_state_is() -> None:
    class Keyed(hf.KeyedProcessor):
        zebra = hf.ValueState(pa.int64())

    batch, keyed = Base(), Keyed()
    with bind(batch, USER), bind(keyed, USER):
        assert isinstance(batch.zebra, BatchValueState)
        assert isinstance(keyed.zebra, KeyedValueState)
    with pytest.raises(InvalidRequest, match="outside a call"):
        batch.zebra  # noqa: B018


def test_a_processor_works_on_one_slot_at_a_time() -> None:
    processor = Base()
    with bind(processor, USER), pytest.raises(InternalError, match="at work on another slot"):
        bind(processor, USER)
    with bind(processor, USER):
        pass


def test_bound_states_must_be_the_declared_ones() -> None:
    from holdfast.state import BoundProcessor

    with pytest.raises(InternalError, match=r"declares the states \['apple', 'zebra'\]"):
        BoundProcessor(Base(), make_store(), USER, [("apple", 1)], USER)


def test_a_processor_is_of_one_of_the_two_kinds() -> None:
    class Neither(hf.state.Processor):
        pass

    with pytest.raises(InvalidRequest, match="neither a BatchProcessor nor a KeyedProcessor"):
        bind(Neither(), USER)


def test_rows_come_in_a_known_form() -> None:
    with pytest.raises(InvalidRequest, match="Odd.rows is 'polars'; expected 'arrow' or 'pandas'"):

        class Odd(hf.KeyedProcessor):
            rows = "polars"


def test_two_processors_of_one_class_keep_their_states_apart() -> None:
    one, two = Base(), Base()
    with bind(one, USER), bind(two, USER):
        one.zebra.put(["ada"], 1)
        assert two.zebra.get(purchases(["ada"], [0])).to_pylist() == [None]


def test_a_struct_has_no_two_fields_of_one_name() -> None:
    twice = pa.struct([pa.field("a", pa.int64()), pa.field("a", pa.string())])
    with pytest.raises(InvalidRequest, match="has two fields 'a'"):
        hf.ListState(pa.list_(twice))
