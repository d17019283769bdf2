"""Checkpoints that are read without Spark: what is committed, what is damaged, what is refused; nothing is changed."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result
from tests.by_key import by_key
from tests.first_versions import first_versions
from tests.spark_files import CONF, SparkFiles, lz4_stream, state_row

import holdfast as hf
from holdfast.checkpoint import (
    VersionsOrigin,
    operator_prefix,
    recorded_operator,
)
from holdfast.checkpoint.continued import continued
from holdfast.cli import main
from holdfast.errors import Corrupt, Incompatible, InternalError, InvalidRequest, Unavailable
from holdfast.inspect.read_only_store import ReadOnlyStore
from holdfast.spark_files.lz4_blocks import decompress, xxh32
from holdfast.storage import open_file_store
from holdfast.testing.harness import QUERY_ID, Harness


class Sums(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")
    last = hf.ValueState(pa.string())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])
        self.last.put(batch, batch["n"].cast(pa.string()))


BATCHES = 6
FOLDED: dict[str, Any] = {"fold.deltas.max": 1, "snapshot.deltas.max": 2, "snapshot.bytes.min": 1}


class Recorded:
    """A query's files after some batches: batch b adds b to each of ten users, and one user more.

    ``settled``: what a batch leaves to the background, snapshots and what they make superfluous, is done before the
    next one; otherwise it is done at some time.
    """

    def __init__(self, folder: Path, batches: int = BATCHES, *, settled: bool = False, **settings: Any) -> None:
        self.folder = folder
        self.spark = SparkFiles(folder / "checkpoint", QUERY_ID)
        self.handles = []
        with Harness(
            Sums(), "user", "user string, n long", "user string", name="sums", folder=folder, settings=settings
        ) as harness:
            for batch_id in range(batches):
                users = [f"user-{at}" for at in range(10 + batch_id)]
                harness.process([{"user": user, "n": batch_id} for user in users])
                handle = harness.snapshot().handle
                assert handle is not None
                self.handles.append(handle)
                self.spark.commit(batch_id, [handle.to_text()], watermark_ms=batch_id * 1000)
                if settled:
                    assert harness._background.drain(240)

    def open(self) -> hf.Checkpoint:
        return hf.Checkpoint(self.folder / "checkpoint")

    @property
    def slot(self) -> Path:
        return self.folder / "state" / QUERY_ID / "sums" / "slot-00000"


def expected(batch_id: int) -> dict[str, int]:
    return {f"user-{at}": sum(b for b in range(batch_id + 1) if at < 10 + b) for at in range(10 + batch_id)}


def totals(checkpoint: hf.Checkpoint, batch_id: int | None = None) -> dict[str, int]:
    rows = checkpoint.read("sums", "total", batch_id=batch_id).read_all()
    return by_key(rows)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


@pytest.fixture
def folded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path, **FOLDED)


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.rglob("*")) if p.is_file()}


# --- what is committed


def test_every_retained_batch_is_read_as_it_was(folded: Recorded) -> None:
    with folded.open() as checkpoint:
        assert [version.batch_id for version in checkpoint.versions()] == list(range(BATCHES))
        for batch_id in (5, 0, 3, 2, 4, 1):
            assert totals(checkpoint, batch_id) == expected(batch_id)
        assert totals(checkpoint) == expected(5)
        assert checkpoint.versions()[2].watermark_ms == 2000


def test_an_offset_with_another_end_of_line_in_it_is_one_offset(recorded: Recorded) -> None:
    """JSON allows them in a text, and Spark's log is of lines that end in a line feed."""
    path = recorded.folder / "checkpoint/offsets/5"
    version, planned, _, _ = path.read_text().split("\n")
    first = json.dumps({"after": "one\u2028two\x85three"}, ensure_ascii=False)
    path.write_text("\n".join([version, planned, first, '{"t":{"0":7}}']))
    with recorded.open() as checkpoint:
        assert checkpoint.at().batch.sources == (first, '{"t":{"0":7}}')
    assert json.loads(hf.Restore(recorded.folder / "checkpoint").kafka_offsets(1)) == {"t": {"0": 7}}


def test_what_is_prepared_and_not_committed_never_happened(recorded: Recorded) -> None:
    (recorded.folder / "checkpoint/commits/5").unlink()
    with recorded.open() as checkpoint:
        assert totals(checkpoint) == expected(4)
        with pytest.raises(InvalidRequest, match="batch 5 is not among the committed batches.* 0 to 4"):
            checkpoint.read("sums", "total", batch_id=5)


