"""Keys, rows, hashes and slots as Python sees them, against pyarrow and against the formats in plain Python."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.example_count import examples
from tests.unit.codec_reference import keys_bytes, row_bytes

from holdfast import _core, errors

PRIMITIVES: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in [
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.decimal128(38, 4), pa.decimal128(5, -2), pa.date32(), pa.date64(),
        pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "UTC"),
        pa.timestamp("ns"), pa.duration("ms"), pa.string(), pa.binary(), pa.binary(3),
    ]
}  # fmt: skip
INDICES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
DAY_MS = 86_400_000


@functools.cache
def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that pyarrow turns into ``kind``, without NaN (which equals nothing)."""
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        return st.integers(low, low + 2**kind.bit_width - 1)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if pa.types.is_decimal(kind):
        limit = 10**kind.precision - 1
        return st.integers(-limit, limit).map(
            lambda n: decimal.Context(prec=60).scaleb(decimal.Decimal(n), -kind.scale)
        )
    if pa.types.is_date64(kind):
        return st.integers(-40_000, 40_000).map(lambda day: day * DAY_MS)
    if pa.types.is_time(kind):
        return st.integers(0, 86_399)
    if pa.types.is_temporal(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_string(kind):
        return st.text(alphabet=st.sampled_from("\0\x01aé\U0001f30a"), max_size=20)
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_binary(kind):
        return st.binary(max_size=20)
    if pa.types.is_null(kind):
        return st.none()
    if pa.types.is_map(kind):
        return st.lists(st.tuples(values_of(kind.key_type), nullable(kind.item_type)), max_size=4)
    if pa.types.is_list(kind):
        return st.lists(nullable(kind.value_type), max_size=9)
    return st.fixed_dictionaries({field.name: nullable(field.type) for field in kind})


@functools.cache
def nullable(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return st.none() | values_of(kind)


def structs_of(fields: st.SearchStrategy[pa.DataType], max_size: int) -> st.SearchStrategy[pa.DataType]:
    return st.lists(fields, min_size=1, max_size=max_size).map(
        lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
    )


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    keys = st.sampled_from([pa.string(), pa.int32()])
    return inner.map(pa.list_) | st.builds(pa.map_, keys, inner) | structs_of(inner, 10)


ROW_TYPES = st.recursive(st.sampled_from([*PRIMITIVES.values(), pa.null()]), lambda inner: nested(inner), max_leaves=8)
KEY_COLUMN_TYPES = st.recursive(
    st.sampled_from(list(PRIMITIVES.values())), lambda inner: structs_of(inner, 3), max_leaves=4
)


@st.composite
def arrays_of(draw: st.DrawFn, types: st.SearchStrategy[pa.DataType]) -> pa.Array:
    """An array of any of the types with nulls anywhere, sliced out of a longer one."""
    kind = draw(types)
    array = pa.array(draw(st.lists(nullable(kind), max_size=20)), kind)
    start = draw(st.integers(0, len(array)))
    return array.slice(start, draw(st.integers(0, len(array) - start)))


@st.composite
def key_arrays(draw: st.DrawFn, null_keys: bool) -> pa.StructArray:
    kinds = draw(st.lists(KEY_COLUMN_TYPES, min_size=1, max_size=4))
    kind = pa.struct([(f"k{i}", k) for i, k in enumerate(kinds)])
    rows = draw(st.lists(st.fixed_dictionaries({f.name: key_values(f.type, null_keys) for f in kind}), max_size=20))
    array = pa.array(rows, kind)
    return array.slice(draw(st.integers(0, len(array))))


def key_values(kind: pa.DataType, null_keys: bool) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        present = st.fixed_dictionaries({field.name: key_values(field.type, null_keys) for field in kind})
    else:
        present = values_of(kind)
    return st.none() | present if null_keys else present


def spread(base: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = base.to_pylist()
    return values


def test_xxh64_known_vectors() -> None:
    assert _core.xxh64(b"") == 0xEF46DB3751D8E999
    assert _core.xxh64(b"abc") == 0x44BC2CF5AD770999
    assert _core.xxh64(b"", seed=2654435761) == 0xAC75FDA2929B17EF
    assert _core.xxh64(bytearray(b"abc")) == _core.xxh64(memoryview(b"abc")) == _core.xxh64(b"abc")
    with pytest.raises(errors.InvalidRequest, match="contiguous"):
        _core.xxh64(memoryview(b"abcdef")[::2])


def test_xxh64_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9001
    path = tmp_path / "delta.arrow"
    path.write_bytes(content)
    assert _core.xxh64_file(str(path)) == (_core.xxh64(content), len(content))
    with pytest.raises(errors.Unavailable, match="missing.arrow"):
        _core.xxh64_file(str(tmp_path / "missing.arrow"))


@pytest.mark.parametrize(("groups", "slots"), [(1, 1), (7, 3), (128, 128), (1000, 7), (32768, 200)])
def test_slots_own_contiguous_key_groups(groups: int, slots: int) -> None:
    first = [_core.first_key_group(slot, groups, slots) for slot in range(slots + 1)]
    assert first[0] == 0
    assert first[-1] == groups
    for slot in range(slots):
        for group in range(first[slot], first[slot + 1]):
            assert _core.slot_of(group, groups, slots) == slot == group * slots // groups


@pytest.mark.parametrize("call", [
    lambda: _core.slot_of(128, 128, 4),
    lambda: _core.slot_of(-1, 128, 4),
    lambda: _core.slot_of(0, 0, 1),
    lambda: _core.slot_of(0, 4, 5),
    lambda: _core.first_key_group(5, 128, 4),
    lambda: _core.slot_of(0, 32769, 1),
])  # fmt: skip
def test_impossible_slots_are_refused(call: Callable[[], int]) -> None:
    with pytest.raises(errors.InvalidRequest, match="found"):
        call()


@pytest.mark.parametrize("null_keys", [False, True])
@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_keys_are_the_bytes_of_the_format(null_keys: bool, data: st.DataObject) -> None:
    keys = data.draw(key_arrays(null_keys))
    codec = _core.KeyCodec(keys.type, null_keys=null_keys)
    encoded = pa.array(codec.encode(keys))
    assert encoded.to_pylist() == keys_bytes(keys, null_keys)
    decoded = pa.array(codec.decode(encoded))
    decoded.validate(full=True)
    assert decoded.type == keys.type
    assert decoded.equals(keys)


@pytest.mark.parametrize("kind", PRIMITIVES.values(), ids=PRIMITIVES)
@given(data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_key_order_is_pyarrows(kind: pa.DataType, data: st.DataObject) -> None:
    keys = pa.array(data.draw(st.lists(nullable(kind), max_size=30)), kind)
    codec = _core.KeyCodec(pa.struct([("k", kind)]), null_keys=True)
    encoded = pa.array(codec.encode(keys)).to_pylist()
    by_bytes = keys.take(pa.array(sorted(range(len(keys)), key=encoded.__getitem__), pa.int64()))
    assert by_bytes.equals(keys.take(pc.array_sort_indices(keys, null_placement="at_start")))


def test_floats_have_one_zero_and_one_nan_and_it_sorts_last() -> None:
    other_nan = np.array([0xFFF0000000000001], dtype=np.uint64).view(np.float64)[0]
    keys = pa.array([0.0, -0.0, float("nan"), other_nan, float("inf"), -float("inf")])
    zero, negative_zero, nan, another, inf, negative_inf = pa.array(
        _core.KeyCodec(pa.float64()).encode(keys)
    ).to_pylist()
    assert zero == negative_zero
    assert nan == another
    assert negative_inf < zero < inf < nan


def variants_of(array: pa.Array) -> list[pa.Array]:
    padded = pa.concat_arrays([array[:1], array, array[:1]]).slice(1, len(array)) if len(array) else array
    found = [array, padded]
    if pa.types.is_string(array.type):
        found += [array.cast(pa.large_string()), array.cast(pa.string_view())]
    if pa.types.is_binary(array.type):
        found += [array.cast(pa.large_binary()), array.cast(pa.binary_view())]
    encoded = array.dictionary_encode()
    found += [pa.DictionaryArray.from_arrays(encoded.indices.cast(index), encoded.dictionary) for index in INDICES]
    return [*found, *(variant.slice(1) for variant in found)]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.binary(), pa.int64(), pa.bool_(), pa.float32(), pa.binary(3)], ids=str
)
def test_storage_variants_are_the_same_values(kind: pa.DataType) -> None:
    samples: dict[pa.DataType, list[Any]] = {
        pa.string(): ["", "short", "much longer than twelve bytes", "a\0b", None, "short"],
        pa.binary(): [b"", b"short", b"much longer than twelve bytes", b"a\0b", None, b"short"],
        pa.int64(): [1, -1, None, 1, 5], pa.bool_(): [True, None, False, True], pa.float32(): [1.0, None, 2.0],
        pa.binary(3): [b"abc", None, b"a\0c"],
    }  # fmt: skip
    array = pa.array(samples[kind], kind)
    keys = _core.KeyCodec(pa.schema([("k", kind)]), null_keys=True)
    rows = _core.RowCodec(kind)
    for variant in variants_of(array):
        plain = array.slice(1) if len(variant) < len(array) else array
        assert pa.array(keys.encode(variant)).equals(pa.array(keys.encode(plain)))
        assert pa.array(rows.encode(variant)).equals(pa.array(rows.encode(plain)))


def test_nested_storage_variants_are_the_same_rows() -> None:
    kind = pa.list_(pa.string())
    array = pa.array([["a", None], [], None, ["b", "c", "d"], ["e"]], kind)
    codec = _core.RowCodec(kind)
    expected = pa.array(codec.encode(array))
    for variant in [
        array.cast(pa.large_list(pa.large_string())),
        pa.array(array.to_pylist(), pa.list_view(pa.string())),
        pa.array(array.to_pylist(), pa.large_list_view(pa.string())),
        pa.array(array.to_pylist(), pa.list_(pa.string_view())),
        pa.array(array.to_pylist(), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ]:
        assert pa.array(codec.encode(variant)).equals(expected)
        assert pa.array(codec.encode(variant.slice(1, 3))).equals(expected.slice(1, 3))
    pairs = pa.array([["a", "b"], ["c", None], None], pa.list_(pa.string(), 2))
    assert pa.array(codec.decode(codec.encode(pairs.slice(1)))).to_pylist() == [["c", None], None]
    lists = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1], pa.int8()), pa.array([["x"], ["y", None]], kind))
    assert pa.array(codec.decode(codec.encode(lists))).to_pylist() == [["y", None], ["x"], None, ["y", None]]


