"""Rows on a terminal: some for people, who are told of more, all for machines."""

from __future__ import annotations

import io
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import holdfast as hf
from holdfast.cli import main
from holdfast.cli.rows import condition, show_table
from holdfast.cli.values import _day
from holdfast.errors import InvalidRequest

OPERATOR, STATE = "totals", "total"


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 30 keys."""
    folder: Path = tmp_path_factory.mktemp("rows") / "saved"
    rows = pa.table({"user": [f"u{number}" for number in range(30)], "value": range(30)})
    hf.Savepoint.write(folder, hf.OperatorTables(OPERATOR, {STATE: rows}, processor=Total, key="user string"))
    return folder


@pytest.mark.parametrize(
    ("given", "shown", "is_all"),
    [
        ([], 20, False),
        (["--limit", "29"], 29, False),
        (["--limit", "30"], 30, True),
        (["--limit", "31"], 30, True),
        (["--json"], 30, True),
        (["--json", "--limit", "7"], 7, False),
        (["--json", "--limit", "30"], 30, True),
    ],
)
def test_who_is_not_shown_all_is_told_so(saved: Path, given: list[str], shown: int, is_all: bool) -> None:
    told = CliRunner().invoke(main, ["savepoint", "read", str(saved), OPERATOR, STATE, *given])
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    if "--json" in given:
        values = [json.loads(line)["value"] for line in lines]
    else:
        values = [int(line.split()[lines[0].split().index("value")]) for line in lines[1:]]
    assert len(values) == len(set(values)) == shown and set(values) <= set(range(30))
    assert ("--limit gives more" in told.stderr) is not is_all


def test_all_of_them_into_a_file(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    told = CliRunner().invoke(main, ["savepoint", "read", str(saved), OPERATOR, STATE, "--to", str(target)])
    assert told.exit_code == 0, told.output
    assert sorted(pq.read_table(target)["value"].to_pylist()) == list(range(30))


MS = 1_700_000_000_000  # of 2023; taken for seconds it is of the year 55840
TIMES = [
    (pa.timestamp("us", "UTC"), [MS * 1000, MS * 10**6], ["2023-11-14T22:13:20+00:00", "+55840-11-08T22:13:20+00:00"]),
    (pa.timestamp("ms"), [MS + 7, -MS * 40], ["2023-11-14T22:13:20.007000", "-0185-03-02T23:06:40"]),
    (pa.timestamp("s", "Europe/Berlin"), [0, MS], ["1970-01-01T01:00:00+01:00", "+55840-11-08T22:13:20+00:00"]),
    (pa.timestamp("ns"), [MS * 10**6, MS * 10**6 + 1], ["2023-11-14T22:13:20", "2023-11-14T22:13:20.000000001"]),
    (pa.date32(), [-719_163, 2_932_897], ["0000-12-31", "+10000-01-01"]),
    (pa.date64(), [86_400_000, 86_400_000 * 10**7], ["1970-01-02", "+29349-01-26"]),
    (pa.time64("ns"), [3_600_000_001_000, 1], ["01:00:00.000001", "00:00:00.000000001"]),
    (pa.duration("ns"), [1_500_000_000, 1], [1.5, 1e-9]),
    (pa.duration("s"), [60, 2**62], [60.0, float(2**62)]),
]


@pytest.mark.parametrize(("kind", "numbers", "told"), TIMES, ids=[str(kind) for kind, *_ in TIMES])
def test_times_that_python_has_none_for_are_told(
    capsys: pytest.CaptureFixture[str], kind: pa.DataType, numbers: list[int], told: list[Any]
) -> None:
    times = pa.array(numbers, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
    lists = pa.ListArray.from_arrays([0, 1, 2], times)
    maps = pa.MapArray.from_arrays([0, 1, 2], times, times)
    structs = pa.StructArray.from_arrays([times, lists], names=["at", "all"])
    batch = pa.record_batch({"time": times, "list": lists, "map": maps, "struct": structs})
    show_table([batch, pa.record_batch([pa.nulls(1, field.type) for field in batch.schema], batch.schema)], None, True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [
        *({"time": at, "list": [at], "map": [[at, at]], "struct": {"at": at, "all": [at]}} for at in told),
        dict.fromkeys(batch.schema.names),
    ]
    show_table([batch], None, False)
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.strip().startswith(str(at).replace("T", " ")) for line, at in zip(lines, told)] == [True, True]
    assert all(json.dumps([at]) in line for line, at in zip(lines, told))


def test_a_day_of_any_year_is_that_of_the_calendar() -> None:
    first, last = date.min.toordinal(), date.max.toordinal()
    days = [*range(first, last, 97), last]
    wanted = [date.fromordinal(day).isoformat() for day in days]
    epoch = date(1970, 1, 1).toordinal()
    assert [_day(day - epoch) for day in days] == wanted


@pytest.mark.parametrize("given", [[], ["--json"], ["--where", "user=ada"]])
def test_a_savepoint_with_a_time_of_no_year_of_pythons_is_read(tmp_path: Path, given: list[str]) -> None:
    class Seen(hf.BatchProcessor):
        seen = hf.ValueState(pa.timestamp("us", "UTC"))

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            pass

    rows = pa.table({"user": ["ada"], "value": pa.array([MS * 10**6], pa.timestamp("us", "UTC"))})
    folder = tmp_path / "saved"
    hf.Savepoint.write(folder, hf.OperatorTables(OPERATOR, {"seen": rows}, processor=Seen, key="user string"))
    told = CliRunner().invoke(main, ["savepoint", "read", str(folder), OPERATOR, "seen", *given])
    assert told.exit_code == 0, told.output
    assert "+55840-11-08" in told.stdout


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8"])
def test_keys_of_any_script_are_written_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoding: str
) -> None:
    rows = pa.table({"user": ["日本", "Zoë"], "value": [1, 2]})
    hf.Savepoint.write(
        tmp_path / "saved", hf.OperatorTables(OPERATOR, {STATE: rows}, processor=Total, key="user string")
    )

    def written(*given: str) -> bytes:
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stdout)
        main.main(["savepoint", "read", str(tmp_path / "saved"), OPERATOR, STATE, *given], standalone_mode=False)
        stdout.flush()
        return stdout.buffer.getvalue()  # type: ignore[attr-defined]

    users = [json.loads(line)["user"] for line in written("--json").decode("utf-8").splitlines()]
    assert sorted(users) == ["Zoë", "日本"]
    table = written()
    if encoding in ("latin-1", "cp1252"):
        assert "Zoë".encode(encoding) in table
        assert rb"\u65e5\u672c" in table
    else:  # click itself writes UTF-8 where Python was told ASCII
        assert "日本".encode() in table


SHOWN = [
    pa.array([b"\x00\xff\xfe"]),
    pa.array([b"AP8="]),
    pa.array([b""]),
    pa.array([b"\x00\xff"], pa.binary(2)),
    pa.array([b"\xff" * 3], pa.large_binary()),
    pa.array([float("nan")]),
    pa.array([float("-inf")]),
    pa.array([0.1], pa.float32()),
    pa.array([2**63], pa.uint64()),
    pa.array([MS * 1000 + 7]).view(pa.timestamp("us", "UTC")),
    pa.array([MS]).view(pa.timestamp("ms", "Europe/Berlin")),
    pa.array([1], pa.int32()).view(pa.date32()),
    pa.array(["a=b"]),
]


@pytest.mark.parametrize("given", SHOWN, ids=[f"{number}-{column.type}" for number, column in enumerate(SHOWN)])
def test_a_row_is_found_by_what_is_shown_of_it(capsys: pytest.CaptureFixture[str], given: pa.Array) -> None:
    """A key of bytes was sought by the bytes of its base64, and not found."""
    rows = pa.table({"key": pa.concat_arrays([given, pa.nulls(1, given.type)])})
    show_table(rows.slice(0, 1).to_batches(), None, True)
    text = json.loads(capsys.readouterr().out)["key"]
    show_table(rows.slice(0, 1).to_batches(), None, False)
    cell = "".join(capsys.readouterr().out.splitlines()[1:]).strip()
    for shown in (text, cell):
        assert rows.filter(condition(rows.schema, [f"key={shown}"])).num_rows == 1


@pytest.mark.parametrize("text", ["ab", "AP9=", "A P8=", "AP8", "AP8=\n", "_-8=", "é", "AP8=AP8="])
def test_a_text_that_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="expected a binary in base64 after '='"):
        condition(pa.schema([("key", pa.binary())]), [f"key={text}"])