def test_a_snapshot_of_sparks_state_stands_for_the_deltas_before_it(recorded: Recorded) -> None:
    recorded.spark.commit(3, [recorded.handles[3].to_text()], snapshot=True)
    for version in (1, 2, 3, 4):
        (recorded.folder / f"checkpoint/state/0/0/{version}.delta").unlink(missing_ok=True)
    with recorded.open() as checkpoint:
        assert totals(checkpoint, 5) == expected(5)
        assert totals(checkpoint, 3) == expected(3)
        problems = [version.problem for version in checkpoint.versions()]
        assert problems[0] is not None and "1.delta" in problems[0]
        assert problems[3:] == [None] * 3


def test_looking_changes_nothing(folded: Recorded, tmp_path: Path) -> None:
    before = _files(tmp_path)
    with folded.open() as checkpoint:
        totals(checkpoint, 5)
        totals(checkpoint, 1)
        checkpoint.diff("sums", "total", 1, 4).read_all()
        assert checkpoint.verify().whole
        checkpoint.operators()
    assert _files(tmp_path) == before


def test_the_temporary_folder_goes(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    with hf.Checkpoint(tmp_path / "checkpoint", temporary=tmp_path / "temporary") as checkpoint:
        totals(checkpoint)
        assert list((tmp_path / "temporary").iterdir())
    assert not list((tmp_path / "temporary").iterdir())


def test_a_store_that_is_read_refuses_every_change(tmp_path: Path) -> None:
    store = ReadOnlyStore(open_file_store(str(tmp_path)))
    for change in (
        lambda: store.put("a", b""),
        lambda: store.put_file("a", "/dev/null"),
        lambda: store.create_if_absent("a", b""),
        lambda: store.copy_if_absent("a", "b"),
        lambda: store.delete(["a"]),
        lambda: store.sweep("", 1),
    ):
        with pytest.raises(InternalError, match="nothing was changed"):
            change()
    assert not list(tmp_path.iterdir())


# --- reading


def test_a_state_of_a_large_slot_is_sought_key_group_by_key_group(
    folded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folded.open() as checkpoint:
        passed_over = [checkpoint.read("sums", state).read_all() for state in ("total", "last")]
        monkeypatch.setattr("holdfast.inspect.versions._SEEK_BYTES_MIN", 0)
        assert [checkpoint.read("sums", state).read_all() for state in ("total", "last")] == passed_over
        assert totals(checkpoint, 2) == expected(2)


def test_columns_and_filters(recorded: Recorded) -> None:
    with recorded.open() as checkpoint:
        rows = checkpoint.read("sums", "total", columns=["value", "user"], filter=pc.field("user") == "user-14")
        assert rows.read_all().to_pylist() == [{"value": 5, "user": "user-14"}]
        with pytest.raises(InvalidRequest, match="no column 'usr'; it has user, value, expiry, key_group"):
            checkpoint.read("sums", "total", columns=["usr"])
        with pytest.raises(InvalidRequest, match="no state 'x'; it has last, total"):
            checkpoint.read("sums", "x")
        with pytest.raises(InvalidRequest, match="no operator 'x' of this query; it has 'sums'"):
            checkpoint.read("x", "total")
        with pytest.raises(InvalidRequest, match="slots 0 to 0, no slot 1"):
            checkpoint.read("sums", "total", slots=[1])


@pytest.mark.parametrize("piece_bytes", [pytest.param(1, marks=pytest.mark.long), 16 << 20])
def test_diff_says_what_became_of_each_row(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr("holdfast.inspect.checkpoint._PIECE_BYTES", piece_bytes)
    with recorded.open() as checkpoint:
        rows = checkpoint.diff("sums", "total", 1, 3).read_all().to_pylist()
        backwards = checkpoint.diff("sums", "total", 3, 1).read_all().to_pylist()
        assert checkpoint.diff("sums", "total", 3, 3).read_all().num_rows == 0
    changed = {row["user"]: (row["old_value"], row["value"]) for row in rows if row["change"] == "changed"}
    assert changed == {user: (total, expected(3)[user]) for user, total in expected(1).items()}
    added = {row["user"]: row["value"] for row in rows if row["change"] == "added"}
    assert added == {"user-11": 2 + 3, "user-12": 3}
    assert {row["user"]: row["value"] for row in backwards if row["change"] == "removed"} == added
    assert all(row["old_value"] is None for row in rows if row["change"] == "added")


def test_where_the_state_is(recorded: Recorded, tmp_path: Path) -> None:
    with hf.Checkpoint(tmp_path / "checkpoint", state=tmp_path / "state") as checkpoint:
        assert totals(checkpoint) == expected(5)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InvalidRequest, match=f"has no state of query {QUERY_ID}"):
        hf.Checkpoint(tmp_path / "checkpoint", state=tmp_path / "elsewhere")
    os.rename(tmp_path / "state" / QUERY_ID, tmp_path / "elsewhere" / QUERY_ID)
    with recorded.open() as checkpoint:
        assert checkpoint.state_uri == str(tmp_path / "elsewhere")
    (tmp_path / "state" / QUERY_ID / "sums").mkdir(parents=True)
    (tmp_path / "state" / QUERY_ID / "sums" / "operator.json").write_bytes(b"{}")
    with pytest.raises(InvalidRequest, match="which folder has the state .*elsewhere.*state"):
        recorded.open()
    with pytest.raises(InvalidRequest, match="no checkpoint of a streaming query"):
        hf.Checkpoint(tmp_path / "state")


class Lists(hf.BatchProcessor):
    numbers = hf.ListState(pa.int64())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.numbers.add(batch, batch["n"])


def test_positions_of_lists_that_are_longer_than_a_batch(tmp_path: Path) -> None:
    spark = SparkFiles(tmp_path / "checkpoint", QUERY_ID)
    lengths = {"a": 150_000, "b": 3, "c": 65_536, "d": 1}
    with Harness(Lists(), "user", "user string, n long", "n long", name="lists", folder=tmp_path) as harness:
        users = [user for user, length in lengths.items() for _ in range(length)]
        harness.process(pa.table({"user": users, "n": pa.array(range(len(users)), pa.int64())}))
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        batches = list(checkpoint.read("lists", "numbers"))
    assert len(batches) > 2
    table = pa.Table.from_batches(batches)
    begin = 0
    for user, length in lengths.items():
        rows = table.filter(pc.field("user") == user)
        assert rows["position"].to_pylist() == list(range(length))
        assert rows["value"].to_pylist() == list(range(begin, begin + length))
        begin += length


def test_what_another_generation_began_with_is_read(recorded: Recorded, tmp_path: Path) -> None:
    """Two slots that begin with the one slot of an earlier query, and had no rows of their own yet."""
    store = open_file_store(str(tmp_path / "state"))
    earlier = recorded_operator(store, operator_prefix(QUERY_ID, "sums"))
    assert earlier is not None
    origin = VersionsOrigin(store.uri, QUERY_ID, "sums", BATCHES - 1, (recorded.handles[-1].stored(),), ("sums",))
    record = continued(earlier, replace(earlier, slots=2, labels=(0, 1)), origin)
    with first_versions(record, tmp_path) as checkpoint:
        assert totals(checkpoint) == expected(BATCHES - 1)
        assert checkpoint.verify().whole
        saved = hf.Savepoint.create(checkpoint=checkpoint, to=tmp_path / "saved")
    rows = saved.read("sums", "total").read_all()
    assert by_key(rows) == expected(BATCHES - 1)
    assert [file.slot for file in saved.manifest.operator("sums").state("total").files] == [0, 1]


# --- damage


def _newest(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[-1]


def test_a_damaged_snapshot_costs_the_next_way_and_verify_names_it(folded: Recorded) -> None:
    handle = folded.handles[-1]
    assert len(handle.snapshots) == 2
    manifest = json.loads((folded.slot / handle.snapshots[0].name).read_bytes())
    table = folded.slot / next(name for *_, name in manifest["files"] if name.endswith(".sst"))
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with folded.open() as checkpoint:
        found = checkpoint.verify()
        assert not found.whole
        assert table.name in found.damaged[0].name and "checksum" in found.damaged[0].problem
    assert found.readable and found.lost
    for batch_id in range(BATCHES):
        with folded.open() as checkpoint:
            if batch_id in found.readable:
                assert totals(checkpoint, batch_id) == expected(batch_id)
                continue
            with pytest.raises(Corrupt, match="every way is damaged"):
                totals(checkpoint, batch_id)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_lost_delta_loses_the_versions_behind_it_and_no_others(recorded: Recorded, harm: str) -> None:
    delta = sorted((recorded.slot / "delta").iterdir())[2]
    content = bytearray(delta.read_bytes())
    content[100] ^= 1
    if harm == "gone":
        delta.unlink()
    else:
        delta.write_bytes(content if harm == "flip" else content[:-1])
    with recorded.open() as checkpoint:
        found = checkpoint.verify()
        assert found.readable == (0, 1)
        assert sorted(found.lost) == [2, 3, 4, 5]
        assert [damage.name for damage in found.damaged] == [f"{QUERY_ID}/sums/slot-00000/delta/{delta.name}"]
        assert totals(checkpoint, 1) == expected(1)
        with pytest.raises(Corrupt, match=r"000000000003.*missing|damaged"):
            totals(checkpoint)


def test_verify_finds_any_flipped_byte_of_what_is_needed(folded: Recorded) -> None:
    numbers = random.Random(17)
    with folded.open() as checkpoint:
        needed = checkpoint.verify()
        assert needed.whole
        assert needed.files > BATCHES
    paths = [path for path in sorted(folded.slot.rglob("*")) if path.is_file()]
    found = 0
    for path in paths:
        content = path.read_bytes()
        spoilt = bytearray(content)
        spoilt[numbers.randrange(len(spoilt))] ^= 1 << numbers.randrange(8)
        path.write_bytes(spoilt)
        with folded.open() as checkpoint:
            found += not checkpoint.verify().whole
        path.write_bytes(content)
    assert found == needed.files


def test_what_a_running_query_cleaned_away_is_not_damaged(recorded: Recorded) -> None:
    with recorded.open() as checkpoint:
        rows = checkpoint.read("sums", "total", batch_id=0)
        for log in ("commits", "offsets"):
            (recorded.folder / f"checkpoint/{log}/0").unlink()
        for delta in (recorded.slot / "delta").iterdir():
            delta.unlink()
        with pytest.raises(Unavailable, match="batch 0 was cleaned away while it was read"):
            rows.read_all()


# --- Spark's files


def test_handles_that_are_flipped_anywhere_are_refused(recorded: Recorded) -> None:
    path = recorded.folder / "checkpoint/state/0/0/6.delta"
    content = path.read_bytes()
    numbers = random.Random(5)
    for at in {*range(24), *(numbers.randrange(len(content)) for _ in range(100))}:
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << numbers.randrange(8)
        path.write_bytes(spoilt)
        with recorded.open() as checkpoint:
            try:
                assert totals(checkpoint) == expected(5)  # a bit that says nothing, as the level of compression
            except (Corrupt, Incompatible):
                continue
            assert at == 8 or len(content) - 13 <= at, at


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        lz4_stream(b""),
        lz4_stream(struct.pack(">i", 1 << 30)),
        lz4_stream(struct.pack(">i", -5)),
        lz4_stream(struct.pack(">ii", 0, -7)),
        lz4_stream(struct.pack(">i", 0) + struct.pack(">i", 8) + bytes(8)),
        b"LZ4Block" + struct.pack("<BIII", 0x25, 8, 1 << 24, 0) + bytes(8),
        b"LZ4Block" + struct.pack("<BIII", 0x25, 1 << 31, 8, 0),
    ],
)
def test_files_that_spark_did_not_write_are_refused(recorded: Recorded, content: bytes) -> None:
    recorded.spark.write("state/0/0/6.delta", content)
    with recorded.open() as checkpoint, pytest.raises((Corrupt, Incompatible), match="state/0/0"):
        totals(checkpoint)


def test_a_row_whose_field_leads_outside_it_is_refused(recorded: Recorded) -> None:
    row = struct.pack("<QQq", 0, 24 << 32 | 1 << 20, 0)
    content = struct.pack(">i", 8) + bytes(8) + struct.pack(">i", len(row)) + row + struct.pack(">i", -1)
    recorded.spark.write("state/0/0/6.delta", lz4_stream(content))
    with recorded.open() as checkpoint, pytest.raises(Incompatible, match="lies outside it"):
        totals(checkpoint)


def test_a_handle_of_a_slot_comes_once(recorded: Recorded) -> None:
    recorded.spark.commit(5, [recorded.handles[4].to_text(), recorded.handles[5].to_text()])
    with recorded.open() as checkpoint, pytest.raises(Corrupt, match="two handles of operator 'sums', slot 0"):
        totals(checkpoint)


def test_another_programs_state_is_left_alone(recorded: Recorded) -> None:
    described = {
        "operatorInfo": {"operatorId": 1, "operatorName": "applyInPandasWithState"},
        "stateStoreInfo": [{"storeName": "default", "numPartitions": 1}],
    }
    recorded.spark.write("state/1/_metadata/metadata", "v1\n" + json.dumps(described))
    row = state_row("nothing of ours")
    content = struct.pack(">i", 8) + bytes(8) + struct.pack(">i", len(row)) + row + struct.pack(">i", -1)
    for version in range(1, BATCHES + 1):
        recorded.spark.write(f"state/1/0/{version}.delta", lz4_stream(content))
    with recorded.open() as checkpoint:
        assert totals(checkpoint) == expected(5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression.codec", "zstd"),
        ("encodingFormat", "avro"),
        ("rowChecksum.enabled", "true"),
        ("providerClass", "x.Y"),
    ],
)
def test_state_that_is_not_surely_read_is_left_to_spark(recorded: Recorded, key: str, value: str) -> None:
    from holdfast.inspect.committed import Committed
    from holdfast.spark_files.logs import CommittedBatch

    recorded.spark.plan(5, conf={**CONF, f"spark.sql.streaming.stateStore.{key}": value})
    store = open_file_store(str(recorded.folder / "checkpoint"))
    with pytest.raises(InvalidRequest, match=f"{key} is {value}: give a session"):
        Committed(store, None).at(None)
    asked = []

    def spark_reader(batch: CommittedBatch, operator: int) -> list[str]:
        asked.append((batch.batch_id, operator))
        return [recorded.handles[5].to_text()]

    assert Committed(store, spark_reader).at(None).handles["sums"][0] == recorded.handles[5].stored()
    assert asked == [(5, 0)]


