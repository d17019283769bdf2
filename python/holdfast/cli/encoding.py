"""In which encoding commands write: JSON in UTF-8, wherever it goes; what is for people in the terminal's own, where an
escape stands for a character that it has not. A state's keys may be in any script.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def escape_what_cannot_be_written() -> None:
    """From here to the end of the program."""
    _write_with(None)


def json_option(help: str = "For machines.") -> Callable[[Command], Command]:
    """``--json``, of all commands; they take it as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help, callback=_in_utf8)


def _in_utf8(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        # What UTF-8 has not, as a part of a file's name, becomes what JSON has for it.
        _write_with("utf-8")
    return value


def _write_with(encoding: str | None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding or sys.stdout.encoding, errors="backslashreplace")
