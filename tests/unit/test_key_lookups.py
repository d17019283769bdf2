"""A key of a checkpoint is looked up: found at once, in its own slot alone, and as a reading of everything finds it."""

from __future__ import annotations

import shutil
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from tests.first_versions import QUERY, begun, first_versions
from tests.native_savepoints import OPERATOR, kept_query
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast import _core
from holdfast.cli import main
from holdfast.errors import Corrupt
from holdfast.inspect.key_filter import keys_of
from holdfast.inspect.versions import _ranges_of_keys
from holdfast.testing.harness import QUERY_ID, Harness

SLOTS, USERS = 4, 60
NOON = datetime(2127, 6, 1, 12, tzinfo=timezone.utc)
USER, PLACE = pa.field("user", pa.string()), pa.field("place", pa.int32())
user, place = pc.field("user"), pc.field("place")


class Keeps(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")
    numbers = hf.ListState(pa.int64())
    alarms = hf.Timers("processing")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])
        self.numbers.add(batch, batch["n"])
        self.alarms.register(batch, pa.array([NOON + timedelta(days=n) for n in batch["n"].to_pylist()]))

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        """They are there to be read."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query of some slots, each of which has some of the users."""
    path: Path = tmp_path_factory.mktemp("lookups")
    spark = SparkFiles(path / "checkpoint", QUERY_ID)
    with Harness(Keeps(), "user", "user string, n long", "user string", name="keeps", folder=path) as harness:
        harness.process([{"user": f"u{at % USERS}", "n": at + 1} for at in range(3 * USERS)])
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    hf.Savepoint.create(checkpoint=path / "checkpoint", to=path / "saved")
    first_versions(begun(path / "saved", "keeps", SLOTS), path / "query").close()
    return path / "query"


def opened(folder: Path, temporary: Path | None = None) -> hf.Checkpoint:
    return hf.Checkpoint(folder / "next", state=folder / "state", temporary=temporary)


def slot_of(checkpoint: hf.Checkpoint, name: str) -> int:
    record = checkpoint.record("keeps")
    codec = _core.KeyCodec(record.key_schema)
    given = pa.record_batch({"user": [name]}, record.key_schema)
    (group,) = pa.array(codec.key_groups(given, record.max_parallelism)).to_pylist()
    return _core.slot_of(group, record.max_parallelism, record.slots)


@pytest.mark.parametrize("state", ["total", "numbers", "alarms"])
def test_what_is_looked_up_is_what_a_whole_reading_finds(folder: Path, state: str) -> None:
    asked = [
        user == "u7",
        user == "nobody",
        (user == "u8") & (pc.field("key_group") >= 0),
        (user == "u8") & (user == "u9"),
    ]
    asked += [user.isin([f"u{at}" for at in range(0, USERS, 7)]), user.isin(["nobody", "u3", "u3"])]
    with opened(folder) as checkpoint:
        whole = checkpoint.read("keeps", state).read_all()
        assert whole.num_rows >= USERS
        for wanted in asked:
            assert keys_of(wanted, pa.schema([USER])) is not None
            assert checkpoint.read("keeps", state, filter=wanted).read_all() == whole.filter(wanted)
            assert checkpoint.read("keeps", state, filter=wanted, slots=[1]).read_all() == checkpoint.read(
                "keeps", state, slots=[1]
            ).read_all().filter(wanted)


def test_a_filter_on_a_field_within_a_value_reads_all(tmp_path: Path) -> None:
    """Arrow's search for what must be equal ends the process at such."""
    kept_query(tmp_path)
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        whole = checkpoint.read(OPERATOR, "pair").read_all()
        for wanted in (pc.field("value", "n") == 5, (user == "u1") & (place == 1) & (pc.field("value", "n") >= 0)):
            assert checkpoint.read(OPERATOR, "pair", filter=wanted).read_all() == whole.filter(wanted)


def test_a_lookup_opens_the_slot_of_the_key_and_no_other(folder: Path, tmp_path: Path) -> None:
    """So the others may be damaged, far away, or large."""
    shutil.copytree(folder, tmp_path / "query")
    with opened(tmp_path / "query") as checkpoint:
        wanted = slot_of(checkpoint, "u7")
        for slot in set(range(SLOTS)) - {wanted}:
            shutil.rmtree(tmp_path / "query/state" / QUERY / "keeps" / f"slot-{slot:05d}")
        with pytest.raises(Corrupt):
            checkpoint.read("keeps", "total", filter=pc.field("value") == 7).read_all()
    (tmp_path / "temporary").mkdir()
    with opened(tmp_path / "query", tmp_path / "temporary") as checkpoint:
        rows = checkpoint.read("keeps", "total", filter=user == "u7").read_all()
        assert rows["value"].to_pylist() == [8 + 68 + 128]
        brought = {path.name for path in (tmp_path / "temporary").rglob("slot-*")}
        assert brought == {f"slot-{wanted:05d}"}