def test_record_batches_are_keys_and_rows() -> None:
    batch = pa.record_batch({"user": ["a", "b", "c"], "day": pa.array([1, 2, 3], pa.int32())})
    codec = _core.KeyCodec(batch.schema)
    encoded = pa.array(codec.encode(batch))
    assert pa.array(codec.encode(batch.slice(1))).equals(encoded.slice(1))
    assert pa.record_batch(codec.decode(encoded)).equals(batch)
    rows = _core.RowCodec(batch.schema)
    assert pa.record_batch(rows.decode(rows.encode(batch.slice(1)))).equals(batch.slice(1))
    assert len(codec.encode(batch.slice(3))) == 0
    assert pa.record_batch(codec.decode(codec.encode(batch.slice(3)))).equals(batch.slice(3))


@pytest.mark.parametrize("null_keys", [False, True])
def test_the_bytes_of_a_key_do_not_say_which_of_its_fields_may_be_null(null_keys: bool) -> None:
    """Spark finds that out from the rest of the plan, which may change at a restart."""
    kind, known = (
        pa.struct([pa.field("user", pa.string(), loose), pa.field("at", pa.struct([("region", pa.string())]), loose)])
        for loose in (True, False)
    )
    rows = [{"user": "a", "at": {"region": "?"}}, {"user": "b\0", "at": {"region": ""}}]
    loose, strict = pa.array(rows, kind), pa.array(rows, known)
    assert not kind.equals(known)
    codecs = [_core.KeyCodec(pa.schema([("k", found)]), null_keys=null_keys) for found in (kind, known)]
    encoded = {tuple(pa.array(codec.encode(keys)).to_pylist()) for codec in codecs for keys in (loose, strict)}
    assert len(encoded) == 1
    groups = {tuple(pa.array(codec.key_groups(keys, 4096)).to_pylist()) for codec in codecs for keys in (loose, strict)}
    assert len(groups) == 1


