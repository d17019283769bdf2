"""Savepoints: what they hold, back into entries of a store, hostile ones, types, names, what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.first_versions import slots_of
from tests.kept_states import DOES, OUTPUT, ROWS, RULES, KeepsAll
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast import savepoint
from holdfast._core import xxh64_file
from holdfast.checkpoint import (
    FIRST_OPERATOR_STATE_ID,
    OperatorRecord,
    StateRecord,
    StoredHandle,
)
from holdfast.cli import main
from holdfast.errors import Corrupt, Incompatible, InvalidRequest, Unavailable
from holdfast.inspect.savepoint import Format
from holdfast.savepoint.entries import state_codec
from holdfast.sealed import seal
from holdfast.storage import open_file_store
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under-test"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query's folder with something in every state."""
    folder: Path = tmp_path_factory.mktemp("kept")
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    inputs = {"rows": ROWS, "rules": hf.broadcast(RULES)}
    with Harness(
        KeepsAll(),
        {"rows": ["user", "place"]},
        inputs,
        OUTPUT,
        name=OPERATOR,
        null_keys=True,
        event_time={"rows": "at"},
        folder=folder,
    ) as harness:
        does = [name for name in DOES if name not in ("clear", "remove")]
        rows = [{"user": f"u{n % 5}", "place": n % 3 or None, "does": name, "n": n} for n in range(30) for name in does]
        rules = [{"name": f"rule {n}", "n": n} for n in range(3)]
        for batch_id in range(2):
            harness.advance(1000)
            harness.process(rows=pa.Table.from_pylist(rows, ROWS), rules=pa.Table.from_pylist(rules, RULES))
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()], watermark_ms=77)
    return folder


@pytest.fixture
def saved(kept: Path, tmp_path: Path) -> hf.Savepoint:
    return hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "saved")


def test_the_manifest_says_what_it_is_of(saved: hf.Savepoint) -> None:
    manifest = saved.manifest
    assert (manifest.query_id, manifest.batch_id, manifest.watermark_ms) == (QUERY_ID, 1, 77)
    assert manifest.sources == ('{"offset":1}', None)
    (operator,) = manifest.operators
    assert [field.name for field in operator.key_schema] == ["user", "place"]
    assert operator.null_keys
    recent = operator.state("recent")
    assert recent.ttl is not None and (recent.ttl.time, recent.ttl.ttl_ms) == ("processing", 10_000)
    assert operator.state("pair").ttl is None
    assert operator.state("alarms").function == "event"


def test_entries_of_a_savepoint_are_those_of_the_checkpoint(saved: hf.Savepoint, kept: Path, tmp_path: Path) -> None:
    """A restore has what the query had, byte for byte, but for list indexes, which begin anew."""
    operator = saved.manifest.operator(OPERATOR)
    store = open_file_store(str(tmp_path / "saved"))
    with hf.Checkpoint(kept / "checkpoint") as checkpoint:
        record = checkpoint.record(OPERATOR)
        handle: StoredHandle = checkpoint.at().handles[OPERATOR][0]
        stored: dict[tuple[int, int, bytes], bytes] = {}
        for entries in checkpoint.tables.slot(record, 0).entries(handle, [(b"", b"")]):
            for key, value in zip(entries["key"].to_pylist(), entries["value"].to_pylist()):
                stored[int.from_bytes(key[:2], "big"), int.from_bytes(key[2:4], "big"), key[4:]] = value
    ids = {state.name: state.id for state in record.states}
    lists = {ids["numbers"], ids["recents"], ids["buffer"]}
    restored: dict[tuple[int, int, bytes], bytes] = {}
    for state in operator.states:
        codec = state_codec(
            state.columns, operator.key_schema, ids[state.name], operator.max_parallelism, operator.null_keys
        )
        for batch in savepoint.read_state(store, operator, state, str(tmp_path)):
            ttl_ms = state.ttl.ttl_ms if state.ttl else None
            delta = savepoint.entries_of(batch, state.columns, codec, ttl_ms=ttl_ms)
            for row in delta.to_pylist():
                restored[row["key_group"], row["state"], row["key"]] = row["value"]
    assert len(restored) == len(stored)

    def without_indexes(entries: dict[tuple[int, int, bytes], bytes]) -> list[Any]:
        return [
            ((group, state, key[:-8] if state in lists else key), value)
            for (group, state, key), value in sorted(entries.items())
        ]

    assert without_indexes(restored) == without_indexes(stored)
    assert {key[-8:-4] for _, state, key in restored if state in lists} == {bytes(4)}


