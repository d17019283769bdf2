"""What processors give, gathered in order and brought to the operator's output schema.

Consecutive pieces of one kind are converted together: a call of Arrow a key would cost more than the key. Until then
nothing that is kept belongs to the processor any more, which may change a row and give it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import copied, one_batch
from holdfast.arrow.nullability import has_required_fields, misplaced_null
from holdfast.errors import InvalidRequest
from holdfast.state.arrays import is_frame, to_array
from holdfast.state.casts import storage_type
from holdfast.state.python_values import NotKept, arrow_of, from_python, keeper, refusal, shown
from holdfast.state.sizes import row_bytes, rows_bytes

#: Rows of up to this much are in no array more than it holds, whatever they become: what is refused of them is wrong.
UNDIVIDED_BYTES = 64 << 20
#: Rows that wait as Python values at once; and of which, in whatever form, it is time to hand over what there is.
ROWS_WAITING_MAX = 10_000
#: So it is of so many bytes. One row in a while is looked at, each one where they are large.
BYTES_WAITING_MAX = 64 << 20
_ROWS_UNSEEN_MAX = 61  # a prime, lest it be a row of the same kind each time
_BYTES_UNSEEN_MAX = 1 << 20


def pieces_of(produced: Iterable[Any]) -> Iterable[Any]:
    """The pieces of an iterable. A generator may not return any: nobody would ever see them, and it looks right."""
    return _yielded(produced) if isinstance(produced, GeneratorType) else produced


def _yielded(produced: GeneratorType[Any, None, Any]) -> Iterator[Any]:
    returned = yield from produced
    if returned is not None and not (isinstance(returned, (list, tuple, dict)) and not returned):
        raise InvalidRequest(
            f"output: {produced.__qualname__} yields, so what it returns is lost; expected no value after return, "
            f"found {shown(returned)}. Yield it too: yield from …; return"
        )


class OutputRows:
    """Pieces of output, in order.

    ``add`` takes all that ``process`` may return or yield; ``drain`` gives record batches.
    ``what`` names the output in errors.
    """

    def __init__(self, schema: pa.Schema, what: str = "output") -> None:
        self._schema = schema
        self._what = what
        self._names: list[str] = schema.names
        self._width = len(schema)
        #: Of the columns whose values Python can change: what the type keeps of a value is a copy.
        self._keepers = {at: keeper(field.type) for at, field in enumerate(schema) if _is_mutable(field.type)}
        self._required = {at for at, field in enumerate(schema) if has_required_fields(field.type)}
        self._grows = any(not is_type.is_primitive(storage_type(field.type)) for field in schema)
        self._kind: type | None = None
        self._pieces: list[Any] = []  # all of self._kind, waiting to be converted
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0  # since the last drain
        self._bytes = 0  # about, of these
        self._looks = 0  # at pieces
        self._seen_rows = self._look_at_rows = 0  # how many there were, and will be, when one is looked at

    @property
    def is_full(self) -> bool:
        """Whether there is so much that it should be drained before more comes."""
        return self._rows >= ROWS_WAITING_MAX or self._bytes >= BYTES_WAITING_MAX

    def add(self, produced: Any) -> None:
        """Takes one piece, or an iterable of pieces.

        Raises
        ------
        InvalidRequest
            Something that is no row or rows, a missing or extra column, a value that does not fit its column.
        """
        kind = self._kind_of(produced)
        if kind is not None:
            self._add_piece(produced, kind)
        elif produced is not None:
            if isinstance(produced, (str, bytes)) or not isinstance(produced, Iterable):
                raise self._no_rows(produced)
            for piece in pieces_of(produced):
                kind = self._kind_of(piece)
                if kind is not None:
                    self._add_piece(piece, kind)
                elif isinstance(piece, list):
                    self.add(piece)
                elif piece is not None:
                    raise self._no_rows(piece)

    def drain(self) -> list[pa.RecordBatch]:
        """All rows since the last call, in the output schema, in batches that are not empty."""
        self._convert()
        batches, self._batches = self._batches, []
        self._rows = self._bytes = self._seen_rows = self._look_at_rows = 0
        return batches

    def _kind_of(self, piece: Any) -> type | None:
        found: type = type(piece)
        if found is dict or found is tuple or found is pa.RecordBatch or found is pa.Table:
            return found
        if is_frame(piece):
            return found
        return tuple if isinstance(piece, tuple) else dict if isinstance(piece, dict) else None

    def _add_piece(self, piece: Any, kind: type) -> None:
        if kind is not self._kind or len(self._pieces) >= ROWS_WAITING_MAX:
            self._convert()
            self._kind = kind
        if kind is dict or kind is tuple:
            row = self._row(piece, kind)
            self._pieces.append(row)
            self._rows += 1
            if self._rows >= self._look_at_rows and self._grows:
                self._look_at(rows_bytes(row))
            return
        if not len(piece) and not len(piece.columns):
            return  # made of an empty list: there was no row to say which columns there are
        self._rows += len(piece)
        if self._rows >= self._look_at_rows and len(piece):
            self._look_at(row_bytes(piece, self._looks))
            self._looks += 1
        if kind is pa.RecordBatch or kind is pa.Table:
            self._pieces.append(piece)
        else:
            self._pieces.append(piece.copy())
            if self._keepers:  # a frame's copy shares the lists in its cells
                self._convert()

    def _look_at(self, bytes_each: float) -> None:
        """Takes the rows since the last look to be as large as those of this piece, and says when to look again."""
        bytes_each = max(bytes_each, 1)
        self._bytes += int(bytes_each * (self._rows - self._seen_rows))
        self._seen_rows = self._rows
        self._look_at_rows = self._rows + max(1, min(int(_BYTES_UNSEEN_MAX / bytes_each), _ROWS_UNSEEN_MAX))

    def _convert(self) -> None:
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return
        if self._kind is dict or self._kind is tuple:
            self._convert_by(self._from_rows, pieces)
        elif self._kind is pa.RecordBatch or self._kind is pa.Table:
            for same in _runs(pieces, lambda piece: piece.schema):
                self._convert_by(self._from_arrow, same)
        else:
            for same in _runs(pieces, lambda piece: (list(piece.columns), list(piece.dtypes))):
                self._convert_by(self._from_frames, same)

    def _convert_by(self, convert: Callable[[list[Any]], list[pa.RecordBatch]], pieces: list[Any]) -> None:
        """All together, or by halves where that is refused and is so much that it may be more than one array holds."""
        parts = [pieces]
        while parts:
            some = parts.pop()
            try:
                self._batches += convert(some)
            except MemoryError:
                raise
            except (InvalidRequest, pa.ArrowException) as error:
                halves = _halves(some) if sum(map(rows_bytes, some)) > UNDIVIDED_BYTES else []
                parts += reversed(halves)
                if halves:
                    continue
                if isinstance(error, InvalidRequest):
                    raise
                raise InvalidRequest(f"{self._what}: expected rows that one array holds: {error}") from None

    def _batch_of(self, columns: list[pa.Array]) -> list[pa.RecordBatch]:
        if columns and not len(columns[0]):
            return []
        self._check_nulls(columns)
        return [pa.RecordBatch.from_arrays(columns, schema=self._schema)]

    def _check_nulls(self, columns: list[pa.Array]) -> None:
        for at, (field, column) in enumerate(zip(self._schema, columns)):
            if not field.nullable and column.null_count:
                raise InvalidRequest(
                    f"{self._column(at)}: expected {field.type} without nulls, found {column.null_count} nulls"
                )
            inner = misplaced_null(column) if at in self._required else None
            if inner is not None:
                raise InvalidRequest(
                    f"{self._column(at)}: expected {field.type}, found null in {field.name}.{inner}, which has none by "
                    "its type"
                )

    def _row(self, piece: Any, kind: type) -> tuple[Any, ...]:
        """A row's values by position, as they are now."""
        if kind is dict:
            if len(piece) != self._width:
                self._check_names(list(piece), "a dict")
            try:
                row = tuple([piece[name] for name in self._names])
            except KeyError:
                self._check_names(list(piece), "a dict")
                raise
        else:
            self._check_tuple(piece)
            row = piece
        return self._kept(row) if self._keepers else row

    def _kept(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for at, keep in self._keepers.items():
            try:
                values[at] = keep(values[at])
            except NotKept as reason:
                raise refusal(self._column(at), self._schema.field(at).type, values[at], reason) from None
        return tuple(values)

    def _check_tuple(self, row: tuple[Any, ...]) -> None:
        if type(row) is not tuple:  # namedtuple, and pyspark's Row, know their names: positions must agree
            names = getattr(row, "_fields", None) or getattr(row, "__fields__", None)
            if names is not None and list(names) != self._names:
                raise InvalidRequest(
                    f"{self._what}: expected the columns {', '.join(self._names)} in this order, found a row of "
                    f"{', '.join(names)}"
                )
        if len(row) != self._width:
            raise InvalidRequest(
                f"{self._what}: expected tuples of {self._width} values ({', '.join(self._names)}), found "
                f"{len(row)}: {row!r}"
            )

    def _from_rows(self, rows: list[tuple[Any, ...]]) -> list[pa.RecordBatch]:
        return self._batch_of(
            [
                arrow_of(column, storage_type(field.type), self._column(at))
                if at in self._keepers
                else from_python(column, field.type, self._column(at))
                for at, (field, column) in enumerate(zip(self._schema, map(list, zip(*rows))))
            ]
        )

    def _column(self, at: int) -> str:
        return f"{self._what} column {self._names[at]!r}"

    def _from_arrow(self, pieces: list[Any]) -> list[pa.RecordBatch]:
        found: pa.Schema = pieces[0].schema
        batches: list[pa.RecordBatch] = []
        if found.equals(self._schema):
            for batch in _batches(pieces):
                if batch.num_rows:
                    self._check_nulls(batch.columns)
                    batches.append(batch)
            return batches
        self._check_names(found.names, "a batch")
        whole = pa.concat_tables(pieces) if isinstance(pieces[0], pa.Table) else pa.Table.from_batches(pieces)
        columns = [whole.column(found.get_field_index(name)) for name in self._names]
        return self._batch_of(self._cast_columns(columns))

    def _from_frames(self, frames: list[Any]) -> list[pa.RecordBatch]:
        import pandas

        whole = frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
        self._check_names([str(name) for name in whole.columns], "a frame")
        return self._batch_of(self._cast_columns([whole[name] for name in self._names]))

    def _cast_columns(self, columns: list[Any]) -> list[pa.Array]:
        return [
            to_array(column, field.type, f"{self._what} column {field.name!r}")
            for field, column in zip(self._schema, columns)
        ]

    def _check_names(self, found: list[str], what: str) -> None:
        expected = ", ".join(self._names)
        for name in self._names:
            if name not in found:
                raise InvalidRequest(
                    f"{self._what} column {name!r} is missing: expected {expected}, found {what} of "
                    f"{', '.join(map(str, found)) or 'no columns'}"
                )
        for name in found:
            if name not in self._names or found.count(name) > 1:
                raise InvalidRequest(
                    f"{self._what} has an extra column {name!r}: expected {expected}, found {what} of "
                    f"{', '.join(map(str, found))}; drop it, or add it to the operator's output schema"
                )

    def _no_rows(self, found: Any) -> InvalidRequest:
        return InvalidRequest(
            f"{self._what}: expected a dict, a tuple, a record batch, a table or a frame with the columns "
            f"{', '.join(self._names)}, found {type(found).__name__} {found!r}"
        )


def _is_mutable(type: pa.DataType) -> bool:
    """Whether Python's values of this type can be changed: lists, dicts, bytearrays."""
    families = (is_type.is_nested, is_type.is_binary, is_type.is_large_binary, is_type.is_fixed_size_binary)
    return any(family(storage_type(type)) for family in families)


def _batches(pieces: list[Any]) -> list[pa.RecordBatch]:
    """Batches, or tables, of the output's schema as few batches; the only one as it is."""
    if isinstance(pieces[0], pa.RecordBatch):
        return [one_batch(pieces)]
    batches: list[pa.RecordBatch] = pa.concat_tables(pieces).combine_chunks().to_batches()
    return batches


def _halves(pieces: list[Any]) -> list[list[Any]]:
    """Two lists of half the pieces each, or of half the rows of the only one; none of one row."""
    if len(pieces) > 1:
        return [pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]]
    [piece] = pieces
    if isinstance(piece, tuple) or len(piece) < 2:
        return []
    middle = len(piece) // 2
    if is_frame(piece):
        return [[piece.iloc[:middle]], [piece.iloc[middle:]]]
    batches = piece.to_batches() if isinstance(piece, pa.Table) else [piece]
    if len(batches) > 1:
        return _halves(batches)
    return [[copied(batches[0][:middle])], [copied(batches[0][middle:])]]  # casts refuse the rows around for their size


def _runs(pieces: list[Any], shape: Any) -> Iterable[list[Any]]:
    """Runs of pieces of one shape: only those can be put together without changing a type."""
    run: list[Any] = []
    last: Any = None
    for piece in pieces:
        now = shape(piece)
        if run and now != last:
            yield run
            run = []
        run.append(piece)
        last = now
    yield run