def test_a_null_key_is_refused_by_name_and_row() -> None:
    batch = pa.record_batch({"user": ["a", None], "day": [1, 2]})
    with pytest.raises(errors.InvalidRequest, match=r"'user' is null at row 1.*null_keys=True"):
        _core.KeyCodec(batch.schema).encode(batch)
    with pytest.raises(errors.InvalidRequest, match=r"'user' is null at row 0"):
        _core.KeyCodec(pa.schema([("user", pa.string())])).encode(pa.array([None, "a"]))


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.null()], ids=str)
def test_types_without_an_order_are_no_keys(kind: pa.DataType) -> None:
    with pytest.raises(errors.InvalidRequest, match="'tags'"):
        _core.KeyCodec(pa.schema([("user", pa.string()), ("tags", kind)]))


@pytest.mark.parametrize(
    "kind", [pa.float16(), pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.dense_union([])], ids=str
)
def test_unsupported_types_are_named(kind: pa.DataType) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"'a\.b'"):
        _core.RowCodec(pa.struct([("a", pa.struct([("b", kind)]))]))


def test_other_types_are_incompatible() -> None:
    with pytest.raises(errors.Incompatible, match="expected keys of struct<user: string>, found int64"):
        _core.KeyCodec(pa.schema([("user", pa.string())])).encode(pa.array([1]))
    with pytest.raises(errors.Incompatible, match="expected an array of int64, found int32"):
        _core.RowCodec(pa.int64()).encode(pa.array([1], pa.int32()))
    with pytest.raises(errors.InvalidRequest, match="__arrow_c_array__"):
        _core.RowCodec(pa.int64()).encode([1])  # type: ignore[arg-type]