def test_rows_of_some_key_groups(saved: hf.Savepoint, tmp_path: Path) -> None:
    operator = saved.manifest.operator(OPERATOR)
    state = operator.state("total")
    store = open_file_store(str(tmp_path / "saved"))
    everything = saved.read(OPERATOR, "total").read_all()
    middle = sorted(everything["key_group"].to_pylist())[len(everything) // 2]

    def rows(first: int, end: int) -> list[dict[str, Any]]:
        batches = savepoint.read_state(store, operator, state, str(tmp_path), key_groups=(first, end))
        return [row for batch in batches for row in batch.to_pylist()]

    halves = [rows(0, middle), rows(middle, operator.max_parallelism)]
    assert all(halves)
    assert halves[0] + halves[1] == everything.to_pylist()
    assert rows(middle, middle) == []


def test_columns_and_filters(saved: hf.Savepoint) -> None:
    rows = saved.read(OPERATOR, "pair", columns=["value", "user"], filter=pc.field("user") == "u1").read_all()
    assert rows.column_names == ["value", "user"]
    assert set(rows["user"].to_pylist()) == {"u1"}
    with pytest.raises(InvalidRequest, match="no column 'x'"):
        saved.read(OPERATOR, "pair", columns=["x"])
    with pytest.raises(InvalidRequest, match="no operator 'x'; it has 'under-test'"):
        saved.read("x", "pair")
    with pytest.raises(InvalidRequest, match="no state 'x'; it has alarms,"):
        saved.read(OPERATOR, "x")


# --- what is refused when it is made


def test_a_folder_that_holds_something_is_refused(saved: hf.Savepoint, kept: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="holds a savepoint already"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "saved")
    (tmp_path / "saved" / savepoint.MANIFEST).unlink()
    with pytest.raises(InvalidRequest, match="holds no savepoint: expected the file savepoint.json"):
        hf.Savepoint(tmp_path / "saved")
    with pytest.raises(InvalidRequest, match=r"holds \d+ files already.*may be deleted"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "saved")


@pytest.mark.parametrize("format", get_args(Format))
def test_a_file_where_its_folder_should_be_is_told(kept: Path, tmp_path: Path, format: Format) -> None:
    """It was told of the first file that was written: not a directory."""
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(InvalidRequest, match="/file is a file: expected a folder that does not exist or is empty"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "file", format=format)
    with pytest.raises(Unavailable, match="Not a directory; expected a folder, found a file in the path"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "file/below", format=format)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_folder_where_its_manifest_should_be_is_told(saved: hf.Savepoint, tmp_path: Path) -> None:
    (tmp_path / "saved" / savepoint.MANIFEST).unlink()
    (tmp_path / "saved" / savepoint.MANIFEST).mkdir()
    with pytest.raises(Unavailable, match=r"savepoint\.json' in .*; expected a file, found a folder"):
        hf.Savepoint(tmp_path / "saved")


def test_what_is_made_beside_another_does_not_replace_it(saved: hf.Savepoint, tmp_path: Path) -> None:
    store = open_file_store(str(tmp_path / "saved"))
    with pytest.raises(InvalidRequest, match="holds a savepoint already, which stays"):
        savepoint.write_manifest(store, saved.manifest.to_text())


def test_of_two_attempts_at_one_folder_the_later_is_told(kept: Path, tmp_path: Path) -> None:
    def other(rows: int) -> None:
        path = tmp_path / "saved" / "operators" / OPERATOR / "buffer" / "slot-00000.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(b"")

    with pytest.raises(InvalidRequest, match="another attempt at a savepoint writes into"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "saved", progress=other)


def test_an_attempt_that_fails_leaves_no_savepoint(kept: Path, tmp_path: Path) -> None:
    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "saved", progress=stop)
    assert not (tmp_path / "saved" / savepoint.MANIFEST).exists()
    with pytest.raises(InvalidRequest, match="batch 9 is not among"):
        hf.Savepoint.create(checkpoint=kept / "checkpoint", to=tmp_path / "other", batch_id=9)


