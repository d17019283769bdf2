"""Timelines: a checkpoint that was copied on purpose goes on under an identity of its own. Format:
docs/formats/commit_record.md.

`<checkpoint>/holdfast/forks/<number, 6 digits>.json`, created if absent, never changed; the newest counts. Without one,
the identity is Spark's id of the query. Commit records, epochs and names at the sinks' other sides belong to an
identity: those of before the fork are another timeline's, and are neither looked at nor touched.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from dataclasses import asdict, dataclass

from holdfast.clock import Clock, Ids, SystemClock, new_id
from holdfast.commit.epochs import Driver, Epochs
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore, StorageOptions, open_checkpoint

FORMAT = "holdfast.fork"
VERSION = 1
_FOLDER = "holdfast/forks/"
_NAME = re.compile(r"(\d{6,})\.json")


@dataclass(frozen=True)
class Fork:
    """One fork of a checkpoint.

    Attributes
    ----------
    query_id
        Spark's id of the query.
    timeline
        The identity from here on, a UUID.
    parent
        The identity until here.
    host, pid, forked_ms
        Who did it, and when by its own clock: for people.
    """

    query_id: str
    timeline: str
    parent: str
    host: str
    pid: int
    forked_ms: int


def newest_fork(store: FileStore) -> Fork | None:
    """The fork that a checkpoint goes by; None: it was never forked.

    Raises
    ------
    Corrupt
        It is damaged.
    """
    numbers = _numbers(store)
    if not numbers:
        return None
    name = _name(max(numbers))
    data = store.get(name)
    if data is None:
        raise Corrupt(f"the fork {name} was listed in {store.uri} and is missing now")
    where = f"the fork {name} in {store.uri}"
    try:
        return Fork(**unseal(data, FORMAT, VERSION, where))
    except TypeError as error:
        raise Corrupt(f"{where} lacks what a fork has: {error}") from error


def timeline_of(store: FileStore, query_id: str) -> str:
    """The identity under which a checkpoint's records, epochs and output live.

    Raises
    ------
    Corrupt
        Its newest fork is damaged, or belongs to another query.
    """
    fork = newest_fork(store)
    if fork is None:
        return query_id
    if fork.query_id != query_id:
        raise Corrupt(
            f"the newest fork in {store.uri}/{_FOLDER} is of query {fork.query_id}, and the checkpoint is of query"
            f" {query_id}: files of two checkpoints are mixed. Restore the folder, all of it"
        )
    return fork.timeline


def spark_query_id(store: FileStore) -> str:
    """Spark's id of the query that a checkpoint belongs to.

    Raises
    ------
    InvalidRequest
        The folder is no checkpoint that a query has run on.
    """
    data = store.get("metadata")
    try:
        return str(uuid.UUID(json.loads(data or b"")["id"]))
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest(
            f"{store.uri} is no checkpoint of a streaming query: expected Spark's file `metadata` with the query's id."
            f" Name the folder that was given as checkpoint="
        ) from None


def fork_checkpoint(
    checkpoint: str | os.PathLike[str],
    *,
    storage: StorageOptions | None = None,
    clock: Clock | None = None,
    ids: Ids = new_id,
) -> Fork:
    """Gives a checkpoint that was copied, or restored from a backup, an identity of its own.

    From its next start on, the query writes everything after the last batch that Spark has committed in this checkpoint
    once more, beside what is visible already. Its sinks never meet those of the query that it was copied from. Keyed
    operators do, as their state is not copied: give the fork a copy of the state folder before both run. A driver that
    still runs on this very folder is fenced.

    Parameters
    ----------
    checkpoint
        The copy, as given to :func:`holdfast.write_exactly_once`.
    storage
        How an object store is reached; by default as the environment says.

    Raises
    ------
    InvalidRequest
        The folder is no checkpoint.
    Unavailable
        It does not answer.
    """
    store = open_checkpoint(os.fspath(checkpoint), storage)
    query_id = spark_query_id(store)
    parent = timeline_of(store, query_id)
    host, pid, now_ms = socket.gethostname(), os.getpid(), (clock or SystemClock()).now_ms()
    fork = Fork(query_id, str(uuid.UUID(ids())), parent, host, pid, now_ms)
    text = seal(FORMAT, VERSION, asdict(fork)).encode()
    # Whoever runs on this folder under the old identity stops at its next batch. Before the fork, since one that dies
    # in between leaves a driver that no later fork would meet; and after it, for one that has started in between.
    epochs = Epochs(store, parent, Driver(fork.timeline, host, pid, now_ms))
    epochs.claim()
    number = max(_numbers(store), default=0) + 1
    while not store.create_if_absent(_name(number), text):
        number += 1
    epochs.claim()
    return fork


def _numbers(store: FileStore) -> list[int]:
    matches = [_NAME.fullmatch(file.name.rpartition("/")[2]) for file in store.list(_FOLDER)]
    return [int(match.group(1)) for match in matches if match]


def _name(number: int) -> str:
    return f"{_FOLDER}{number:06d}.json"