def test_the_entries_of_a_key_are_sought_and_nothing_else_is_read(folder: Path) -> None:
    with opened(folder) as checkpoint:
        record, handles = checkpoint.record("keeps"), checkpoint.at().handles["keeps"]
        states = {state.name: state for state in record.states}
        for name, expected in (("total", 1), ("numbers", 3)):
            ranges = _ranges_of_keys(record, states[name], user == "u7")
            assert ranges is not None
            ((slot, bounds),) = ranges.items()
            assert slot == slot_of(checkpoint, "u7")
            found = list(checkpoint.tables.slot(record, slot).entries(handles[slot], bounds))
            assert sum(map(len, found)) == expected
        assert _ranges_of_keys(record, states["total"], pc.field("value") == 1) is None


def test_of_many_keys_their_key_groups_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = user.isin([f"u{at}" for at in range(USERS // 2)])
    with opened(folder) as checkpoint:
        sought = checkpoint.read("keeps", "numbers", filter=wanted).read_all()
        monkeypatch.setattr("holdfast.inspect.versions._SEEK_KEYS_MAX", 3)
        assert checkpoint.read("keeps", "numbers", filter=wanted).read_all() == sought
    assert sought.num_rows == 3 * USERS // 2


def test_the_command_line_looks_up(folder: Path) -> None:
    given = ["checkpoints", "read", str(folder / "next"), "keeps", "total", "--state", str(folder / "state"), "--json"]
    result = CliRunner().invoke(main, [*given, "--where", "user=u7"])
    assert result.exit_code == 0, result.output
    assert '"user": "u7", "value": 204' in result.stdout and result.stdout.count("\n") == 1


UTC = pa.field("at", pa.timestamp("us", "UTC"))
NOWHERE = pa.field("at", pa.timestamp("us", "No/Where"))


@pytest.mark.parametrize(
    ("wanted", "fields", "keys"),
    [
        (user == "ada", [USER], [("ada",)]),
        ((place == 3) & (pc.field("n") > 1) & (user == "ada"), [USER, PLACE], [("ada", 3)]),
        (user.isin(["a", "b", "a"]), [USER], [("a",), ("b",)]),
        (place.isin([1, 2]), [PLACE], [(1,), (2,)]),
        (user.isin(pa.array([], pa.string())), [USER], []),
        (pc.field("at") == NOON, [UTC], [(NOON,)]),
        (pc.field("day") == date(2027, 6, 1), [pa.field("day", pa.date32())], [(date(2027, 6, 1),)]),
        (pc.field("price") == Decimal("1.50"), [pa.field("price", pa.decimal128(9, 2))], [(Decimal("1.50"),)]),
        (pc.field("id") == b"x", [pa.field("id", pa.binary())], [(b"x",)]),
        (pc.field("yes") == pa.scalar(True), [pa.field("yes", pa.bool_())], [(True,)]),
    ],
)
def test_filters_that_name_their_keys(wanted: pc.Expression, fields: list[pa.Field], keys: list[Any]) -> None:
    found = keys_of(wanted, pa.schema(fields))
    assert found is not None and [tuple(key.values()) for key in found.to_pylist()] == keys


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [
        (None, [USER]),
        (user == "ada", [USER, PLACE]),  # a part of the key
        (user == "ada", []),
        ((user == "ada") | (place == 3), [USER]),
        (~(user == "ada"), [USER]),
        (~user.isin(["ada"]), [USER]),
        (user.isin(["ada"]) | (place == 3), [USER]),
        (user != "ada", [USER]),
        (user.is_null(), [USER]),
        (user.isin(["ada", None]), [USER]),
        (place.isin([1, 2]), [USER]),
        (place.isin([1.0, 2.0]), [PLACE]),
        (place == 3.0, [PLACE]),  # compared as doubles, so that other large integers would be equal too
        (place == 1 << 40, [PLACE]),
        (pc.field("x") == 0.0, [pa.field("x", pa.float64())]),  # -0.0 is equal, and another number
        (pc.field("x").isin([1.0]), [pa.field("x", pa.float64())]),
        (pc.field("value", "n") == 5, [USER]),
        ((user == "ada") & (pc.field("value", "n") == 5), [USER]),
        ((user == "ada") & pc.field("value", "n").isin([5]), [USER]),
        (pc.field(0) == "ada", [USER]),
        ((pc.field(0) == "ada") & (user == "ada"), [USER]),
        (pc.field("at") == pa.scalar(1 << 62, pa.timestamp("us", "UTC")), [UTC]),
        ((user == "ada") & (pc.field("at") == pa.scalar(1 << 62, pa.timestamp("us"))), [USER]),
        (pc.field("at") == pa.scalar(5, NOWHERE.type), [NOWHERE]),
        (pc.field("at") == pa.scalar(1_234_567_891, pa.timestamp("ns")), [pa.field("at", pa.timestamp("us"))]),
        (pc.field("price") == Decimal("1.505"), [pa.field("price", pa.decimal128(9, 2))]),
    ],
)
def test_filters_that_any_key_may_pass(wanted: pc.Expression | None, fields: list[pa.Field]) -> None:
    assert keys_of(wanted, pa.schema(fields)) is None