# --- hostile ones


def test_every_flipped_byte_of_a_table_is_found(saved: hf.Savepoint, tmp_path: Path) -> None:
    path = next((tmp_path / "saved/operators/under-test/pair").iterdir())
    content = path.read_bytes()
    for at in range(0, len(content), 37):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        opened = hf.Savepoint(tmp_path / "saved")
        with pytest.raises(Corrupt, match=r"slot-00000.parquet.*is damaged"):
            opened.read(OPERATOR, "pair").read_all()
        assert len(opened.verify()) == 1
    path.write_bytes(content[:-1])
    with pytest.raises(Corrupt, match=f"expected {len(content)} bytes, found {len(content) - 1}"):
        hf.Savepoint(tmp_path / "saved")
    (cut,) = hf.Restore(savepoint=tmp_path / "saved").plan().refused
    path.unlink()
    with pytest.raises(Corrupt, match="is missing in the savepoint"):
        hf.Savepoint(tmp_path / "saved")
    (gone,) = hf.Restore(savepoint=tmp_path / "saved").plan().refused
    assert f"expected {len(content)} bytes" in cut and "is missing in the savepoint" in gone


def test_every_flipped_byte_of_the_manifest_is_found(saved: hf.Savepoint, tmp_path: Path) -> None:
    path = tmp_path / "saved" / savepoint.MANIFEST
    content = path.read_bytes()
    for at in range(0, len(content), 101):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises((Corrupt, Incompatible)):
            hf.Savepoint(tmp_path / "saved")