def test_a_timestamps_zone_may_change_but_not_appear() -> None:
    instants = pa.array([1, None], pa.timestamp("us", "UTC"))
    codec = _core.RowCodec(instants.type)
    expected = pa.array(codec.encode(instants))
    assert pa.array(codec.encode(instants.cast(pa.timestamp("us", "Europe/Berlin")))).equals(expected)
    with pytest.raises(errors.Incompatible, match="tz=UTC"):
        codec.encode(pa.array([1], pa.timestamp("us")))


@given(keys=key_arrays(null_keys=True), groups=st.sampled_from([1, 7, 128, 1000, 32768]), data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_partition_is_the_naive_one(keys: pa.StructArray, groups: int, data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, min(groups, 50)))
    codec = _core.KeyCodec(keys.type, null_keys=True)
    found = pa.array(codec.key_groups(keys, groups))
    assert found.type == pa.uint16()
    assert found.to_pylist() == [_core.xxh64(key) % groups for key in pa.array(codec.encode(keys)).to_pylist()]
    by_slot = [
        [row for row, group in enumerate(found.to_pylist()) if group * slots // groups == slot] for slot in range(slots)
    ]
    order, offsets = (pa.array(part) for part in codec.partition(keys, groups, slots))
    assert order.type == pa.int32()
    assert order.to_pylist() == [row for rows in by_slot for row in rows]
    assert offsets.to_pylist() == [0, *np.cumsum([len(rows) for rows in by_slot]).tolist()]


def test_partition_spreads_many_rows_over_all_slots() -> None:
    keys = pa.array([f"user-{i}" for i in range(100_000)])
    order, offsets = (pa.array(part).to_numpy() for part in _core.KeyCodec(pa.string()).partition(keys, 1024, 8))
    assert np.array_equal(np.sort(order), np.arange(100_000))
    assert offsets[-1] == 100_000
    assert (np.diff(offsets) > 11_000).all()
    assert all((np.diff(order[offsets[s] : offsets[s + 1]]) > 0).all() for s in range(8))


@given(values=arrays_of(ROW_TYPES))
@settings(max_examples=examples(200), deadline=None)
def test_rows_are_the_bytes_of_the_format(values: pa.Array) -> None:
    codec = _core.RowCodec(values.type)
    rows = pa.array(codec.encode(values))
    assert rows.to_pylist() == [row_bytes(value) for value in values]
    decoded = pa.array(codec.decode(rows))
    decoded.validate(full=True)
    assert decoded.type == values.type
    assert decoded.equals(values)


@given(values=arrays_of(ROW_TYPES), data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_damaged_rows_are_corrupt_or_values(values: pa.Array, data: st.DataObject) -> None:
    codec = _core.RowCodec(values.type)
    rows = [row for row in spread(pa.array(codec.encode(values))) if row]
    if not rows:
        return
    damaged = bytearray(data.draw(st.sampled_from(rows)))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        pa.array(codec.decode(pa.array([bytes(damaged)], pa.binary()))).validate()
    except errors.Corrupt as error:
        assert "row 0" in str(error)
    with pytest.raises(errors.Corrupt, match="after its end|expected .* bytes of"):
        codec.decode(pa.array([rows[0] + b"\x00"], pa.binary()))


def test_a_required_field_is_never_null() -> None:
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    loose = pa.array([{"a": 1}, {"a": None}], pa.struct([("a", pa.int64())]))
    with pytest.raises(errors.InvalidRequest, match=r"'a' is declared not null but is null in row 1"):
        _core.RowCodec(strict).encode(loose)
    codec = _core.RowCodec(strict)
    assert pa.array(codec.decode(codec.encode(loose[:1]))).type == strict


def test_an_array_of_the_core_is_imported_once() -> None:
    encoded = _core.RowCodec(pa.int64()).encode(pa.array([1, 2]))
    assert len(encoded) == 2
    pa.array(encoded)
    with pytest.raises(errors.InvalidRequest, match="imported already"):
        pa.array(encoded)
