"""What the checkpoint of an earlier query says of its last committed batch. Runs on the driver.

Handles are read by Spark's own state reader: what Spark does not call committed never happened. Where its sources go on
stands in Spark's log of offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.checkpoint import Handle
from holdfast.commit.record_log import RecordLog
from holdfast.commit.timeline import spark_query_id, timeline_of
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.storage import FileStore, StorageOptions, open_file_store, store_uri

_OPERATOR = "applyInPandasWithState"
_OFFSETS_VERSION = "v1"


@dataclass(frozen=True)
class CommittedBatch:
    """The last batch of a query that Spark has committed. ``store``: its checkpoint; ``folder``: that, for Spark."""

    store: FileStore
    folder: str
    query_id: str
    batch_id: int

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.store.uri} at its last committed batch, {self.batch_id}"


def last_committed_batch(checkpoint: str, options: StorageOptions | None = None) -> CommittedBatch:
    """What Spark has committed last.

    Raises
    ------
    InvalidRequest
        No checkpoint of a query, or none of its batches is committed.
    Incompatible
        Output is visible of a batch that Spark has not committed.
    """
    store = open_file_store(checkpoint, options)
    # So that both mean the same place, whatever Hadoop's default is.
    folder = checkpoint if "://" in store_uri(checkpoint) else f"file:{store.uri}"
    query_id = spark_query_id(store)
    batches = [int(name) for path in store.names("commits/") if (name := path.rpartition("/")[2]).isdigit()]
    if not batches:
        raise InvalidRequest(
            f"restore: {checkpoint} has no batch that Spark has committed: there is nothing to begin with. Leave "
            "restore= out, or name the checkpoint of the query whose state is meant"
        )
    batch = CommittedBatch(store, folder, query_id, max(batches))
    _check_settled(batch)
    return batch


def committed_handles(session: SparkSession, batch: CommittedBatch) -> Mapping[str, Mapping[int, Handle]]:
    """Handles at the end of the batch, by operator and slot.

    Raises
    ------
    InvalidRequest
        Spark cannot read its own state.
    """
    by_operator: dict[str, dict[int, Handle]] = {}
    for text in _handle_texts(session, batch):
        handle = Handle.from_text(text)
        by_operator.setdefault(handle.operator, {})[handle.slot] = handle
    return by_operator


def kafka_offsets(batch: CommittedBatch, source: int) -> str:
    """Where a Kafka source goes on after the batch, as its option ``startingOffsets`` takes it.

    Raises
    ------
    InvalidRequest
        No such source, or not one of Kafka.
    """
    lines = (batch.store.get(f"offsets/{batch.batch_id}") or b"").decode(errors="replace").splitlines()
    if lines[:1] != [_OFFSETS_VERSION] or len(lines) < 2:
        raise Corrupt(
            f"offsets/{batch.batch_id} in {batch.store.uri}: expected Spark's log of offsets, version "
            f"{_OFFSETS_VERSION}, found {lines[:1]}; restore the checkpoint from a copy"
        )
    texts = lines[2:]
    if not 0 <= source < len(texts):
        raise InvalidRequest(
            f"restore: source {source} of {batch.where}: expected 0 to {len(texts) - 1}, in the order in which the "
            "query names its sources"
        )
    offsets = _positions(texts[source])
    if offsets is None:
        raise InvalidRequest(
            f"restore: source {source} of {batch.where}: expected offsets of Kafka, found {texts[source]}. How other "
            "sources go on: docs/guide/rescale.md"
        )
    return json.dumps(offsets)


def _positions(text: str) -> dict[str, dict[str, int]] | None:
    try:
        found = json.loads(text)
        offsets = found["offsets"] if "format" in found else found  # ours says more than Spark's
        if offsets and all(
            isinstance(partitions, dict) and all(type(offset) is int for offset in partitions.values())
            for partitions in offsets.values()
        ):
            return dict(offsets)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return None


def _check_settled(batch: CommittedBatch) -> None:
    """What was restored from before a batch whose output is visible would write that output again."""
    records = RecordLog(batch.store, timeline_of(batch.store, batch.query_id))
    records.load()
    if records.newest_batch is not None and records.newest_batch > batch.batch_id:
        raise Incompatible(
            f"restore: Spark has committed {batch.store.uri} up to batch {batch.batch_id}, and output is visible of "
            f"batch {records.newest_batch}: a query that begins at batch {batch.batch_id} would write it again. Start "
            "the earlier query once more, until it has committed that batch, then stop it"
        )


def _handle_texts(session: SparkSession, batch: CommittedBatch) -> list[str]:
    try:
        operators = [
            row["operatorId"]
            for row in session.read.format("state-metadata").load(batch.folder).collect()
            if row["operatorName"] == _OPERATOR
        ]
        found: list[str] = []
        for operator_id in operators:
            reader = session.read.format("statestore").option("operatorId", operator_id)
            states = reader.option("batchId", batch.batch_id).load(batch.folder).select("value.groupState.*")
            if states.columns == ["handle"]:  # others are no operators of Holdfast
                found += [row["handle"] for row in states.collect()]
        return found
    except PySparkException as error:
        raise InvalidRequest(f"restore: Spark cannot read the state of {batch.where}: {error}") from error