@pytest.mark.parametrize("linked", ["savepoint.json", "operators", "operators/under-test/pair/slot-00000.parquet"])
def test_symbolic_links_are_refused(saved: hf.Savepoint, tmp_path: Path, linked: str) -> None:
    path = tmp_path / "saved" / linked
    os.rename(path, tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(Corrupt, match="is a symbolic link"):
        hf.Savepoint(tmp_path / "saved")


Change = Callable[[dict[str, Any]], None]


def _state(document: dict[str, Any], name: str) -> Any:
    return next(state for state in document["operators"][0]["states"] if state["name"] == name)


def _set(name: str, field: str, value: Any) -> Change:
    return lambda document: _state(document, name).update({field: value})


def _file(name: str, field: int, value: Any) -> Change:
    return lambda document: _state(document, name)["files"][0].__setitem__(field, value)


LIES: dict[str, Change] = {
    "operator without a name": lambda d: d["operators"][0].pop("name"),
    "operator twice": lambda d: d["operators"].append(d["operators"][0]),
    "states out of order": lambda d: d["operators"][0]["states"].reverse(),
    "state twice": lambda d: d["operators"][0]["states"].append(d["operators"][0]["states"][-1]),
    "no such kind": _set("pair", "kind", "heap"),
    "columns elsewhere": _set("pair", "columns", {"key": ["user", "place"], "value": "../../x"}),
    "schema that is none": _set("pair", "schema", "AAAA"),
    "negative rows": _file("pair", 3, -1),
    "huge rows": _file("pair", 3, 1 << 64),
    "rows that are not the files'": _set("pair", "rows", 1),
    "size that is a text": _file("pair", 4, "12"),
    "checksum that is a path": _file("pair", 5, "../../../etc/pass"),
    "slot that there is not": _file("pair", 0, 1),
    "slot twice": lambda d: _state(d, "pair")["files"].append(_state(d, "pair")["files"][0]),
    "key groups of others": _file("pair", 2, 7),
    "key groups of no key": _file("rules", 2, 7),
    "slots beyond key groups": lambda d: d["operators"][0].update(slots=5000),
    "no key groups": lambda d: d["operators"][0].update(max_parallelism=0),
    "ttl by no time": _set("recent", "ttl", ["moon", 1, 1]),
    "batch that is true": lambda d: d.update(batch_id=True),
    "sources that are numbers": lambda d: d.update(sources=[1]),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_manifest_that_lies_is_refused(saved: hf.Savepoint, tmp_path: Path, lie: Change) -> None:
    path = tmp_path / "saved" / savepoint.MANIFEST
    document = json.loads(path.read_bytes())
    for field in ("checksum", "format", "version"):
        del document[field]
    lie(document)
    path.write_text(seal("holdfast.savepoint", 1, document))
    with pytest.raises(Corrupt, match="contradicts what a savepoint's manifest has"):
        hf.Savepoint(tmp_path / "saved")


def test_a_newer_savepoint_asks_for_an_upgrade(saved: hf.Savepoint, tmp_path: Path) -> None:
    path = tmp_path / "saved" / savepoint.MANIFEST
    document = json.loads(path.read_bytes())
    path.write_text(seal("holdfast.savepoint", 3, {k: v for k, v in document.items() if k not in ("checksum",)}))
    with pytest.raises(Incompatible, match="Upgrade"):
        hf.Savepoint(tmp_path / "saved")


def _replace_table(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Another table in the place of a state's own, with a manifest that vouches for it."""
    path = folder / "operators/under-test/total/slot-00000.parquet"
    table = change(pq.read_table(path))
    path.unlink()
    pq.write_table(table, path)
    checksum, size_bytes = xxh64_file(str(path))
    document = json.loads((folder / savepoint.MANIFEST).read_bytes())
    row = _state(document, "total")["files"][0]
    row[4:] = [size_bytes, f"{checksum:016x}"]
    fields = {k: v for k, v in document.items() if k not in ("checksum", "format", "version")}
    (folder / savepoint.MANIFEST).write_text(seal("holdfast.savepoint", 1, fields))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.slice(1), "is not what the manifest says"),
        (lambda t: t.drop_columns(["expiry"]), "is not what the manifest says"),
        (lambda t: t.set_column(2, "value", pc.cast(t["value"], pa.float64())), "is not what the manifest says"),
        (
            lambda t: t.set_column(4, t.schema.field(4), pa.array([4096] * len(t), pa.uint16())),
            "rows of key groups 4096 to 4096; expected 0 to 4095",
        ),
    ],
)
def test_a_table_that_is_not_the_manifests_is_refused(
    saved: hf.Savepoint, tmp_path: Path, change: Any, said: str
) -> None:
    _replace_table(tmp_path / "saved", change)
    with pytest.raises(Corrupt, match=said):
        hf.Savepoint(tmp_path / "saved").read(OPERATOR, "total").read_all()


def test_a_row_in_another_key_group_than_its_keys_is_refused(saved: hf.Savepoint, tmp_path: Path) -> None:
    operator = saved.manifest.operator(OPERATOR)
    state = operator.state("total")
    codec = state_codec(state.columns, operator.key_schema, 1, operator.max_parallelism, operator.null_keys)
    batch = saved.read(OPERATOR, "total").read_all().to_batches()[0]
    wrong = batch.set_column(4, batch.schema.field(4), pc.add(batch["key_group"], pa.scalar(1, pa.uint16())))
    with pytest.raises(Corrupt, match="row 0: expected key group"):
        savepoint.entries_of(wrong, state.columns, codec, ttl_ms=None)


