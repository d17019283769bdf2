"""Broadcast states and operator states, which belong to no key: in both forms, on a bare store and in a Harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import Backend, bind, make_context, make_store, purchases, reopened

import holdfast as hf
from holdfast.checkpoint.spill import Spill
from holdfast.state import Input, check_broadcast, check_methods
from holdfast.testing import Harness

RULES = pa.schema([("name", pa.string()), ("least", pa.int64())])
INPUTS = (Input("rules", (), broadcast=True), Input("orders", ("user",)))
LEAST = pa.struct([("least", pa.int64())])
Step = Callable[[Any, hf.Context], Any]
FORMS = ("batch", "keyed")
NOON = datetime(2027, 1, 15, 12, tzinfo=timezone.utc)


def nothing(processor: Any, ctx: hf.Context) -> None:
    pass


def judge(form: str, in_rules: Step = nothing, in_orders: Step = nothing, in_open: Step = nothing) -> Any:
    """A processor of either form that does these things where they say; what they give comes out as text."""

    class Given:
        rules = hf.BroadcastState(pa.string(), LEAST)
        buffer = hf.OperatorState(pa.int64(), redistribution="split")
        total = hf.ReducingState(pa.int64(), "sum")
        due = hf.Timers("processing")

        def open(self, ctx: hf.Context) -> None:
            in_open(self, ctx)

        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
            yield {"said": repr(in_rules(self, ctx))}

    def declared(name: str) -> Any:
        return vars(Given)[name]

    class OfBatches(hf.BatchProcessor):
        rules, buffer, total, due = map(declared, ("rules", "buffer", "total", "due"))
        open, process_rules = Given.open, Given.process_rules

        def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
            yield {"said": repr(in_orders(self, ctx))}

        def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            pass

    class OfKeys(hf.KeyedProcessor):
        rules, buffer, total, due = map(declared, ("rules", "buffer", "total", "due"))
        open, process_rules = Given.open, Given.process_rules

        def process_orders(self, key: Any, rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
            yield {"said": repr(in_orders(self, ctx))}

        def on_timer(self, key: Any, time: Any, namespace: str, ctx: hf.Context) -> None:
            pass

    return OfBatches() if form == "batch" else OfKeys()


SAID = pa.schema([("said", pa.string())])


def run(processor: Any, store: Any = None, rules: int = 1, users: tuple[str, ...] = ("ada",)) -> list[str]:
    """One batch: rows of the broadcast input, then of the other."""
    said = []
    with bind(processor, SAID, store or make_store(), inputs=INPUTS) as bound:
        for number, batch in (
            *((0, pa.record_batch([[f"r{i}"], [i]], schema=RULES)) for i in range(rules)),
            *((1, purchases([user], [1])) for user in users),
        ):
            said += [
                row["said"] for _, rows in bound.process(batch, make_context(), number) for row in rows.to_pylist()
            ]
        said += [row["said"] for _, rows in bound.finish(make_context()) for row in rows.to_pylist()]
    return said


def put_two(processor: Any, ctx: hf.Context) -> None:
    processor.rules.put("b", {"least": 2})
    processor.rules.put("a", {"least": None})
    processor.rules.put("gone", {"least": 9})
    processor.rules.remove("gone")
    processor.rules.remove("never")


@pytest.mark.parametrize("form", FORMS)
def test_a_broadcast_state_is_a_map_of_python_values_in_both_forms(form: str) -> None:
    def read(processor: Any, ctx: hf.Context) -> Any:
        rules = processor.rules
        found = rules.get("a"), rules.get("b"), rules.get("gone"), rules.contains("a"), rules.contains("c")
        return *found, rules.items(), rules.is_empty()

    expected = ({"least": None}, {"least": 2}, None, True, False, [("a", {"least": None}), ("b", {"least": 2})], False)

    def put_and_read(processor: Any, ctx: hf.Context) -> Any:
        put_two(processor, ctx)
        return read(processor, ctx)

    assert run(judge(form, put_and_read, read)) == [repr(expected)] * 2
    store = make_store()
    run(judge(form, put_two), store)
    later = reopened(store)
    assert run(judge(form, in_orders=read), later, rules=0) == [repr(expected)]

    def clear(processor: Any, ctx: hf.Context) -> Any:
        processor.rules.clear()
        processor.rules.put("c", None)
        return read(processor, ctx)

    emptied = (None, None, None, False, True, [("c", None)], False)
    assert run(judge(form, clear, read), later) == [repr(emptied)] * 2


def test_a_broadcast_state_of_keys_has_the_methods_of_a_map() -> None:
    def change(processor: Any, ctx: hf.Context) -> Any:
        rules = processor.rules
        rules.put_all({"a": {"least": 1}, "b": {"least": 2}})
        rules["c"] = (3,)
        del rules["a"]
        return "a" in rules, rules["c"], rules.get_all(["b", "x"]), rules.keys(), rules.values(), list(rules)

    [said] = run(judge("keyed", change), users=())
    assert said == repr(
        (False, {"least": 3}, [{"least": 2}, None], ["b", "c"], [{"least": 2}, {"least": 3}], ["b", "c"])
    )


def test_a_broadcast_state_of_batches_takes_and_gives_arrays() -> None:
    def change(processor: Any, ctx: hf.Context) -> Any:
        rules = processor.rules
        rules.put("held", {"least": 0})  # not yet with the core
        rules.put(["a", "b", "a"], pa.array([{"least": 1}, None, {"least": 3}], LEAST))
        rules.put(pa.array(["c", "d"]), {"least": 4})
        rules.remove(["d", "never"])
        assert rules.get(pa.array(["a", "b", "x", "held"])).to_pylist() == [{"least": 3}, None, None, {"least": 0}]
        assert rules.contains(pa.array(["b", "x"])).to_pylist() == [True, False]
        entries = rules.entries()
        assert pa.Table.from_struct_array(entries)["key"].to_pylist() == ["a", "b", "c", "held"]
        assert entries.type.field("value").type == LEAST
        assert rules.keys().to_pylist() == ["a", "b", "c", "held"]
        assert rules.values().field("least").to_pylist() == [3, None, 4, 0]
        assert rules.get("a") == {"least": 3}
        count = rules.count()
        rules.put("e", None)
        assert (len(rules.items()), rules.count()) == (count + 1, count + 1)  # items() had the change made
        rules.remove("e")
        return rules.count(), rules.get([]).to_pylist()

    def read(processor: Any, ctx: hf.Context) -> Any:
        with pytest.raises(hf.InvalidRequest, match="state 'rules': map key is null at row 1; a map key is never null"):
            processor.rules.get(["c", None])
        return processor.rules.get(pa.array(["c", "d"])).to_pylist()

    assert run(judge("batch", change, read)) == [repr((4, [])), repr([{"least": 4}, None])]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_of_a_broadcast_state_can_be_changed_and_no_state_notices(form: str) -> None:
    def read(processor: Any, ctx: hf.Context) -> Any:
        processor.rules.get("b")["least"] = 5
        processor.rules.items()[1][1]["least"] = 5
        return processor.rules.get("b")

    assert run(judge(form, put_two, read), users=("ada", "bob"))[1:] == [repr({"least": 2})] * 2


@pytest.mark.parametrize("form", FORMS)
def test_rules_that_are_looked_up_one_by_one_are_read_whole_once_that_is_cheaper(form: str) -> None:
    def many(processor: Any, ctx: hf.Context) -> None:
        for number in range(100):
            processor.rules.put(f"{number:03d}", {"least": number})

    def read(processor: Any, ctx: hf.Context) -> Any:
        found = [processor.rules.get(f"{number:03d}") for number in range(110)]
        return [None if one is None else one["least"] for one in found] == [*range(100), *[None] * 10]

    store = make_store()
    run(judge(form, many), store, users=())
    later = reopened(store)
    before = later.counters["lookups"]
    assert run(judge(form, in_orders=read), later, rules=0) == ["True"]
    assert later.counters["lookups"] - before < 20


@pytest.mark.parametrize("form", FORMS)
def test_an_operator_state_is_a_list_of_the_slot_in_every_method(form: str) -> None:
    def content(processor: Any) -> Any:
        found = processor.buffer.get()
        assert isinstance(found, pa.Array if form == "batch" else list)
        return found.to_pylist() if isinstance(found, pa.Array) else found

    def in_open(processor: Any, ctx: hf.Context) -> None:
        processor.buffer.add(len(content(processor)))

    def in_rules(processor: Any, ctx: hf.Context) -> Any:
        processor.buffer.add_all([10, None])
        return content(processor)

    def in_orders(processor: Any, ctx: hf.Context) -> Any:
        processor.buffer.add(20)
        return content(processor)

    store = make_store()
    users = ("ada", "bob")
    assert run(judge(form, in_rules, in_orders, in_open), store, users=users) == [
        repr([0, 10, None]),
        repr([0, 10, None, 20]),
        repr([0, 10, None, 20, 20]),
    ]

    def replace(processor: Any, ctx: hf.Context) -> Any:
        before = content(processor)
        processor.buffer.update(before[-2:] + [1])
        processor.buffer.add(2)
        assert content(processor) == [20, 20, 1, 2]
        processor.buffer.clear()
        processor.buffer.add(3)
        return before, content(processor)

    later = reopened(store)
    assert run(judge(form, in_orders=replace), later, rules=0) == [repr(([0, 10, None, 20, 20], [3]))]


@pytest.mark.parametrize("form", FORMS)
def test_broadcast_rows_come_once_a_slot_and_batch_as_one_table(form: str) -> None:
    calls = []

    class Counts(hf.BatchProcessor if form == "batch" else hf.KeyedProcessor):  # type: ignore[misc]
        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            calls.append(rows.to_pylist())

        def process_orders(self, *given: Any) -> None:
            calls.append("orders")

    assert run(Counts(), rules=3, users=("ada", "bob")) == []
    assert calls[0] == [{"name": f"r{i}", "least": i} for i in range(3)]
    assert calls[1:] == ["orders"] * (len(calls) - 1)
    calls.clear()
    with bind(Counts(), SAID, inputs=INPUTS, rows_bytes_max=1) as bound:  # past the limit in several calls
        for i in range(2):
            assert not list(bound.process(pa.record_batch([["r"], [i]], schema=RULES), make_context(), 0))
        assert not list(bound.finish(make_context()))
    assert [rows[0]["least"] for rows in calls] == [0, 1]


CHANGES: dict[str, Callable[[Any], None]] = {
    "put": lambda rules: rules.put("a", {"least": 1}),
    "remove": lambda rules: rules.remove("a"),
    "clear": lambda rules: rules.clear(),
    "batch: put": lambda rules: rules.put(["a"], [{"least": 1}]),
    "batch: remove": lambda rules: rules.remove(["a"]),
    "keyed: put_all": lambda rules: rules.put_all({}),
    "keyed: []": lambda rules: rules.__setitem__("a", {"least": 1}),
}


@pytest.mark.parametrize(
    ("form", "change"),
    [(form, change) for change in CHANGES for form in FORMS if ":" not in change or change.startswith(form)],
)
@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("place", ["in_orders", "in_open"])
def test_a_broadcast_state_is_changed_by_a_broadcast_input_alone(
    form: str, change: str, caught: bool, place: str
) -> None:
    def write(processor: Any, ctx: hf.Context) -> None:
        try:
            CHANGES[change](processor.rules)
        except hf.InvalidRequest:
            if not caught:
                raise

    with pytest.raises(hf.InvalidRequest, match="state 'rules'.*changed in the method of a broadcast input only"):
        run(judge(form, **{place: write}))


def use(processor: Any, what: str) -> Any:
    """Of a state of keys, as the form has it."""
    key = [["ada"]] if isinstance(processor, hf.BatchProcessor) else []
    if what == "a timer":
        return processor.due.register(*key, NOON)
    return processor.total.add(*key, [1] if key else 1) if what == "a change" else processor.total.get(*key)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["a change", "a timer", "a read"])
def test_the_method_of_a_broadcast_input_has_no_states_of_keys(form: str, what: str) -> None:
    def in_rules(processor: Any, ctx: hf.Context) -> None:
        use(processor, what)

    with pytest.raises(hf.InvalidRequest, match="in the method of a broadcast input, whose rows reach every slot"):
        run(judge(form, in_rules))

    def in_orders(processor: Any, ctx: hf.Context) -> None:
        use(processor, what)

    assert run(judge(form, in_orders=in_orders)) == ["None"] * 2  # and afterwards as ever


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["a change", "a timer"])
def test_a_change_of_a_keys_state_that_a_broadcast_input_catches_loses_the_batch(form: str, what: str) -> None:
    def in_rules(processor: Any, ctx: hf.Context) -> None:
        with suppress(hf.InvalidRequest):
            use(processor, what)

    with pytest.raises(hf.InvalidRequest, match="an operation failed, and the processor went on"):
        run(judge(form, in_rules))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_state_of_no_key_does_not_keep_is_refused_without_a_key(form: str) -> None:
    wrong = {
        "rules.put('a', 1)": (lambda one: one.rules.put("a", 1), "state 'rules', map values: expected struct"),
        "rules.put(None)": (lambda one: one.rules.put(None, (1,)), "a map key is never null"),
        "buffer.add": (lambda one: one.buffer.add("text"), "state 'buffer'(, elements)?: expected int64"),
        "buffer.add_all": (lambda one: one.buffer.add_all(7), "expected .*several|expected a column of several"),
        "buffer.update": (lambda one: one.buffer.update(["x"]), "state 'buffer'(, elements)?: expected int64"),
    }
    for change, message in wrong.values():

        def in_rules(processor: Any, ctx: hf.Context, change: Any = change) -> None:
            with suppress(hf.InvalidRequest):
                change(processor)

        with pytest.raises(hf.InvalidRequest, match=message) as caught:
            run(judge(form, in_rules))
        assert "key ()" not in str(caught.value)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: hf.BroadcastState(pa.string(), pa.int64(), ttl="1 h"), "BroadcastState: ttl is '1 h'"),  # type: ignore[arg-type]
        (lambda: hf.OperatorState(pa.int64(), redistribution="split", ttl="1 h"), "OperatorState: ttl is '1 h'"),  # type: ignore[arg-type]
        (lambda: hf.OperatorState(pa.int64(), redistribution="all"), "expected one of 'split', 'union'"),  # type: ignore[arg-type]
        (lambda: hf.BroadcastState(pa.list_(pa.int64()), pa.int64()), r"BroadcastState\(key\): list<"),
        (lambda: hf.BroadcastState("string", pa.int64()), r"BroadcastState\(key\): expected an Arrow type"),
        (lambda: hf.OperatorState(int, redistribution="split"), r"OperatorState\(element\): expected an Arrow type"),
    ],
)
def test_declarations_that_say_what_cannot_be(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(hf.InvalidRequest, match=message):
        declare()


def test_broadcast_states_and_inputs_go_together() -> None:
    processor = judge("batch")
    check_broadcast(processor, INPUTS, "operator 'o'")
    unmarked = (Input("orders", ("user",)), Input("rules", ("name",)))
    with pytest.raises(
        hf.InvalidRequest, match="'rules', which only .* there is none; mark this input .*broadcast.rules"
    ):
        check_broadcast(processor, unmarked, "operator 'o'")
    with pytest.raises(
        hf.InvalidRequest, match=r"operator 'o': OfBatches declares the broadcast state .* mark the input"
    ):
        check_broadcast(processor, (Input(),), "operator 'o'")
    both = (Input("a", (), broadcast=True), Input("b", (), broadcast=True))
    with pytest.raises(hf.InvalidRequest, match=r"all inputs are broadcast \(a, b\)"):
        check_broadcast(processor, both, "operator 'o'")


def test_the_methods_of_broadcast_inputs_are_asked_for() -> None:
    class Orders(hf.KeyedProcessor):
        def process_orders(self, key: Any, rows: Any, ctx: Any) -> None:
            pass

    class Mistaken(Orders):
        def process_rules(self, key: Any, rows: Any, ctx: Any) -> None:
            pass

    lacks = r"Orders lacks the method process_rules\(self, rows, ctx\) for the rows of broadcast input 'rules'"
    with pytest.raises(hf.InvalidRequest, match=lacks):
        check_methods(Orders(), INPUTS, "operator 'o'")
    takes = (
        r"Mistaken.process_rules takes \(self, key.*expected process_rules\(self, rows, ctx\) for the rows of broadcast"
    )
    with pytest.raises(hf.InvalidRequest, match=takes):
        check_methods(Mistaken(), INPUTS, "operator 'o'")
    unmarked = (Input("orders", ("user",)), Input("rules", ("name",)))
    check_methods(Mistaken(), unmarked, "operator 'o'")
    with pytest.raises(
        hf.InvalidRequest, match=r"expected process_rules\(self, key, rows, ctx\).*not marked by hf.broad"
    ):
        check_methods(judge("keyed"), unmarked, "operator 'o'")


# --- in a Harness
SCHEMAS = {"orders": "user string, amount long", "rules": hf.broadcast("name string, least long")}


def fed(processor: Any, backend: Backend = "rocksdb") -> Harness:
    return Harness(processor, "user", SCHEMAS, "said string", backend=backend, settings={"fold.deltas.max": 2})


def put_rows(processor: Any, ctx: hf.Context) -> None:
    processor.rules.put(f"batch {ctx.batch_id}", {"least": ctx.batch_id})
    processor.buffer.add(ctx.batch_id)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_harness_feeds_and_reads_what_belongs_to_no_key(form: str, backend: Backend) -> None:
    with fed(judge(form, put_rows), backend) as harness:
        for batch in range(5):
            harness.process(rules=[{"name": "r", "least": 1}], orders=[{"user": "ada", "amount": 1}])
            harness.kill(lose_local_copies=batch == 3)
        harness.process(orders=[{"user": "ada", "amount": 1}])
        assert harness.state("rules") == {f"batch {batch}": {"least": batch} for batch in range(5)}
        assert harness.state("buffer") == [0, 1, 2, 3, 4]
        before = harness.snapshot()
        harness.process(rules=[{"name": "r", "least": 1}])  # rules alone, and no key
        harness.replay()
        assert harness.state("buffer") == [0, 1, 2, 3, 4, 6]
        harness.restore(before)
        assert harness.state("buffer") == [0, 1, 2, 3, 4]
        with pytest.raises(hf.InvalidRequest, match=r"state\('rules'\): \('ada',\) has 1 values; it belongs to no key"):
            harness.state("rules", "ada")


def test_a_harness_gives_maps_whose_keys_are_structs() -> None:
    """Their keys are dicts in Python, which no dict takes: a MapState's could not be read either."""
    place = pa.struct([("x", pa.int64()), ("y", pa.int64())])

    class Places(hf.KeyedProcessor):
        known = hf.BroadcastState(place, pa.string())
        seen = hf.MapState(place, pa.int64())

        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            self.known.put((1, 4), "here")

        def process_orders(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None:
            self.seen.put({"x": 2, "y": 3}, rows.num_rows)

    with fed(Places()) as harness:
        harness.process(rules=[{"name": "r", "least": 1}], orders=[{"user": "ada", "amount": 1}])
        assert harness.state("known") == {(1, 4): "here"}
        assert harness.state("seen", "ada") == {(2, 3): 1}


def test_timers_read_broadcast_states_and_change_none() -> None:
    class Alarm(hf.KeyedProcessor):
        rules = hf.BroadcastState(pa.string(), LEAST)
        fired = hf.OperatorState(pa.string(), redistribution="split")
        due = hf.Timers("processing")
        changes = False

        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            for row in rows.to_pylist():
                self.rules.put(row["name"], {"least": row["least"]})

        def process_orders(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None:
            self.due.register(ctx.timestamp)

        def on_timer(self, key: Any, time: Any, namespace: str, ctx: hf.Context) -> Any:
            self.fired.add(key[0])
            if self.changes:
                self.rules.remove("r")
            return {"said": repr(self.rules.get("r"))}

    class Changing(Alarm):
        changes = True

    with fed(Alarm()) as harness:
        harness.process(rules=[{"name": "r", "least": 1}])
        out = harness.process(rules=[{"name": "r", "least": 2}], orders=[{"user": "ada", "amount": 1}])
        assert out["said"].to_pylist() == [repr({"least": 2})]
        assert harness.state("fired") == ["ada"]
    with (
        fed(Changing()) as harness,
        pytest.raises(hf.InvalidRequest, match="changed in the method of a broadcast input"),
    ):
        harness.process(orders=[{"user": "ada", "amount": 1}])


def test_states_of_no_key_outlive_a_spill_in_the_middle_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    spills, add = [], Spill.add

    def counted(self: Spill, store: Any) -> None:
        spills.append(store)
        add(self, store)

    monkeypatch.setattr(Spill, "add", counted)

    class Fills(hf.KeyedProcessor):
        rules = hf.BroadcastState(pa.string(), LEAST)
        buffer = hf.OperatorState(pa.string(), redistribution="split")

        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            self.rules.put_all((row["name"], {"least": row["least"]}) for row in rows.to_pylist())

        def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.buffer.add_all(["x" * 300] * len(rows))
            if int(key[0]) % 500 == 499:
                found = [self.rules.get(name) for name in ("r7", "r4999", "none", f"r{key[0]}")]
                yield {"said": repr((len(self.buffer.get()), [one and one["least"] for one in found]))}

    for backend in ("rocksdb", "hashmap"):
        settings = {"memory.batch.max": "1 MiB", "fold.deltas.max": 2}
        with Harness(Fills(), "user", SCHEMAS, "said string", backend=backend, settings=settings) as harness:
            rules = [{"name": f"r{number}", "least": number} for number in range(5000)]
            orders = [{"user": str(number // 4), "amount": 1} for number in range(8000)]
            for batch in range(2):
                out = harness.process(rules=rules, orders=orders)
                said = [(8000 * batch + 4 * key + 4, [7, 4999, None, key]) for key in (499, 999, 1499, 1999)]
                assert out["said"].to_pylist() == [repr(one) for one in said]
                assert harness.replay() == out
                harness.kill(lose_local_copies=True)
            assert len(harness.state("buffer")) == 16_000
            assert len(harness.state("rules")) == 5000
        assert len(spills) > 4, "it fitted into memory"


def test_broadcast_rows_come_first_whatever_the_order_of_the_inputs() -> None:
    def least(processor: Any, ctx: hf.Context) -> Any:
        return processor.rules.get("batch 0")

    for schemas in (SCHEMAS, dict(reversed(SCHEMAS.items()))):
        with Harness(judge("keyed", put_rows, least), "user", schemas, "said string") as harness:
            out = harness.process(orders=[{"user": "ada", "amount": 1}], rules=[{"name": "r", "least": 1}])
            assert out["said"].to_pylist() == ["None", repr({"least": 0})]


def test_a_harness_refuses_what_connect_refuses() -> None:
    with pytest.raises(hf.InvalidRequest, match="mark the input in hf.connect"):
        Harness(judge("keyed"), "user", "user string", "said string")
    with pytest.raises(hf.InvalidRequest, match="all inputs are broadcast"):
        Harness(judge("keyed"), "user", hf.broadcast("user string"), "said string")
    with pytest.raises(hf.InvalidRequest, match="key= names 'rules', which is broadcast"):
        Harness(judge("keyed"), {"orders": "user", "rules": "name"}, SCHEMAS, "said string")
    with pytest.raises(hf.InvalidRequest, match="event_time= names 'rules', which is broadcast"):
        Harness(judge("keyed"), "user", SCHEMAS, "said string", event_time={"rules": "name"})


class Plain(hf.KeyedProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process_rules(self, rows: Any, ctx: Any) -> None:
        pass

    def process_orders(self, key: Any, rows: Any, ctx: Any) -> None:
        self.total.add(rows.num_rows)


class WithRules(Plain):
    rules = hf.BroadcastState(pa.string(), pa.int64())

    def process_rules(self, rows: Any, ctx: Any) -> None:
        for row in rows.to_pylist():
            self.rules.put(row["name"], row["least"])


class WithBuffer(WithRules):
    buffer = hf.OperatorState(pa.int64(), redistribution="split")

    def process_orders(self, key: Any, rows: Any, ctx: Any) -> None:
        super().process_orders(key, rows, ctx)
        self.buffer.add(self.rules.get("a"))


class WithOtherBuffer(WithBuffer):
    buffer = hf.OperatorState(pa.int64(), redistribution="union")


def test_states_of_no_key_may_be_added_to_an_operator_that_has_run_and_not_be_taken_away_or_changed() -> None:
    rows: dict[str, Any] = {"rules": [{"name": "a", "least": 1}], "orders": [{"user": "ada", "amount": 1}]}
    with fed(Plain()) as harness:
        harness.process(**rows)
        harness.restart(WithRules())
        assert harness.state("rules") == {}
        harness.process(**rows)
        harness.restart(WithBuffer())
        harness.process(**rows)
        harness.kill(lose_local_copies=True)
        harness.restart()
        found = harness.state("rules"), harness.state("buffer"), harness.state("total")
        assert found == ({"a": 1}, [1], {"ada": 3})
        with pytest.raises(
            hf.Incompatible, match=r"state 'buffer': recorded operator\(element: int64\), split, decl.* none"
        ):
            harness.restart(WithRules())
        with pytest.raises(
            hf.Incompatible, match=r"state 'rules': recorded broadcast\(key: string, value: int64\), decl"
        ):
            harness.restart(Plain())
        with pytest.raises(hf.Incompatible, match="recorded operator.*, split, declared operator.*, union"):
            harness.restart(WithOtherBuffer())
