"""Which operators of a query have committed versions, by the files of their state: Spark must have state of each."""

from __future__ import annotations

from urllib.parse import unquote

from holdfast.checkpoint.names import operator_prefix, parse_version, query_folder
from holdfast.checkpoint.operator_record import recorded_operator
from holdfast.errors import Corrupt
from holdfast.storage import FileStore


def begun_operators(state: FileStore, query_id: str) -> list[str]:
    """The names of operators of which a version was committed: another one was made on top of it."""
    folder = query_folder(query_id) + "/"
    newest: dict[str, int] = {}
    for file in state.list(folder):
        version = parse_version(file.name) if "/delta/" in file.name else None
        if version is not None:
            name = unquote(file.name[len(folder) :].partition("/")[0])
            newest[name] = max(version[0], newest.get(name, 0))
    return sorted(
        name for name, sequence in newest.items() if sequence > _first_sequence(state, operator_prefix(query_id, name))
    )


def _first_sequence(state: FileStore, prefix: str) -> int:
    """That of an operator's first batch: of several attempts at it, none may be committed yet."""
    try:
        recorded = recorded_operator(state, prefix)
    except Corrupt:  # told to those who read that operator
        return 1
    return 1 if recorded is None or recorded.origin is None else recorded.origin.sequence + 1