# --- states that belong to no key, in several slots


def _slots(folder: Path, rules: list[list[tuple[str, float]]]) -> SparkFiles:
    """A checkpoint of an operator of two slots, each with these rules and a buffer with its number."""
    record = OperatorRecord(
        name="rules",
        max_parallelism=16,
        slots=2,
        labels=(0, 1),
        key_schema=pa.schema([("user", pa.string())]),
        null_keys=False,
        states=(
            StateRecord(
                FIRST_OPERATOR_STATE_ID,
                "rules",
                "broadcast",
                pa.schema([("key", pa.string()), ("value", pa.float64())]),
            ),
            StateRecord(
                FIRST_OPERATOR_STATE_ID + 1, "buffer", "operator", pa.schema([("element", pa.int64())]), "split"
            ),
        ),
    )
    texts = []
    for state, slot, put in zip(slots_of(record, folder, QUERY_ID), range(2), rules):
        live = state.open(None)
        state.begin(0)
        none = pa.nulls(len(put))
        keys, values = zip(*put)
        live.map_state(FIRST_OPERATOR_STATE_ID, pa.string(), pa.float64()).put(
            none, pa.array(keys, pa.string()), pa.array(values, pa.float64())
        )
        live.list_state(FIRST_OPERATOR_STATE_ID + 1, pa.int64()).append(pa.nulls(2), pa.array([slot, 7]))
        texts.append(state.prepare().to_text())
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    spark.commit(0, texts)
    return spark


def test_states_of_no_key_broadcast_once_and_lists_by_slot(tmp_path: Path) -> None:
    alike = [("nan", float("nan")), ("a", 1.0)]
    _slots(tmp_path, [alike, alike[::-1]])
    saved = hf.Savepoint.create(checkpoint=tmp_path / "checkpoint", to=tmp_path / "saved")
    assert saved.read("rules", "rules").read_all()["map_key"].to_pylist() == ["a", "nan"]
    assert [file.slot for file in saved.manifest.operator("rules").state("buffer").files] == [0, 1]
    rows = saved.read("rules", "buffer").read_all().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 0, 0), (0, 1, 7), (1, 0, 1), (1, 1, 7)]


def test_a_broadcast_state_that_slots_have_not_alike_is_refused(tmp_path: Path) -> None:
    _slots(tmp_path, [[("a", 1.0)], [("a", 2.0)]])
    with pytest.raises(Corrupt, match=r"not the same in all slots: slots \[1\] have another than slot 0"):
        hf.Savepoint.create(checkpoint=tmp_path / "checkpoint", to=tmp_path / "saved")
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        with pytest.raises(Corrupt, match="not the same in all slots"):
            checkpoint.read("rules", "rules")
        one = checkpoint.read("rules", "rules", slots=[1]).read_all()
        assert one.to_pylist() == [{"map_key": "a", "value": 2.0}]


def test_the_room_of_a_slot_is_given_back_before_the_next(tmp_path: Path) -> None:
    alike = [("a", 1.0)]
    _slots(tmp_path, [alike, alike])
    (tmp_path / "temporary").mkdir()
    with hf.Checkpoint(tmp_path / "checkpoint", temporary=tmp_path / "temporary") as checkpoint:
        hf.Savepoint.create(checkpoint=checkpoint, to=tmp_path / "saved")
        assert not list((tmp_path / "temporary").rglob("*.sst"))


class Counted(hf.BatchProcessor):
    users = hf.AggregatingState(pa.string(), "approx_count_distinct")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.users.add_only(batch, batch["user"])


