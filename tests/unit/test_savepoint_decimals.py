"""Decimals in tables that are given as a savepoint's: each value is the one that was given, or it is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import holdfast as hf
from holdfast.cli import main
from holdfast.cli.checkpoints import give
from holdfast.cli.rows import condition
from holdfast.errors import Incompatible, InvalidRequest

WIDE, CENTS = pa.decimal128(38, 18), pa.decimal128(10, 2)
#: Times 10^18 it is no number of 128 bits any more, and what is left of the product is less than 10^38.
WRAPS = Decimal("350000000000000000000")


class Prices(hf.KeyedProcessor):
    price = hf.ValueState(WIDE)
    cents = hf.ValueState(CENTS)
    by_price = hf.MapState(WIDE, WIDE)
    nested = hf.ValueState(pa.struct([("prices", pa.list_(WIDE))]))

    def process(self, key: hf.Key, rows: Any, context: hf.Context) -> None: ...


def written(folder: Path, state: str, columns: dict[str, Any], key: pa.DataType | None = None) -> hf.Savepoint:
    schema = pa.schema([("user", key or pa.string())])
    made = hf.Savepoint.write(
        folder, hf.OperatorTables("kept", {state: pa.table(columns)}, processor=Prices, key=schema)
    )
    assert isinstance(made, hf.Savepoint)
    return made


def decimals(*values: Any, scale: int = 0) -> pa.Array:
    return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal128(38, scale))


USERS = pa.array(["a"])


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("price", {"user": USERS, "value": decimals(WRAPS)}),
        ("by_price", {"user": USERS, "map_key": decimals(WRAPS), "value": decimals(1)}),
        ("by_price", {"user": USERS, "map_key": decimals(1), "value": decimals(WRAPS)}),
        ("cents", {"user": USERS, "value": decimals("1.005", scale=3)}),
        ("cents", {"user": USERS, "value": pa.array([10**8])}),
        (
            "nested",
            {
                "user": USERS,
                "value": pa.StructArray.from_arrays(
                    [pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), decimals(WRAPS))], ["prices"]
                ),
            },
        ),
    ],
)
def test_a_decimal_that_does_not_fit_is_refused_and_never_another(
    tmp_path: Path, state: str, columns: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest, match="within rows 0 to 0"):
        written(tmp_path / "made", state, columns)


def test_a_key_that_does_not_fit_is_refused_and_never_another(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="column 'user', within rows 0 to 0"):
        written(tmp_path / "made", "price", {"user": decimals(WRAPS), "value": decimals(1)}, key=WIDE)


@pytest.mark.parametrize(
    "given",
    [decimals(7, -12), decimals("7.00000", "-12.00000", scale=5), pa.array([7, -12])] + [pa.array([7, -12], pa.int8())],
)
def test_integers_and_other_decimals_are_taken_where_they_fit(tmp_path: Path, given: pa.Array) -> None:
    for state in ("cents", "price"):
        made = written(tmp_path / state, state, {"user": pa.array(["a", "b"]), "value": given})
        rows = made.read("kept", state).read_all()
        found = dict(zip(rows["user"].to_pylist(), rows["value"].to_pylist()))
        assert found == {"a": Decimal(7), "b": Decimal(-12)}


@pytest.mark.parametrize("value", [str(WRAPS), "1e90", "0.0000000000000000001", "NaN", "Infinity", "many", ""])
def test_a_condition_on_a_decimal_is_on_the_number_that_was_said(value: str) -> None:
    with pytest.raises(InvalidRequest, match="expected a decimal128.* after '='"):
        condition(pa.schema([("price", WIDE)]), [f"price={value}"])


@pytest.mark.parametrize("value", ["4.81", "4.810000", "481e-2"])
def test_a_condition_finds_the_number_however_it_is_spelled(value: str) -> None:
    rows = pa.table({"price": decimals("4.80", "4.81", None, scale=18)})
    assert rows.filter(condition(rows.schema, [f"price={value}"])).num_rows == 1


class Odd(hf.KeyedProcessor):
    hundreds = hf.ValueState(pa.decimal128(10, -2))
    fractions = hf.ValueState(pa.decimal128(3, 5))
    huge = hf.ValueState(pa.decimal128(38, -2))
    tiny = hf.ValueState(pa.decimal128(5, 40))

    def process(self, key: hf.Key, rows: Any, context: hf.Context) -> None: ...


def of_units(number: int, type: pa.DataType) -> pa.Array:
    return pa.array([Decimal(number)], pa.decimal128(type.precision, 0)).view(type)


@pytest.mark.parametrize(("state", "type"), [("huge", pa.decimal128(38, -2)), ("tiny", pa.decimal128(5, 40))])
def test_a_decimal_that_parquet_has_no_room_for_is_refused_with_a_way_on(
    tmp_path: Path, state: str, type: pa.DataType
) -> None:
    rows = pa.table({"user": USERS, "value": of_units(7, type)})
    tables = hf.OperatorTables("kept", {state: rows}, processor=Odd, key=pa.schema([("user", pa.string())]))
    with pytest.raises(Incompatible, match=r"column 'value'.*expected.*38 digits.*found decimal128.*native"):
        hf.Savepoint.write(tmp_path / "made", tables)


@pytest.mark.parametrize(
    ("state", "type", "stored"),
    [
        ("hundreds", pa.decimal128(10, -2), pa.decimal128(12, 0)),
        ("fractions", pa.decimal128(3, 5), pa.decimal128(5, 5)),
    ],
)
@pytest.mark.parametrize("number", [0, 3, -999])
def test_a_savepoint_has_hundreds_and_small_fractions_as_parquet_can(
    tmp_path: Path, state: str, type: pa.DataType, stored: pa.DataType, number: int
) -> None:
    value = of_units(number, type)
    rows = pa.table({"user": USERS, "value": value})
    tables = hf.OperatorTables("kept", {state: rows}, processor=Odd, key=pa.schema([("user", pa.string())]))
    made = hf.Savepoint.write(tmp_path / "made", tables)
    assert isinstance(made, hf.Savepoint)
    (file,) = (tmp_path / "made").rglob("*.parquet")
    assert pq.read_table(file)["value"].type == stored
    found = made.read("kept", state).read_all()["value"]
    assert found.type == type
    assert found.to_pylist() == value.to_pylist() == [Decimal(number).scaleb(-type.scale)]


@pytest.mark.parametrize(("state", "type"), [("hundreds", pa.decimal128(10, -2)), ("fractions", pa.decimal128(3, 5))])
def test_rows_of_hundreds_and_small_fractions_go_into_a_file(tmp_path: Path, state: str, type: pa.DataType) -> None:
    """It ended in a traceback."""
    value = of_units(3, type)
    rows = pa.table({"user": USERS, "value": value})
    tables = hf.OperatorTables("kept", {state: rows}, processor=Odd, key=pa.schema([("user", pa.string())]))
    hf.Savepoint.write(tmp_path / "made", tables)
    arguments = ["savepoint", "read", f"{tmp_path / 'made'}", "kept", state, "--to", f"{tmp_path / 'rows.parquet'}"]
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 0, told.output
    assert pq.read_table(tmp_path / "rows.parquet")["value"].to_pylist() == value.to_pylist()


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array([], pa.decimal128(38, -2)), "column 'n': expected decimals that Parquet can hold"),
        (pa.array([2**62], pa.int64()).view(pa.timestamp("s")), "column 'n' has a value that Parquet does not hold"),
        (pa.array([{}], pa.struct([])), "column 'n' has a struct without fields"),
    ],
    ids=["decimal", "time", "struct"],
)
def test_what_a_file_cannot_hold_is_refused_by_its_column(tmp_path: Path, column: pa.Array, told: str) -> None:
    rows = pa.RecordBatchReader.from_batches(pa.schema([("n", column.type)]), [pa.record_batch({"n": column})])
    with pytest.raises(Incompatible, match=told):
        give(rows, None, str(tmp_path / "rows.parquet"), False)
    assert not list(tmp_path.iterdir())
