"""Where the state of a checkpoint's query is: Spark's checkpoint does not say.

A folder that has one of the query's id has its state, or a copy of it; what is in it is compared with checksums that
stand in Spark's checkpoint, so a wrong copy is found, not read.
"""

from __future__ import annotations

import os

from holdfast.errors import InvalidRequest
from holdfast.storage import FileStore, StorageOptions, open_file_store


def find_state_folder(
    checkpoint: FileStore,
    query_id: str,
    given: str | os.PathLike[str] | None,
    options: StorageOptions | None,
    given_as: str = "state= (--state at a shell, option folder of a table in Spark)",
) -> FileStore:
    """The store of the operators' state.

    Parameters
    ----------
    given
        As told by the caller. None: where the checkpoint is a folder of this machine, looked for in it, in those below
        it and in those beside it.
    given_as
        How a user tells it, for the message.

    Raises
    ------
    InvalidRequest
        It has nothing of the query; or there is none, or more than one, to be found.
    """
    if given is not None:
        store = open_file_store(os.fspath(given), options)
        if not store.list(f"{query_id}/"):
            raise InvalidRequest(
                f"{store.uri} has no state of query {query_id}, whose checkpoint {checkpoint.uri} is: expected the "
                "folder of spark.holdfast.checkpoint.dir"
            )
        return store
    root = checkpoint.local_path("metadata")
    found = _below(os.path.dirname(root), query_id) if root is not None else []
    if len(found) != 1:
        among = f"found {', '.join(found)}" if found else "found none in it or beside it"
        if root is None:
            among = "it is looked for in local folders only"
        raise InvalidRequest(
            f"which folder has the state of {checkpoint.uri}? {among}: give the folder of "
            f"spark.holdfast.checkpoint.dir as {given_as}"
        )
    return open_file_store(found[0])


def _below(root: str, query_id: str) -> list[str]:
    parent = os.path.dirname(root)
    candidates = {parent, root}
    for folder in (root, parent):
        try:
            with os.scandir(folder) as entries:
                candidates.update(entry.path for entry in entries if entry.is_dir())
        except OSError:
            continue  # one that may not be listed is not beside what the caller means
    # Commit records of exactly-once output have a folder of the query's id too; operators have a record each.
    return sorted(path for path in candidates if _has_operators(os.path.join(path, query_id)))


def _has_operators(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(os.path.isfile(os.path.join(entry.path, "operator.json")) for entry in entries)
    except OSError:
        return False