def test_a_sketch_has_its_count_beside_it(tmp_path: Path) -> None:
    key = pa.schema([("user", pa.string())])
    saved = _taken(tmp_path, Counted(), key, [{"user": "a"}, {"user": "b"}])
    rows = saved.read("of types: _ä/ö", "users").read_all()
    assert rows["value"].to_pylist() == [1, 1]
    assert rows.schema.field("accumulator").type == pa.binary()


# --- types and names


DAYS = pa.struct([("at", pa.time32("s")), ("on", pa.list_(pa.date64()))])


class Dates(hf.BatchProcessor):
    seconds = hf.ValueState(pa.timestamp("s", "Europe/Berlin"))
    days = hf.MapState(pa.date64(), DAYS)
    money = hf.ValueState(pa.dictionary(pa.int8(), pa.string()))
    wide = hf.ListState(pa.large_string())
    nothing = hf.ValueState(pa.null())
    spans = hf.ValueState(pa.map_(pa.string(), pa.duration("ns")))

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        count = len(batch)
        self.seconds.put(batch, pa.array([-5] * count, pa.timestamp("s", "Europe/Berlin")))
        days = pa.array([date(1999, 12, 31)] * count, pa.date64())
        inner = {"at": 3599, "on": [date(1969, 7, 20), None]}
        self.days.put(batch, days, pa.array([inner] * count, DAYS))
        self.money.put(batch, pa.array(["eur"] * count).dictionary_encode())
        self.wide.add(batch, pa.array(["x"] * count, pa.large_string()))
        self.spans.put(batch, pa.array([[("a", 5)]] * count, pa.map_(pa.string(), pa.duration("ns"))))


KEY = pa.schema(
    [
        ("value", pa.timestamp("s")),
        ("Expiry", pa.decimal128(10, 2)),
        ("key_group", pa.struct([("a", pa.float64()), ("b", pa.binary())])),
    ]
)


def _taken(folder: Path, processor: Any, key: pa.Schema, rows: Any) -> hf.Savepoint:
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    with Harness(processor, key.names, key, "n long", name="of types: _ä/ö", folder=folder) as harness:
        harness.process(pa.Table.from_pylist(rows, key))
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    return hf.Savepoint.create(checkpoint=folder / "checkpoint", to=folder / "saved")


def test_types_that_parquet_does_not_have_and_names_that_are_taken(tmp_path: Path) -> None:
    key = {"value": datetime(1960, 1, 1), "Expiry": Decimal("1.50"), "key_group": {"a": float("inf"), "b": b"\x00"}}
    saved = _taken(tmp_path, Dates(), KEY, [key])
    name = "of types: _ä/ö"
    read = {state: saved.read(name, state).read_all() for state in saved.operators[name]}
    (row,) = read["seconds"].to_pylist()
    assert {column: row[column] for column in KEY.names} == key
    assert read["seconds"].column_names == [*KEY.names, "value_", "expiry_", "key_group_"]
    assert read["seconds"].schema.field("value_").type == pa.timestamp("s", "Europe/Berlin")
    assert row["value_"].astimezone(timezone.utc) == datetime(1969, 12, 31, 23, 59, 55, tzinfo=timezone.utc)
    (row,) = read["days"].to_pylist()
    assert row["map_key"] == date(1999, 12, 31)
    assert read["days"].schema.field("value_").type.field("on").type.value_type == pa.date64()
    assert row["value_"]["on"] == [date(1969, 7, 20), None]
    assert read["money"]["value_"].to_pylist() == ["eur"]
    assert read["wide"]["value_"].to_pylist() == ["x"]
    assert [list(one) for one in read["spans"]["value_"][0].as_py()] == [["a", pa.scalar(5, pa.duration("ns")).as_py()]]
    assert read["nothing"].num_rows == 0
    folder = saved.path(name, "money")
    assert os.path.basename(os.path.dirname(folder)) == "of%20types%3A%20_%C3%A4%2F%C3%B6"
    with pytest.raises(InvalidRequest, match="has no entries, so there are no files"):
        saved.path(name, "nothing")


