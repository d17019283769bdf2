"""Bytes of the checkpoint formats, version 1. Never written again: what a release wrote must be read for ever."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver

from holdfast import _core
from holdfast.checkpoint import (
    Handle,
    OperatorRecord,
    Runs,
    SavepointOrigin,
    SnapshotRef,
    StateRecord,
    StoredHandle,
    VersionsOrigin,
)
from holdfast.checkpoint.added_states import added_states
from holdfast.checkpoint.base_folder import BaseFile, BaseRecord
from holdfast.checkpoint.delta_file import (
    DELTA_SCHEMA,
    DeltaIdentity,
    checked_identity_of,
    decode_delta,
    encode_delta,
    identity_of,
    open_delta,
    ref_of,
)
from holdfast.checkpoint.evolution import NO_CHANGES, OperatorStates, evolved
from holdfast.checkpoint.expiry import BatchTime, Lifetime, StateExpiry
from holdfast.checkpoint.generation import Opening, begin_together
from holdfast.checkpoint.handle import DeltaRef, Superseded
from holdfast.checkpoint.names import run_digits
from holdfast.checkpoint.snapshot import Manifest
from holdfast.checkpoint.state_log import newest_states
from holdfast.checkpoint.ttl_log import DeclaredTtls, declared_ttls, note_ttls
from holdfast.checkpoint.value_schemas import core_schemas, plain_schema
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.storage import LocalFileStore

FOLDER = Path(__file__).parent
VERSIONS = [f"{n:032x}" for n in range(12)]

HANDLE = Handle(
    operator="totals per/user ü",
    slot=7,
    version_id=VERSIONS[11],
    parent_id=VERSIONS[10],
    sequence=11,
    batch_id=10,
    snapshots=(
        SnapshotRef(
            9, VERSIONS[9], f"snapshot/000000000009-{VERSIONS[9]}-{1:032x}.json", 812, "00c0ffee00c0ffee", 70_000
        ),
        SnapshotRef(
            4, VERSIONS[4], f"snapshot/000000000004-{VERSIONS[4]}-{2:032x}.json", 640, "fedcba9876543210", 50_000
        ),
    ),
    deltas=tuple(DeltaRef(n, VERSIONS[n], 1_000 + n, f"{n * 7919:016x}") for n in range(5, 12)),
    superseded=(Superseded(0, 10, None),),
)

# The first version of a generation with an origin, and two batches.
BEGUN = replace(
    HANDLE,
    snapshots=HANDLE.snapshots[:1],
    deltas=HANDLE.deltas[-2:],
    superseded=(),
    origin=9,
)
ORIGIN = VersionsOrigin(
    store="/mnt/state ü",
    query_id="5c2e3f6a-0000-4000-8000-00000000000a",
    operator=HANDLE.operator,
    batch_id=10,
    handles=(None, replace(HANDLE, slot=1, lists_deltas=True).stored()),
    operators=("more", HANDLE.operator),
)
SAVED = SavepointOrigin(
    store="/backup/monday ü",
    manifest="00c0ffee00c0ffee",
    query_id=ORIGIN.query_id,
    batch_id=10,
    operator=HANDLE.operator,
    operators=("more", HANDLE.operator),
    states=(("seen", 1), ("sum", 0)),
)

OPERATOR = OperatorRecord(
    name="totals per/user ü",
    max_parallelism=4096,
    slots=4,
    labels=(3, 1, 4, 15),
    key_schema=pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    null_keys=False,
    states=(
        StateRecord(0, "total", "reducing", pa.schema([("value", pa.int64())]), "sum"),
        StateRecord(1, "seen", "map", pa.schema([("key", pa.string()), ("value", pa.list_(pa.float64()))])),
    ),
)

FILES = (
    BaseFile("000008.sst", 2_250, "0123456789abcdef", f"sst/{1:032x}-000008.sst"),
    BaseFile("CURRENT", 16, "1123456789abcdef", f"sst/{1:032x}-CURRENT"),
)
MANIFEST = Manifest("totals per/user ü", 7, 9, VERSIONS[9], HANDLE.snapshots[1].name, FILES)
BASE = BaseRecord("totals per/user ü", 7, 9, VERSIONS[9], "boot", (*FILES, BaseFile("MANIFEST-5", 3, "f" * 16, None)))

EXPIRY = (
    StateExpiry(0, "processing", 604_800_000, 1_700_000_000_000, 1_699_400_000_000, 1_700_000_100_000),
    StateExpiry(1, "event", None, 1_600_000_000_000, -5, 1_600_000_000_000),
)
TTL = replace(HANDLE, expiry=EXPIRY)
# TTLs that were away and came back, the second before there was a watermark.
FLOOR = (
    replace(EXPIRY[0], floor_ms=1_700_000_000_500),
    replace(EXPIRY[1], ttl_ms=86_400_000, floor_ms=(1 << 63) - 1),
)
FIRST = replace(BEGUN, deltas=(), version_id=VERSIONS[9], parent_id=None, sequence=9, batch_id=-1, expiry=EXPIRY)
IDENTITY = DeltaIdentity("totals per/user ü", 7, VERSIONS[11], VERSIONS[10], 11, 10, lineage=None)
SCHEMA = IDENTITY.schema()
METADATA = {key: value for key, value in SCHEMA.metadata.items() if key != b"holdfast.lineage"}


def piece(groups: list[int], states: list[int], keys: list[bytes], values: list[bytes | None]) -> pa.RecordBatch:
    types = (pa.uint16(), pa.uint16(), pa.binary(), pa.binary())
    return pa.record_batch([pa.array(v, t) for v, t in zip((groups, states, keys, values), types)], schema=SCHEMA)


DELTA = [
    piece([2048, 2049], [0, 1], [b"a\x00\x01", b"b"], [b"\x01\x02", None]),
    piece([2048], [0], [b"a\x00\x01"], [b""]),
]
STAMPED = piece([2048], [0], [b"a\x00\x01"], [b"\x81\x00\x00\x01\x8b\xcf\xe5\x68\x00\x02"])
DELTAS = {
    "lz4": (2666, "5ee624d00445e429"),
    "zstd": (2610, "29acdcc42e73af60"),
    "none": (2354, "3635a0e26b1e967a"),
}
DELTA_V2 = (2274, "380170acbca20316")


def values(process: Process, handle: Handle) -> dict[int, int]:
    found = pa.array(process.open(handle).values.get(pa.array(range(700), pa.int64()))).to_pylist()
    return {key: value for key, value in enumerate(found) if value is not None}


def golden(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def test_handle():
    """Version 1. A copy of it is the same text; a batch of today leads to version 4."""
    listed = replace(HANDLE, lists_deltas=True)
    assert StoredHandle.from_text(golden("handle_v1.json").decode()).whole() == listed
    assert listed.to_text().encode() == golden("handle_v1.json")
    assert HANDLE.to_text().encode() == golden("handle_v4.json")
    assert StoredHandle.from_text(golden("handle_v4.json").decode()).whole(HANDLE.deltas[:-1]) == HANDLE


def test_handle_with_all_that_it_may_have():
    """Version 4: expiry, and the first version of a generation with an origin, which has no delta."""
    assert StoredHandle.from_text(golden("handle_expiry_v4.json").decode()).whole(TTL.deltas[:-1]) == TTL
    assert TTL.to_text().encode() == golden("handle_expiry_v4.json")
    assert StoredHandle.from_text(golden("handle_origin_v4.json").decode()).whole() == FIRST
    assert FIRST.to_text().encode() == golden("handle_origin_v4.json")


def test_handle_with_the_floor_of_a_ttl_that_came_back():
    """Version 5, which earlier versions refuse: by the stamps alone they would take what is alive."""
    floored = replace(HANDLE, expiry=FLOOR)
    assert StoredHandle.from_text(golden("handle_floor_v5.json").decode()).whole(HANDLE.deltas[:-1]) == floored
    assert floored.to_text().encode() == golden("handle_floor_v5.json")
    listed = replace(floored, lists_deltas=True)
    assert StoredHandle.from_text(listed.to_text()).whole() == listed and '"version":5,' in listed.to_text()


@pytest.mark.parametrize("floor", [(None,), ("7",), (True,), (1 << 63,), (-5,), (7, 7)])
def test_a_floor_that_is_none_is_refused(floor):
    row = EXPIRY[1].to_row()
    with pytest.raises((ValueError, TypeError)):
        StateExpiry.from_row([*row, *floor])
    with pytest.raises((ValueError, TypeError)):
        StateExpiry.from_row([*row[:2], 86_400_000, *row[3:], *floor])


def test_handle_with_expiry():
    """Version 2: of states with a TTL."""
    listed = replace(HANDLE, expiry=EXPIRY, lists_deltas=True)
    assert StoredHandle.from_text(golden("handle_v2.json").decode()).whole() == listed
    assert listed.to_text().encode() == golden("handle_v2.json")


def test_handle_of_a_generation_with_an_origin():
    """Version 3."""
    listed = replace(BEGUN, lists_deltas=True)
    assert StoredHandle.from_text(golden("handle_v3.json").decode()).whole() == listed
    assert listed.to_text().encode() == golden("handle_v3.json")


def test_operator_that_began_with_a_savepoint():
    """Version 3, which earlier versions refuse."""
    assert OperatorRecord.from_json(golden("operator_v3.json")) == replace(OPERATOR, origin=SAVED)
    assert replace(OPERATOR, origin=SAVED).to_json().encode() == golden("operator_v3.json")


def test_operator_that_began_without_some_states():
    """As version 3 said it, by ids alone. Entries of theirs are left behind, and their ids are not given again."""
    record = OperatorRecord.from_json(golden("operator_dropped_v3.json"))
    assert replace(record, dropped=()) == replace(OPERATOR, origin=ORIGIN)
    assert [state.id for state in record.dropped] == [2, 5]
    again = OperatorRecord.from_json(record.to_json())
    assert again == record and '"version":4' in record.to_json()
    new = StateRecord(1, "new", "value", pa.schema([("value", pa.int64())]))
    assert evolved(record.all_states, (*record.states, new), NO_CHANGES).states[-1].id == 6


def test_operator_with_an_origin():
    assert OperatorRecord.from_json(golden("operator_v2.json")) == replace(OPERATOR, origin=ORIGIN)
    assert replace(OPERATOR, origin=ORIGIN).to_json().encode() == golden("operator_v2.json")


def test_operator_with_an_origin_that_is_a_native_savepoint():
    origin = replace(ORIGIN, savepoint="00c0ffee00c0ffee")
    assert OperatorRecord.from_json(golden("operator_native_savepoint_v2.json")) == replace(OPERATOR, origin=origin)
    assert replace(OPERATOR, origin=origin).to_json().encode() == golden("operator_native_savepoint_v2.json")


def test_what_a_new_generation_agrees_on(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("q/op/opened.json", golden("opened_v1.json"))
    store.put("q/takeover-earlier.json", golden("takeover_v1.json"))
    opening = Opening(store, "q/op", ORIGIN)
    assert [opening.calls_all(batch_id) for batch_id in (0, 1, 2)] == [True, False, False]
    of_earlier = replace(ORIGIN, query_id="earlier")
    begin_together(store, "q", replace(OPERATOR, origin=of_earlier))
    with pytest.raises(Incompatible, match="another operator of this query at its batch 10"):
        begin_together(store, "q", replace(OPERATOR, origin=replace(of_earlier, batch_id=11)))


def test_delta_with_expiry():
    identity = replace(IDENTITY, expiry=EXPIRY)
    ref = DeltaRef(11, VERSIONS[11], *DELTA_V2)
    data = golden("delta_none_v2.arrow")
    assert identity_of(data, "golden") == identity
    read = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    assert [batch.to_pydict() for batch in read] == [STAMPED.to_pydict()]
    assert identity_of(golden("delta_none_v1.arrow"), "golden") == IDENTITY


# Of two runs: attempts 3 to 7 of one, then of another whose attempts need eight bytes.
LINEAGE = (
    *(DeltaRef(n, f"{0xC0FFEE:016x}{n:016x}", 1_000 + n, f"{n * 7919:016x}") for n in range(3, 8)),
    DeltaRef(8, f"{0xFEDCBA9876543210:016x}{1 << 40:016x}", (1 << 32) + 5, "fedcba9876543210"),
    *(DeltaRef(n, VERSIONS[n], 1_000 + n, f"{n * 7919:016x}") for n in range(9, 11)),
)
DELTA_V3 = (3010, "01396faf9f90a38c")


def test_delta_with_lineage():
    """Version 3, which says what was before it."""
    identity = replace(IDENTITY, expiry=EXPIRY, lineage=LINEAGE)
    ref, data = DeltaRef(11, VERSIONS[11], *DELTA_V3), golden("delta_none_v3.arrow")
    assert identity_of(data, "golden") == identity
    assert open_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden").lineage() == LINEAGE
    read = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    assert [batch.to_pydict() for batch in read] == [STAMPED.to_pydict()]
    assert identity.schema().metadata == pa.ipc.open_file(data).schema.metadata


DELTA_V4 = (3090, "0d3cfb29dfb8389c")


def test_delta_with_the_floor_of_a_ttl_that_came_back():
    """Version 4."""
    identity = replace(IDENTITY, expiry=FLOOR, lineage=LINEAGE)
    ref, data = DeltaRef(11, VERSIONS[11], *DELTA_V4), golden("delta_none_v4.arrow")
    assert identity_of(data, "golden") == identity
    read = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    assert [batch.to_pydict() for batch in read] == [STAMPED.to_pydict()]
    assert identity.schema().metadata == pa.ipc.open_file(data).schema.metadata


DELTA_WITH_CHECKSUM = (3154, "1191e90d52cfbca1")


def test_delta_with_a_checksum_of_its_own():
    """Version 3, which says what it is before a handle does."""
    identity = replace(IDENTITY, expiry=EXPIRY, lineage=LINEAGE)
    ref, data = DeltaRef(11, VERSIONS[11], *DELTA_WITH_CHECKSUM), golden("delta_checksum_v3.arrow")
    assert checked_identity_of(data, "golden") == identity
    read = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    assert [batch.to_pydict() for batch in read] == [STAMPED.to_pydict()]
    changed = data.replace(b"9594e48269032f6a", b"0" * 16)
    assert len(changed) == len(data)
    assert _core.xxh64(changed) == 0x9594E48269032F6A
    for earlier in ("delta_none_v1.arrow", "delta_none_v2.arrow", "delta_none_v3.arrow", "delta_none_v4.arrow"):
        assert checked_identity_of(golden(earlier), "golden") == identity_of(golden(earlier), "golden")


def test_operator_record():
    """The Arrow schemas in it are compared as read: another pyarrow may lay out the same message differently."""
    assert OperatorRecord.from_json(golden("operator_v1.json")) == OPERATOR
    assert OperatorRecord.from_json(golden("operator_v1.json")).differences(OPERATOR) == []
    of_several_inputs = replace(OPERATOR, inputs=(("orders", ("user", "at")), ("returns", ("account", "ts"))))
    assert OperatorRecord.from_json(golden("operator_inputs_v1.json")) == of_several_inputs


def test_added_timers(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("q/op/timers/32769.json", golden("timers_v1.json"))
    silent = StateRecord(0x8001, "silent ü", "timers", pa.schema([("namespace", pa.string())]), "event")
    assert added_states(store, "q/op", OPERATOR.states) == (silent,)


def test_added_operator_states(tmp_path):
    store = LocalFileStore(str(tmp_path))
    for number, name in ((16384, "broadcast_state_v1.json"), (16385, "operator_state_v1.json")):
        store.put(f"q/op/operator_states/{number}.json", golden(name))
    types = pa.schema([("key", pa.string()), ("value", pa.list_(pa.float64()))])
    rules = StateRecord(0x4000, "rules ü", "broadcast", types)
    held = StateRecord(0x4001, "held", "operator", pa.schema([("element", pa.int64())]), "union")
    assert added_states(store, "q/op", OPERATOR.states) == (rules, held)


CHANGED = OperatorStates(
    (
        replace(OPERATOR.states[0], name="sum ü"),
        StateRecord(2, "held", "list", pa.schema([("element", pa.struct([("a", pa.int8()), ("ü", pa.string())]))])),
        StateRecord(0x8000, "due", "timers", pa.schema([("namespace", pa.string())]), "event"),
    ),
    (OPERATOR.states[1],),
)


def test_log_of_states(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("q/op/states/00001.json", golden("states_v1.json"))
    assert newest_states(store, "q/op", OPERATOR.all_states) == (1, CHANGED)


WITH_TTL = OperatorStates(
    (replace(CHANGED.states[0], ttl_time="event"), *CHANGED.states[1:]),
    tuple(replace(state, ttl_time="processing") for state in CHANGED.dropped),
)


def test_log_of_states_that_have_or_had_a_time_to_live(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("q/op/states/00001.json", golden("states_ttl_v1.json"))
    assert newest_states(store, "q/op", OPERATOR.all_states) == (1, WITH_TTL)


TTLS = DeclaredTtls(
    17,
    (Lifetime(1, "processing", 3_600_000, 1), Lifetime(2, "event", 28_800_000, 3_600_000), Lifetime(9, "event", 1, 1)),
)


def test_log_of_ttls(tmp_path):
    store, written = LocalFileStore(str(tmp_path / "read")), LocalFileStore(str(tmp_path / "written"))
    store.put("q/op/ttls/00001.json", golden("ttls_v1.json"))
    assert (declared_ttls(store, "q/op", 17), declared_ttls(store, "q/op", 16)) == (TTLS, None)
    note_ttls(written, "q/op", TTLS)
    assert written.get("q/op/ttls/00001.json") == golden("ttls_v1.json")


@pytest.mark.parametrize(("name", "first_batch"), [("run_v1.json", None), ("run_first_batch_v1.json", 17)])
def test_document_of_a_run(tmp_path, name, first_batch):
    store, written = LocalFileStore(str(tmp_path / "read")), LocalFileStore(str(tmp_path / "written"))
    store.put("q/op/runs/000000000001-run.json", golden(name))
    later = Runs(store, "q/op", "op", "later", "other")
    Runs(store, "q/op", "op", "run", "instance").register()
    later.register(18)
    assert later.ran_again(run_digits("run"), 18)
    with pytest.raises(InvalidRequest, match="two operators of one query"):
        Runs(store, "q/op", "op", "run", "another").register()
    Runs(written, "q/op", "op", "run", "instance").register(first_batch)
    assert written.get("q/op/runs/000000000001-run.json") == golden(name)


def test_operator_record_that_begins_as_of_a_batch_in_which_states_had_ttls():
    origin = replace(ORIGIN, time=BatchTime(1_800_000_000_000, 1_799_999_000_000), lifetimes=TTLS.lifetimes)
    record = replace(OPERATOR, origin=origin)
    assert OperatorRecord.from_json(golden("operator_ttls_v2.json")) == record
    assert record.to_json().encode() == golden("operator_ttls_v2.json")


def test_operator_record_with_dropped_states():
    record = OperatorRecord.from_json(golden("operator_v4.json"))
    assert record == replace(OPERATOR, states=CHANGED.states, dropped=CHANGED.dropped, origin=ORIGIN)


def numbered(number: int, name: str, kind: pa.DataType, **more: Any) -> pa.Field:
    default = {"holdfast.default": more.pop("default")} if "default" in more else {}
    return pa.field(name, kind, metadata={"holdfast.field": str(number), **default}, **more)


_WIDER = StateRecord(
    2,
    "held",
    "list",
    pa.schema(
        [
            (
                "element",
                pa.struct(
                    [
                        numbered(3, "é", pa.string(), nullable=False, default="023f3f"),
                        numbered(1, "a", pa.int64()),
                        numbered(4, "in", pa.list_(pa.struct([numbered(5, "x", pa.float64())]))),
                    ]
                ),
            )
        ]
    ),
    earlier=(
        pa.schema([("element", pa.struct([numbered(1, "a", pa.int8()), numbered(2, "ü", pa.string())]))]),
        pa.schema([("element", pa.struct([numbered(1, "a", pa.int16())]))]),
    ),
)
WITH_EARLIER = OperatorStates((CHANGED.states[0], _WIDER), CHANGED.dropped)


def with_metadata(states: OperatorStates) -> list[str]:
    """Also what equality leaves out."""
    return [
        schema.to_string(show_field_metadata=True)
        for state in states.states
        for schema in (*state.earlier, state.schema)
    ]


def test_log_of_states_whose_values_had_other_schemas(tmp_path):
    store = LocalFileStore(str(tmp_path))
    store.put("q/op/states/00001.json", golden("states_v2.json"))
    number, found = newest_states(store, "q/op", OPERATOR.all_states)
    assert (number, found) == (1, WITH_EARLIER)
    assert with_metadata(found) == with_metadata(WITH_EARLIER)


def test_operator_record_whose_states_had_other_schemas():
    record = OperatorRecord.from_json(golden("operator_v5.json"))
    assert record == replace(OPERATOR, states=WITH_EARLIER.states, dropped=WITH_EARLIER.dropped, origin=ORIGIN)
    assert with_metadata(record.all_states) == with_metadata(WITH_EARLIER)


#: Values of the three schemas of `_WIDER`, by user.
VALUES = {
    "a": b"\x01\x00\xfb\x02hi",
    "b": b"\x02\x00\xff\x7f",
    "c": b"\x03\x00\x01?\xfb\xff\xff\xff\xff\xff\xff\xff\x02\x02\x00\x00\x00\x00\x00\x00\x00\xe0?",
    "d": b"\x01\x03",
    "e": b"\x82" + bytes(8) + b"\x00\x00\x80",
}
READ = {
    "a": {"é": "??", "a": -5, "in": None},
    "b": {"é": "??", "a": 32767, "in": None},
    "c": {"é": "?", "a": -5, "in": [{"x": 0.5}, None]},
    "d": {"é": "??", "a": None, "in": None},
    "e": {"é": "??", "a": -32768, "in": None},
}


def test_values_of_three_schemas():
    """By the store, as a query reads them, and by the codec of those that read whole versions."""
    kind = plain_schema(_WIDER).field("element").type
    schemas = core_schemas(_WIDER)
    users = pa.schema([("user", pa.string())])
    codec = _core.StateCodec(users, state_id=2, kind="value", max_parallelism=4096, value=kind, schemas=schemas)
    keys = pa.record_batch([pa.array(VALUES)], ["user"]).to_struct_array()
    written = pa.record_batch(codec.encode(keys=keys, values=pa.array(READ.values(), kind)))
    assert [value[0] for value in written["value"].to_pylist()] == [3] * 5
    assert written["value"][2].as_py() == VALUES["c"]
    stored = written.set_column(3, "value", pa.array(VALUES.values(), pa.binary()))
    slot = _core.Store(users, max_parallelism=4096, first_key_group=0, end_key_group=4096)
    assert schemas is not None
    slot.set_schemas(2, schemas)
    slot.apply_delta(stored, 1)
    assert pa.array(slot.value_state(2, kind).get(keys)).to_pylist() == list(READ.values())
    in_base = [row["key_group"].to_bytes(2, "big") + b"\x00\x02" + row["key"] for row in stored.to_pylist()]
    entries = pa.record_batch([pa.array(in_base, pa.binary()), stored["value"]], ["key", "value"])
    assert pa.record_batch(codec.decode(entries))["value"].to_pylist() == list(READ.values())


def test_operator_record_with_a_broadcast_input():
    of_a_broadcast = replace(OPERATOR, inputs=(("orders", ("user", "at")), ("rules", ())))
    assert OperatorRecord.from_json(golden("operator_broadcast_v1.json")) == of_a_broadcast


def test_delta_of_states_that_belong_to_no_key():
    """Of slot 7; any other slot of the operator takes it too: its entries are of no key group."""
    ref = DeltaRef(11, VERSIONS[11], 2010, "3123b1f6970fcc06")
    data = golden("delta_operator_states_v1.arrow")
    [delta] = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    for first in (0, 1024):
        groups: dict[str, Any] = {"max_parallelism": 4096, "first_key_group": first, "end_key_group": first + 1024}
        slot = _core.Store(OPERATOR.key_schema, **groups)
        slot.apply_delta(delta, 11)
        [entries] = pa.array(slot.map_state(0x4000, pa.string(), pa.int64()).entries(pa.nulls(1))).to_pylist()
        assert entries == [("a", None), ("b", 1)]
        assert pa.array(slot.list_state(0x4001, pa.int64()).get(pa.nulls(1))).to_pylist() == [[7, None]]


def test_manifest():
    assert Manifest.from_text(golden("snapshot_v1.json"), "golden") == MANIFEST
    assert MANIFEST.to_text().encode() == golden("snapshot_v1.json")


def test_base_record():
    assert BaseRecord.from_text(golden("base_v1.json"), "golden") == BASE
    assert BASE.to_text().encode() == golden("base_v1.json")


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_delta(compression):
    ref = DeltaRef(11, VERSIONS[11], *DELTAS[compression])
    data = golden(f"delta_{compression}_v1.arrow")
    read = decode_delta(data, ref, IDENTITY.operator, IDENTITY.slot, "golden")
    assert [batch.to_pydict() for batch in read] == [batch.to_pydict() for batch in DELTA]
    assert read[0].schema.remove_metadata() == DELTA_SCHEMA
    assert read[0].schema.metadata == {**METADATA, b"holdfast.version": b"1"}
    again = encode_delta(IDENTITY, DELTA, compression)
    assert decode_delta(again.to_pybytes(), ref_of(IDENTITY, again), IDENTITY.operator, 7, "again") == read


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_whole_checkpoint_is_restored(tmp_path, backend):
    """What version 1 left in storage (two snapshots that share a table, and deltas), on another machine."""
    stored = FOLDER / "checkpoint_v1"
    shutil.copytree(stored / "store", tmp_path / "store")
    expected = {int(key): value for key, value in json.loads((stored / "expected.json").read_text()).items()}
    handle = StoredHandle.from_text((stored / "handle.json").read_text()).whole()
    driver = SlotDriver(tmp_path, settings=replace(SMALL, backend=backend))
    process = driver.process()
    assert values(process, handle) == expected
    assert process.state.recovery is not None and process.state.recovery.way == "restore"
    newest = handle.snapshots[0]
    (tmp_path / "store" / "query" / "sums" / "slot-00000" / newest.name).unlink()
    process = driver.process(local="local-b")
    assert values(process, handle) == expected
    assert process.state.recovery is not None and process.state.recovery.way == "fallback"