def test_xxh32_is_that_of_its_specification() -> None:
    assert xxh32(b"", 0) == 0x02CC5D05
    assert xxh32(b"a", 0) == 0x550D7456
    assert xxh32(b"abc", 0) == 0x32D153FF
    assert xxh32(b"Nobody inspects the spammish repetition", 0) == 0xE2293B2F


def test_streams_of_several_blocks_and_of_several_streams() -> None:
    content = bytes(range(256)) * 1000
    assert decompress(lz4_stream(content, 1000) + lz4_stream(content), "x", 1 << 20) == content * 2
    compressed = pa.Codec("lz4_raw").compress(content, asbytes=True)
    header = struct.pack("<BIII", 0x25, len(compressed), len(content), xxh32(content) & 0x0FFFFFFF)
    assert decompress(b"LZ4Block" + header + compressed + lz4_stream(b""), "x", 1 << 20) == content
    with pytest.raises(Corrupt, match="before its last block"):
        decompress(b"LZ4Block" + header + compressed, "x", 1 << 20)


def test_a_few_bytes_that_say_they_are_many_are_not_unpacked() -> None:
    content = lz4_stream(bytes(1 << 20))
    assert decompress(content, "x", 1 << 20) == bytes(1 << 20)
    with pytest.raises(Corrupt, match=r"more than 1048575 bytes"):
        decompress(content, "x", (1 << 20) - 1)


