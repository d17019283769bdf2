"""`hf.Restore`: begins an operator with the state of an earlier query. Runs on the driver. docs/rfcs/0015

The earlier query's handles are read by Spark's own state reader, at the last batch that Spark has committed: what Spark
does not call committed never happened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.checkpoint import Handle, OperatorRecord, Origin, operator_prefix, recorded_operator
from holdfast.checkpoint.continued import continued
from holdfast.commit.record_log import RecordLog
from holdfast.commit.timeline import spark_query_id, timeline_of
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.storage import FileStore, local_path, open_file_store

_OPERATOR = "applyInPandasWithState"


@dataclass(frozen=True)
class CommittedHandles:
    """Handles of all operators of a query at the end of one batch, by operator and slot."""

    query_id: str
    batch_id: int
    by_operator: Mapping[str, Mapping[int, Handle]]


class Restore:
    """State of an earlier query that an operator begins with: ``hf.keyed(…, restore=hf.Restore("/data/old"))``.

    The new query has a new checkpoint, and may have another number of slots, another backend and another state folder.
    It begins at the last batch that the earlier query has committed, which is read once: give one ``Restore`` to all
    operators of a query. The state is copied in the query's first batch; the earlier query's files are not changed, and
    are not needed any more after it. A program that starts again goes on with what it has, whether it still gives
    ``restore`` or not. docs/guide/rescale.md

    Parameters
    ----------
    checkpoint
        The earlier query's checkpoint folder: its ``checkpointLocation``.
    operator
        The operator's name there; by default the name that it has now.
    state_dir
        The ``spark.holdfast.checkpoint.dir`` that the earlier query had; by default the one that the operator has now.

    Raises
    ------
    InvalidRequest
        Not a folder.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        *,
        operator: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = local_path(os.fspath(checkpoint))
        self._operator = operator
        self._state_dir = local_path(os.fspath(state_dir)) if state_dir is not None else None
        self._read: CommittedHandles | None = None

    def begin(self, session: SparkSession, declared: OperatorRecord, state_dir: str) -> OperatorRecord:
        """``declared``, as the operator goes on from the earlier one: with its origin, and the ids of its states.

        Parameters
        ----------
        state_dir
            The folder of the new operator's state.

        Raises
        ------
        InvalidRequest
            No such checkpoint, no committed batch, no such operator.
        Incompatible
            The operator contradicts what is recorded of the earlier one; or the newest batch is not settled.
        """
        if self._read is None:
            self._read = committed_handles(session, self._path)
        name = self._operator or declared.name
        store = open_file_store(self._state_dir or state_dir)
        found = self._read.by_operator.get(name)
        where = f"operator {declared.name!r}: restore"
        if not found:
            known = ", ".join(map(repr, sorted(self._read.by_operator))) or "none"
            raise InvalidRequest(
                f"{where}: {self._path} has no state of an operator {name!r} at its last committed batch, "
                f"{self._read.batch_id}; it has some of: {known}. Name it: hf.Restore(…, operator=…)"
            )
        recorded = recorded_operator(store, operator_prefix(self._read.query_id, name))
        if recorded is None:
            raise InvalidRequest(
                f"{where}: {store.uri} has no state of query {self._read.query_id}, operator {name!r}. Say which "
                "folder was its spark.holdfast.checkpoint.dir: hf.Restore(…, state_dir=…)"
            )
        handles = tuple(found.get(slot) for slot in range(recorded.slots))
        unknown = sorted(set(found) - set(range(recorded.slots)))
        if unknown or (recorded.origin is not None and None in handles):
            raise Incompatible(
                f"{where}: {self._path} has versions of the slots {sorted(found)}; expected all of the "
                f"{recorded.slots} that {store.uri} records. Files of two checkpoints are mixed: restore both from one "
                "backup"
            )
        origin = Origin(store.uri, self._read.query_id, name, self._read.batch_id, handles)
        return continued(recorded, declared, origin)


def committed_handles(session: SparkSession, checkpoint: str) -> CommittedHandles:
    """What Spark has committed last.

    Raises
    ------
    InvalidRequest
        No checkpoint of a query, or none of its batches is committed.
    Incompatible
        Output is visible of a batch that Spark has not committed.
    """
    store = open_file_store(checkpoint)
    query_id = spark_query_id(store)
    batches = [int(name) for path in store.names("commits/") if (name := path.rpartition("/")[2]).isdigit()]
    if not batches:
        raise InvalidRequest(
            f"restore: {checkpoint} has no batch that Spark has committed: there is nothing to begin with. Leave "
            "restore= out, or name the checkpoint of the query whose state is meant"
        )
    batch_id = max(batches)
    _check_settled(store, query_id, batch_id, checkpoint)
    by_operator: dict[str, dict[int, Handle]] = {}
    for text in _handle_texts(session, checkpoint, batch_id):
        handle = Handle.from_text(text)
        by_operator.setdefault(handle.operator, {})[handle.slot] = handle
    return CommittedHandles(query_id, batch_id, by_operator)


def _check_settled(store: FileStore, query_id: str, batch_id: int, checkpoint: str) -> None:
    """What was restored from before a batch whose output is visible would write that output again."""
    records = RecordLog(store, timeline_of(store, query_id))
    records.load()
    if records.newest_batch is not None and records.newest_batch > batch_id:
        raise Incompatible(
            f"restore: Spark has committed {checkpoint} up to batch {batch_id}, and output is visible of batch "
            f"{records.newest_batch}: a query that begins at batch {batch_id} would write it again. Start the earlier "
            "query once more, until it has committed that batch, then stop it"
        )


def _handle_texts(session: SparkSession, checkpoint: str, batch_id: int) -> list[str]:
    try:
        operators = [
            row["operatorId"]
            for row in session.read.format("state-metadata").load(checkpoint).collect()
            if row["operatorName"] == _OPERATOR
        ]
        found: list[str] = []
        for operator_id in operators:
            reader = session.read.format("statestore").option("operatorId", operator_id).option("batchId", batch_id)
            states = reader.load(checkpoint).select("value.groupState.*")
            if states.columns == ["handle"]:  # others are no operators of Holdfast
                found += [row["handle"] for row in states.collect()]
        return found
    except PySparkException as error:
        raise InvalidRequest(
            f"restore: Spark cannot read its state in {checkpoint} at batch {batch_id}: {error}"
        ) from error