def test_conditions_on_types_that_parquet_does_not_have(tmp_path: Path) -> None:
    keys = [
        {"value": datetime(1960, 1, day), "Expiry": Decimal("1.50"), "key_group": {"a": 0.0, "b": b""}}
        for day in (1, 2)
    ]
    saved = _taken(tmp_path, Dates(), KEY, keys)
    name = "of types: _ä/ö"
    second = pc.field("value") == pa.scalar(datetime(1960, 1, 2), pa.timestamp("s"))
    found = saved.read(name, "days", filter=second, columns=["map_key", "value"]).read_all()
    assert found.to_pylist() == [{"map_key": date(1999, 12, 31), "value": datetime(1960, 1, 2)}]
    with pytest.raises(InvalidRequest, match="filter: expected a condition on columns of"):
        saved.read(name, "days", filter=pc.field("nowhere") == 1).read_all()
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        with pytest.raises(InvalidRequest, match="filter: expected a condition on columns of"):
            checkpoint.read(name, "days", filter=pc.field("value") + 1)


STRICT = pa.struct([pa.field("a", pa.int64(), nullable=False)])


class Strict(hf.BatchProcessor):
    parts = hf.ListState(STRICT)

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.parts.add(batch, pa.array([{"a": 1}] * len(batch), STRICT))
        self.parts.add(batch, pa.nulls(len(batch), STRICT))


def test_nulls_of_a_type_whose_fields_are_not_null(tmp_path: Path) -> None:
    saved = _taken(tmp_path, Strict(), pa.schema([("user", pa.string())]), [{"user": "a"}])
    for rows in (saved, hf.Checkpoint(tmp_path / "checkpoint")):
        assert rows.read("of types: _ä/ö", "parts").read_all()["value"].to_pylist() == [{"a": 1}, None]


class Hollow(hf.BatchProcessor):
    hollow = hf.ValueState(pa.struct([]))

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.hollow.put(batch, pa.array([{}] * len(batch), pa.struct([])))


def test_a_struct_without_fields_is_refused_and_can_be_read_from_the_checkpoint(tmp_path: Path) -> None:
    key = pa.schema([("user", pa.string())])
    with pytest.raises(Incompatible, match="column 'value' has a struct without fields"):
        _taken(tmp_path, Hollow(), key, [{"user": "a"}])
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        assert checkpoint.read("of types: _ä/ö", "hollow").read_all().num_rows == 1
    arguments = ["checkpoints", "read", f"{tmp_path / 'checkpoint'}", "of types: _ä/ö", "hollow"]
    told = CliRunner().invoke(main, [*arguments, "--to", f"{tmp_path / 'hollow.parquet'}"])
    assert told.exit_code == 1 and "Error: column 'value' has a struct without fields" in told.output
    assert not (tmp_path / "hollow.parquet").exists()


# --- the command


@pytest.fixture
def run() -> Iterator[Any]:
    yield lambda *arguments: CliRunner().invoke(main, ["savepoint", *map(str, arguments)])


def test_command(run: Any, kept: Path, tmp_path: Path) -> None:
    made = run("create", "--checkpoint", kept / "checkpoint", "--to", tmp_path / "saved", "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.output)
    assert (told["batch"], len(told["states"])) == (1, 14)
    again = run("create", "--checkpoint", kept / "checkpoint", "--to", tmp_path / "saved")
    assert (again.exit_code, "holds a savepoint already" in again.output) == (1, True)
    assert "under-test  tally" in run("show", tmp_path / "saved").output
    rows = run("read", tmp_path / "saved", OPERATOR, "total", "--where", "user=u1", "--json").output.splitlines()
    assert {json.loads(row)["user"] for row in rows} == {"u1"}
    assert run("verify", tmp_path / "saved").output == "all is whole\n"
    table = next((tmp_path / "saved/operators/under-test/pair").iterdir())
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    assert run("verify", tmp_path / "saved").exit_code == 1
