"""Programs whose values have other types than before: what old values are read as, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Harness

ROWS = "user string, n long"
BACKENDS = ("rocksdb", "hashmap")
DEEP = pa.struct([("a", pa.int16()), pa.field("b", pa.list_(pa.struct([("c", pa.float32())])))])


class Keeps(hf.KeyedProcessor):
    """Puts what ``made`` gives for each row, and reads nothing else."""

    made: Any = None

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        for n in rows["n"].to_pylist():
            if n is not None:
                self.value.update(self.made(n))  # type: ignore[attr-defined]
        return rows


def keeps(kind: pa.DataType, made: Any = None, **more: Any) -> hf.KeyedProcessor:
    made_of: hf.KeyedProcessor = type(
        "Program", (Keeps,), {"value": hf.ValueState(kind), "made": staticmethod(made), **more}
    )()
    return made_of


def harness(processor: Any, **options: Any) -> Harness:
    return Harness(processor, "user", ROWS, ROWS, settings={"fold.deltas.max": 2}, **options)


def rows(*users: str, n: int = 1) -> list[dict[str, Any]]:
    return [{"user": user, "n": n} for user in users]


CHANGES = {
    "added, null": ([("a", pa.int64())], [("a", pa.int64()), ("b", pa.string())], {"a": 1}, {"a": 1, "b": None}),
    "added, with a default": (
        [("a", pa.int64())],
        [hf.with_default(pa.field("b", pa.string(), False), "?"), ("a", pa.int64())],
        {"a": 1},
        {"b": "?", "a": 1},
    ),
    "dropped": (
        [("a", pa.int64()), ("b", DEEP), ("c", pa.string())],
        [("a", pa.int64()), hf.dropped_field("b"), ("c", pa.string())],
        {"a": 1, "b": {"a": 2, "b": [{"c": 0.5}, None]}, "c": "x"},
        {"a": 1, "c": "x"},
    ),
    "reordered": (
        [("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())],
        [("c", pa.bool_()), ("a", pa.int64()), ("b", pa.string())],
        {"a": None, "b": "x", "c": True},
        {"c": True, "a": None, "b": "x"},
    ),
    "renamed": (
        [("a", pa.int64()), ("b", pa.int64())],
        [hf.renamed_from("b", pa.field("x", pa.int64())), ("a", pa.int64())],
        {"a": 1, "b": 2},
        {"x": 2, "a": 1},
    ),
    "widened": (
        [("a", pa.int32()), ("b", pa.float32()), ("c", pa.decimal128(5, 2)), ("d", pa.uint8()), ("e", pa.int8())],
        [("a", pa.int64()), ("b", pa.float64()), ("c", pa.decimal128(30, 2)), ("d", pa.int16()), ("e", pa.int32())],
        {"a": -5, "b": 0.5, "c": Decimal("-1.25"), "d": 255, "e": -128},
        {"a": -5, "b": 0.5, "c": Decimal("-1.25"), "d": 255, "e": -128},
    ),
    "made nullable": (
        [pa.field("a", pa.int64(), False), pa.field("b", pa.string(), False)],
        [pa.field("a", pa.int64(), False), pa.field("b", pa.string())],
        {"a": 1, "b": "x"},
        {"a": 1, "b": "x"},
    ),
    "deep": (
        [("a", DEEP), ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32())])))],
        [
            ("m", pa.map_(pa.string(), pa.struct([("v", pa.int64()), hf.with_default(pa.field("w", pa.int8()), 7)]))),
            (
                "a",
                pa.struct(
                    [
                        hf.renamed_from(
                            "b", pa.field("list", pa.list_(pa.struct([("new", pa.date32()), ("c", pa.float64())])))
                        ),
                        hf.dropped_field("a"),
                    ]
                ),
            ),
        ],
        {"a": {"a": 3, "b": [{"c": 1.5}, None, {"c": None}]}, "m": [("k", {"v": -1}), ("l", None)]},
        {
            "m": [("k", {"v": -1, "w": 7}), ("l", None)],
            "a": {"list": [{"new": None, "c": 1.5}, None, {"new": None, "c": None}]},
        },
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lose_local_copies", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_old_values_are_read_as_the_new_type_has_them(change: str, lose_local_copies: bool, backend: Any) -> None:
    before, after, stored, read = CHANGES[change]
    with harness(keeps(pa.struct(before), lambda n: stored), backend=backend) as h:
        for _ in range(3):
            h.process(rows("ada", "bob"))
        h.kill(lose_local_copies=lose_local_copies)
        h.restart(keeps(pa.struct(after), lambda n: read))
        assert h.state("value", "ada") == read
        h.process(rows("ada", "cyd"))
        assert [h.state("value", user) for user in ("ada", "bob", "cyd")] == [read] * 3
        for _ in range(3):
            h.process(rows("cyd"))
        h.kill(lose_local_copies=lose_local_copies)
        h.restart(keeps(pa.struct(after), lambda n: read))
        assert [h.state("value", user) for user in ("ada", "bob", "cyd")] == [read] * 3


REFUSED = {
    "left out": (
        [("a", pa.int64()), ("b", pa.string())],
        [("a", pa.int64())],
        r"field 'b': recorded string, declared none .*hf.dropped_field\('b'\)",
    ),
    "narrowed": (
        [("a", pa.int64())],
        [("a", pa.int32())],
        r"field 'a': recorded int64, declared int32 .*of another name beside it, which your code fills",
    ),
    "signed to unsigned": ([("a", pa.int32())], [("a", pa.uint64())], "field 'a': recorded int32, declared uint64"),
    "unsigned to signed of its width": ([("a", pa.uint32())], [("a", pa.int32())], "recorded uint32, declared int32"),
    "another type": ([("a", pa.int64())], [("a", pa.string())], "field 'a': recorded int64, declared string"),
    "another scale": ([("a", pa.decimal128(9, 2))], [("a", pa.decimal128(9, 3))], "recorded decimal128"),
    "not null any more": (
        [("a", pa.int64())],
        [pa.field("a", pa.int64(), False)],
        "field 'a': recorded as one that may be null",
    ),
    "added, not null": (
        [("a", pa.int64())],
        [("a", pa.int64()), pa.field("b", pa.int8(), False)],
        r"field 'b': recorded none.*hf.with_default\(pa.field\('b', …\), …\)",
    ),
    "renamed from nothing": (
        [("a", pa.int64())],
        [("a", pa.int64()), hf.renamed_from("z", pa.field("b", pa.int8()))],
        "field 'b': expected a recorded field 'z'",
    ),
    "a key of a map": (
        [("a", pa.map_(pa.int32(), pa.int8()))],
        [("a", pa.map_(pa.int64(), pa.int8()))],
        "field 'a': keys of maps: recorded int32, declared int64",
    ),
    "deep": (
        [("a", DEEP)],
        [("a", pa.struct([("a", pa.int16()), ("b", pa.list_(pa.struct([("c", pa.int8())])))]))],
        r"field 'a.b\[\].c': recorded float, declared int8",
    ),
    "of another size": ([("a", pa.list_(pa.int8(), 2))], [("a", pa.list_(pa.int8(), 3))], "field 'a': recorded"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_would_lose_something_is_refused_and_changes_nothing(change: str) -> None:
    before, after, message = REFUSED[change]
    with harness(keeps(pa.struct(before))) as h:
        with pytest.raises(hf.Incompatible, match=message):
            h.restart(keeps(pa.struct(after)))
        h.restart(keeps(pa.struct(before)))


def goes_on(h: Harness, *fields: Any) -> None:
    h.restart(keeps(pa.struct(list(fields))))


def test_lines_that_say_a_change_may_stay_or_go() -> None:
    a, b = pa.field("a", pa.int64()), pa.field("b", pa.int64())
    with harness(keeps(pa.struct([a, b]), lambda n: {"a": n, "b": -n})) as h:
        h.process(rows("ada", n=5))
        said = (
            hf.renamed_from("a", pa.field("x", pa.int64())),
            hf.dropped_field("b"),
            hf.with_default(b.with_name("c"), 7),
        )
        for fields in (said, said, (pa.field("x", pa.int64()), b.with_name("c")), said):
            goes_on(h, *fields)
            assert h.state("value", "ada") == {"x": 5, "c": 7}


def test_a_dropped_field_is_not_to_be_had_again_nor_its_name() -> None:
    a, b = pa.field("a", pa.int64()), pa.field("b", pa.int64())
    with harness(keeps(pa.struct([a, b]), lambda n: {"a": n, "b": n})) as h:
        h.process(rows("ada"))
        goes_on(h, a, hf.dropped_field("b"))
        for again in (b, hf.renamed_from("a", b)):
            with pytest.raises(hf.Incompatible, match="field 'b'"):
                goes_on(h, a, again) if again is b else goes_on(h, again)
        goes_on(h, a, hf.dropped_field("b"))


def test_a_field_that_takes_the_old_name_of_another_does_not_find_its_values() -> None:
    a = pa.field("a", pa.int64())
    with harness(keeps(pa.struct([a]), lambda n: {"a": n})) as h:
        h.process(rows("ada", n=5))
        goes_on(h, hf.renamed_from("a", a.with_name("b")))
        goes_on(h, a.with_name("b"), a)
        assert h.state("value", "ada") == {"b": 5, "a": None}


def test_a_default_stays_as_it_was_recorded_and_is_widened_with_its_field() -> None:
    a, b = pa.field("a", pa.int64()), pa.field("b", pa.int16(), nullable=False)
    with harness(keeps(pa.struct([a]), lambda n: {"a": n})) as h:
        h.process(rows("ada"))
        goes_on(h, a, hf.with_default(b, -3))
        with pytest.raises(hf.Incompatible, match="field 'b': its default is recorded, and another is declared"):
            goes_on(h, a, hf.with_default(b, 4))
        wide = b.with_type(pa.int64())
        goes_on(h, a, hf.with_default(wide, -3))
        goes_on(h, a, wide)
        assert h.state("value", "ada") == {"a": 1, "b": -3}


def test_values_that_are_no_structs_are_widened_and_folds_go_on() -> None:
    def process(self: Any, key: Any, rows: Any, ctx: Any) -> None:
        for n in rows["n"].to_pylist():
            for state in (self.sum, self.mean, self.most):
                state.add(n)
            self.seen.put(n, n)

    def program(kind: pa.DataType, taken: pa.DataType) -> hf.KeyedProcessor:
        states = {
            "sum": hf.ReducingState(kind, "sum"),
            "most": hf.ReducingState(kind, "max"),
            "mean": hf.AggregatingState(taken, "avg"),
            "seen": hf.MapState(pa.int64(), kind),
        }
        made: hf.KeyedProcessor = type("Program", (hf.KeyedProcessor,), {**states, "process": process})()
        return made

    with harness(program(pa.int8(), pa.int64())) as h:
        h.process(rows("ada", n=100))
        h.restart(program(pa.int64(), pa.float32()))
        h.process(rows("ada", n=300))
        found = [h.state(name, "ada") for name in ("sum", "most", "mean", "seen")]
        assert found == [400, 300, 200.0, {100: 100, 300: 300}]


def test_another_layout_of_the_same_type_is_no_change(tmp_path: Path) -> None:
    with Harness(
        keeps(pa.struct([("a", pa.string())]), lambda n: {"a": "x"}), "user", ROWS, ROWS, folder=tmp_path
    ) as h:
        h.process(rows("ada"))
        goes_on(h, pa.field("a", pa.large_string()))
        assert h.state("value", "ada") == {"a": "x"}
        assert not list(tmp_path.rglob("states/*.json"))


@pytest.mark.long
def test_a_state_has_63_types_at_most() -> None:
    with harness(keeps(pa.struct([("f1", pa.int8())]), lambda n: {"f1": n})) as h:
        h.process(rows("ada"))
        fields = [pa.field("f1", pa.int8())]
        for number in range(2, 64):
            fields.append(pa.field(f"f{number}", pa.int8()))
            goes_on(h, *fields)
        assert h.state("value", "ada") == {"f1": 1, **{f"f{number}": None for number in range(2, 64)}}
        with pytest.raises(hf.Incompatible, match="has had 63 schemas"):
            goes_on(h, *fields, pa.field("f64", pa.int8()))
        goes_on(h, *fields)


def test_what_counts_distinct_values_keeps_their_type() -> None:
    def program(kind: pa.DataType) -> hf.KeyedProcessor:
        state = hf.AggregatingState(kind, "approx_count_distinct")
        made: hf.KeyedProcessor = type("Program", (Keeps,), {"value": state})()
        return made

    with harness(program(pa.int32())) as h, pytest.raises(hf.Incompatible, match="state 'value': recorded"):
        h.restart(program(pa.int64()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hf.dropped_field(3), "name is 3"),  # type: ignore[arg-type]
        (lambda: hf.renamed_from(3, pa.field("a", pa.int8())), "name is 3"),  # type: ignore[call-overload]
        (lambda: hf.with_default("a", 3), "expected a pyarrow.field"),
        (lambda: hf.with_default(pa.field("a", pa.int8()), 300), "300 is no int8 for field 'a'"),
        (lambda: hf.with_default(pa.field("a", pa.int8()), 2.5), "2.5 is no int8 for field 'a'"),
        (lambda: hf.with_default(pa.field("a", pa.string()), b"x"), "b'x' is no string for field 'a'"),
        (lambda: hf.with_default(pa.field("a", pa.int8()), None), "the value is None"),
        (lambda: hf.with_default(pa.field("a", pa.list_(pa.int8())), []), "which has no default"),
        (
            lambda: hf.MapState(pa.struct([hf.dropped_field("a"), ("b", pa.int8())]), pa.int8()),
            "keys and map keys stay",
        ),
        (lambda: hf.ListState(pa.list_(hf.renamed_from("a", pa.field("item", pa.int8())))), "an element of a list"),
        (lambda: hf.ValueState(pa.struct([("a", pa.int8()), hf.dropped_field("a")])), "is dropped, and is there too"),
        (
            lambda: hf.ValueState(pa.struct([("a", pa.int8()), hf.renamed_from("a", pa.field("b", pa.int8()))])),
            "field 'b' is renamed from 'a', which is declared too",
        ),
        (
            lambda: hf.ValueState(pa.struct([hf.renamed_from("a", pa.field(name, pa.int8())) for name in ("b", "c")])),
            "field 'b' is renamed from 'a', and so is 'c'",
        ),
    ],
)
def test_what_a_program_cannot_mean_is_refused(call: Any, message: str) -> None:
    with pytest.raises(hf.InvalidRequest, match=message):
        call()
