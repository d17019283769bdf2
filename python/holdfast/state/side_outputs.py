"""Side outputs: further streams that one operator gives, each under a tag and with a schema of its own; and all outputs
of an operator at work, the main one among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.state.outputs import OutputRows

#: Names the main output where outputs stand side by side.
MAIN = "main"
SIDE_OUTPUTS_MAX = 250
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

#: Rows, and the side output that they are for; None: the main one.
TaggedRows: TypeAlias = tuple[str | None, pa.RecordBatch]


@dataclass(frozen=True)
class SideOutput:
    """A tag: names a stream beside the main output of an operator, as Flink's OutputTag does.

    ``rejected = hf.SideOutput("rejected", "user string, reason string")``, given to
    ``hf.keyed(…, side_outputs=[rejected])``; a processor sends rows there by ``ctx.output(rejected, rows)``.

    Parameters
    ----------
    name
        Up to 64 letters, digits and underscores; one of a kind in its operator, "main" being taken.
    schema
        Of its rows, as DDL text or a StructType. None: the columns of the operator's input, for rows that go aside as
        they came (late ones, refused ones).

    Raises
    ------
    InvalidRequest
        A wrong name.
    """

    name: str
    schema: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name.lower() == MAIN:
            raise InvalidRequest(
                f"SideOutput: name is {self.name!r}; expected up to 64 letters, digits or underscores, no digit first, "
                f"and not {MAIN!r}, which names the operator's own output"
            )


def check_side_outputs(tags: Iterable[Any], where: str) -> tuple[SideOutput, ...]:
    """The tags of one operator, in order.

    Raises
    ------
    InvalidRequest
        Something that is no tag, two of one name (Spark tells no upper from lower case), or too many.
    """
    if isinstance(tags, SideOutput) or not isinstance(tags, Iterable):
        raise InvalidRequest(f"{where}: side_outputs is {tags!r}; expected a list of hf.SideOutput")
    found = tuple(tags)
    seen: dict[str, str] = {}
    for tag in found:
        if not isinstance(tag, SideOutput):
            raise InvalidRequest(f"{where}: side_outputs has {tag!r}; expected an hf.SideOutput")
        if tag.name.lower() in seen:
            raise InvalidRequest(
                f"{where}: two side outputs are named {seen[tag.name.lower()]!r} and {tag.name!r}; rename one"
            )
        seen[tag.name.lower()] = tag.name
    if len(found) > SIDE_OUTPUTS_MAX:
        raise InvalidRequest(f"{where}: {len(found)} side outputs; at most {SIDE_OUTPUTS_MAX} are possible")
    return found


class Outputs:
    """All outputs of an operator in one slot and batch. Rows of one output keep their order."""

    def __init__(self, main: pa.Schema, sides: Mapping[str, pa.Schema]) -> None:
        self._main = OutputRows(main)
        self._sides = {name: OutputRows(schema, f"side output {name!r}") for name, schema in sides.items()}
        self._all = (self._main, *self._sides.values())
        self._ended = False
        self._failed: Exception | None = None

    @property
    def is_full(self) -> bool:
        """Whether one has so much that all should be drained before more comes. Asked for each row."""
        for rows in self._all:  # noqa: SIM110 - any() takes three times as long
            if rows.is_full:
                return True
        return False

    def add(self, produced: Any) -> None:
        """Takes what ``process`` gave; see `OutputRows.add`."""
        self._main.add(produced)

    def add_to(self, tag: SideOutput, produced: Any) -> None:
        """Takes rows for a side output.

        Raises
        ------
        InvalidRequest
            No tag, or one that the operator does not have; rows that do not fit its schema; or the slot's rows are
            done already, and what is added now would be lost.
        """
        try:
            self._rows_of(tag).add(produced)
        except Exception as error:
            self._failed = error
            raise

    def drain(self) -> list[TaggedRows]:
        """All rows since the last call: those of the main output first, then by side output."""
        given: list[TaggedRows] = [(None, batch) for batch in self._main.drain()]
        for name, rows in self._sides.items():
            given += [(name, batch) for batch in rows.drain()]
        return given

    def end(self) -> None:
        """From now on nothing is taken.
        Raises what ``add_to`` raised, also where the processor caught it: rows may be missing.
        """
        self._ended = True
        if self._failed is not None:
            raise self._failed

    def _rows_of(self, tag: Any) -> OutputRows:
        if not isinstance(tag, SideOutput):
            raise InvalidRequest(f"ctx.output: expected an hf.SideOutput, found {type(tag).__name__} {tag!r}")
        rows = self._sides.get(tag.name)
        if rows is None:
            raise InvalidRequest(
                f"ctx.output: the operator has no side output {tag.name!r}, it has "
                f"{', '.join(map(repr, self._sides)) or 'none'}; add the tag to side_outputs= of the operator"
            )
        if self._ended:
            raise InvalidRequest(f"ctx.output: the slot's rows are done; side output {tag.name!r} takes no more")
        return rows