# --- the command


@pytest.fixture
def run(recorded: Recorded) -> Iterator[Any]:
    def invoke(command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["checkpoints", command, str(recorded.folder / "checkpoint"), *arguments])

    yield invoke


def test_command_lists_and_shows(run: Any) -> None:
    listed = run("list")
    assert listed.exit_code == 0
    assert listed.output.splitlines()[0].split() == ["batch", "time", "watermark", "slots", "size"]
    assert len(listed.output.splitlines()) == 1 + BATCHES
    told = json.loads(run("list", "--json").output)
    assert [version["batch_id"] for version in told["versions"]] == list(range(BATCHES))
    assert "reducing  sum       value int64" in run("show").output
    assert json.loads(run("show", "--json").output)["operators"][0]["key_columns"] == {"user": "string"}


def test_command_lists_a_watermark_of_no_year_that_there_is(run: Any, recorded: Recorded) -> None:
    recorded.spark.commit(BATCHES, [recorded.handles[-1].to_text()], watermark_ms=1_767_000_000_000_000)
    assert "  9999-12-31 23:59:59.999Z  " in run("list").output


def test_command_says_by_its_exit_code_that_a_batch_cannot_be_read(run: Any, recorded: Recorded) -> None:
    assert run("list").exit_code == 0
    (recorded.folder / "checkpoint" / "state" / "0" / "0" / f"{BATCHES}.delta").write_bytes(b"torn")
    for more in ([], ["--json"]):
        told = run("list", *more)
        assert told.exit_code == 1 and "is damaged" in told.output


