"""Rows on a terminal: aligned for people, a JSON object a line for machines. Values as their types say them."""

from __future__ import annotations

import base64
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cli.values import IsoTime, python_values
from holdfast.errors import InvalidRequest
from holdfast.inspect.descriptions import Unneeded

_CELL_WIDTH_MAX = 60
#: Rows that a person is shown who says nothing of a limit.
_SHOWN = 20
_TAKEN = 1024


def aligned(header: Sequence[str], rows: Iterable[Sequence[Any]], width_max: int | None = _CELL_WIDTH_MAX) -> str:
    """Columns under their names, numbers to the right. ``width_max``: of a cell, whose rest is left out."""
    cells = [[_cell(value, width_max) for value in row] for row in rows]
    right = [all(row[at][1] for row in cells) and bool(cells) for at in range(len(header))]
    widths = [max(len(name), *(len(row[at][0]) for row in cells), 0) for at, name in enumerate(header)]
    lines = [[*header], *([text for text, _ in row] for row in cells)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(line, widths, right)
        ).rstrip()
        for line in lines
    )


def files_by_folder(files: Iterable[Unneeded]) -> str:
    """A line for each folder and reason: what a person can take in."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for file in files:
        groups[file.name.rpartition("/")[0] or ".", file.reason].append(file.size_bytes)
    rows = [[folder, len(sizes), size(sum(sizes)), why] for (folder, why), sizes in sorted(groups.items())]
    return aligned(["folder", "files", "size", "why"], rows, width_max=None)


def json_line(row: Mapping[str, Any]) -> str:
    """One JSON object. Times are ISO 8601, bytes base64, decimals texts; NaN and infinities are texts too."""
    return json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A Python value of an Arrow column as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (datetime, date, time, IsoTime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def condition(schema: pa.Schema, given: Sequence[str]) -> pc.Expression | None:
    """``column=value`` texts, all of which must hold; None: there are none.

    Raises
    ------
    InvalidRequest
        No such column, or a value that is none of its type.
    """
    wanted: pc.Expression | None = None
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in schema.names:
            raise InvalidRequest(
                f"--where {text!r}: expected COLUMN=VALUE, where COLUMN is of {', '.join(schema.names)}"
            )
        type = schema.field(name).type
        try:
            scalar = _scalar(value, type)
        except (pa.ArrowException, ArithmeticError, ValueError) as error:
            kind = f"{type} in base64" if _is_bytes(type) else type
            raise InvalidRequest(f"--where {text!r}: expected a {kind} after '=': {error}") from None
        # It equals nothing, and is a key like others.
        is_nan = pa.types.is_floating(type) and math.isnan(scalar.as_py())
        one = pc.is_nan(pc.field(name)) if is_nan else pc.field(name) == scalar
        wanted = one if wanted is None else wanted & one
    return wanted


def _scalar(text: str, type: pa.DataType) -> pa.Scalar:
    if _is_bytes(type):
        return pa.scalar(_bytes(text), type)
    # Of texts with more digits than a decimal has Arrow makes others, without a word.
    return pa.scalar(Decimal(text), type) if pa.types.is_decimal(type) else pa.scalar(text).cast(type)


def _is_bytes(type: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(is_one(type) for is_one in kinds)


def _bytes(text: str) -> bytes:
    """Of base64 as :func:`plain` writes it; ValueError for any other text."""
    found = base64.b64decode(text, validate=True)
    if base64.b64encode(found).decode() != text:
        raise ValueError(f"{base64.b64encode(found).decode()!r} is how its bytes are written")
    return found


def show_table(rows: Iterable[pa.RecordBatch], limit: int | None, as_json: bool) -> None:
    """Prints the first rows; without a limit all of them for machines, some for people."""
    if limit is None and not as_json:
        limit = _SHOWN
    parts = (batch[at : at + _TAKEN] for batch in rows for at in range(0, batch.num_rows, _TAKEN))
    found = (row for part in parts for row in _rows(part))
    shown: list[dict[str, Any]] = []
    for number, row in enumerate(islice(found, limit if limit is None else limit + 1)):
        if number == limit:
            if not as_json:
                click.echo(aligned([*shown[0]], [list(one.values()) for one in shown]))
            click.echo(f"the first {limit} rows; --limit gives more, --to all of them into a file", err=True)
            return
        if as_json:
            click.echo(json_line(row))
        else:
            shown.append(row)
    if shown:
        click.echo(aligned([*shown[0]], [list(one.values()) for one in shown]))


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for row in zip(*map(_values, batch.schema.names, batch.columns)):
        yield dict(zip(batch.schema.names, row))


def _values(name: str, column: pa.Array) -> list[Any]:
    try:
        return python_values(column)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"column {name!r}: a value of {column.type} has no Python value ({error}); --to writes all rows into a file"
        ) from None


def size(count: int) -> str:
    """Bytes for people."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def instant(ms: int | None) -> str:
    """A time for people, in UTC. What no datetime holds, as the watermark of a broken row, is the last one."""
    if ms is None:
        return "-"
    try:
        found = datetime(1970, 1, 1) + timedelta(milliseconds=ms)
    except OverflowError:
        found = datetime.max if ms > 0 else datetime.min
    return found.isoformat(sep=" ", timespec="milliseconds") + "Z"


def _cell(value: Any, width_max: int | None) -> tuple[str, bool]:
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if value is None:
        return "-", True
    text = value if isinstance(value, str) else str(value) if number else json.dumps(plain(value), ensure_ascii=False)
    if isinstance(value, (datetime, date, time, IsoTime)):
        text = value.isoformat(sep=" ") if isinstance(value, (datetime, IsoTime)) else value.isoformat()
    elif isinstance(value, bytes):
        text = plain(value)  # as --where takes it
    text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return (text if width_max is None or len(text) <= width_max else text[: width_max - 1] + "…"), number
