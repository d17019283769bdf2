"""Which operators of a query have committed versions, by the files of their state: Spark must have state of each."""

from __future__ import annotations

from urllib.parse import unquote

from holdfast.checkpoint.names import parse_version, query_folder
from holdfast.storage import FileStore


def begun_operators(state: FileStore, query_id: str) -> list[str]:
    """The names of operators of which a version was committed: another one was made on top of it."""
    folder = query_folder(query_id) + "/"
    names = (file.name[len(folder) :] for file in state.list(folder) if "/delta/" in file.name)
    versions = ((name.partition("/")[0], parse_version(name)) for name in names)
    return sorted({unquote(name) for name, version in versions if version is not None and version[0] > 1})