def test_command_reads_and_compares(run: Any, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in run("read", "sums", "total", "--batch", "2", "--json").output.splitlines()]
    assert {row["user"]: row["value"] for row in rows} == expected(2)
    found = run("read", "sums", "total", "--where", "user=user-3", "--columns", "value")
    assert found.output.split() == ["value", "15"]
    into = run("read", "sums", "total", "--to", str(tmp_path / "total.parquet"))
    assert into.output.startswith("15 rows in")
    again = run("read", "sums", "total", "--to", str(tmp_path / "total.parquet"))
    assert (again.exit_code, "File exists" in again.output) == (1, True)
    assert run("diff", "sums", "total", "4", "5").output.count("added") == 1
    wrong = run("read", "sums", "total", "--where", "value=x")
    assert (wrong.exit_code, "expected a int64" in wrong.output) == (1, True)
    assert run("read", "sums").exit_code == 2


@pytest.fixture
def outlived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Spark retains more batches than Holdfast."""
    monkeypatch.setattr("holdfast.testing.harness._RETAINED_BATCHES", 2)  # whose settings keep all
    return Recorded(tmp_path, 2 * BATCHES, settled=True, **FOLDED, **{"snapshot.stateFraction": 0.01})


def test_what_retention_deleted_is_no_damage(outlived: Recorded) -> None:
    with outlived.open() as checkpoint:
        found = checkpoint.verify()
        assert found.whole and found.unretained and found.readable[-1] == 2 * BATCHES - 1
        assert sorted(found.unretained + found.readable) == list(range(2 * BATCHES))
        assert totals(checkpoint) == expected(2 * BATCHES - 1)
        for batch_id in found.readable:
            assert totals(checkpoint, batch_id) == expected(batch_id)
    with outlived.open() as checkpoint:  # anew: a version that was read may lead to one before it
        for batch_id in found.unretained:
            with pytest.raises(Unavailable, match=rf"batch {batch_id} .*no longer retained by Holdfast"):
                totals(checkpoint, batch_id)
            with pytest.raises(Unavailable, match=rf"batch {batch_id} .*no longer retained by Holdfast"):
                checkpoint.diff("sums", "total", batch_id).read_all()
            with pytest.raises(Unavailable, match=rf"batch {batch_id} .*no longer retained by Holdfast"):
                checkpoint.diff("sums", "total", found.readable[-1], batch_id).read_all()
        with pytest.raises(Unavailable, match="no longer retained by Holdfast"):
            hf.Savepoint.create(checkpoint=checkpoint, to=outlived.folder / "saved", batch_id=found.unretained[0])
        assert not checkpoint.gc().kept
        repairs = checkpoint.repair()
        assert repairs.verification.whole and not repairs.files
    told = CliRunner().invoke(main, ["checkpoints", "verify", str(outlived.folder / "checkpoint")])
    assert (told.exit_code, "no longer retained by Holdfast" in told.output) == (0, True)
    told = CliRunner().invoke(main, ["checkpoints", "list", str(outlived.folder / "checkpoint")])
    assert told.exit_code == 0, told.output


def test_damage_is_damage_whatever_retention_deleted(outlived: Recorded) -> None:
    with outlived.open() as checkpoint:
        unretained = checkpoint.verify().unretained
    floor = outlived.handles[-1].floor
    refs = {ref.name for one in outlived.handles for ref in one.snapshots if ref.sequence >= floor}
    named = {name.rpartition("-")[2].removesuffix(".json") for name in refs}
    deltas = [path for path in outlived.slot.glob("delta/*") if int(path.name.partition("-")[0]) > floor]
    others = (path for path in outlived.slot.rglob("s*/*") if any(name in path.name for name in named))
    paths = [*deltas, *others]
    assert {path.parent.name for path in paths} == {"delta", "snapshot", "sst"}
    for path in paths:
        content = path.read_bytes()
        for change in ("missing", "torn"):
            path.unlink() if change == "missing" else path.write_bytes(content[:-1])
            with outlived.open() as checkpoint:
                found = checkpoint.verify()
            path.write_bytes(content)
            assert path.name in str(found.damaged), (path, change)
            assert not set(found.unretained) - set(unretained), (path, change)


def test_command_verifies(run: Any, recorded: Recorded) -> None:
    whole = run("verify")
    assert (whole.exit_code, "6 of 6 batches can be restored" in whole.output) == (0, True)
    sorted((recorded.slot / "delta").iterdir())[-1].unlink()
    lost = run("verify")
    assert (lost.exit_code, "5 of 6 batches can be restored" in lost.output) == (1, True)
    told = json.loads(run("verify", "--json").output)
    assert (told["whole"], sorted(told["lost"])) == (False, ["5"])
