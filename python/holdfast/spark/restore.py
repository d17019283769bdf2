"""`hf.Restore`: begins an operator with the state of an earlier query. Runs on the driver. docs/rfcs/0015"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from holdfast.checkpoint import Handle, OperatorRecord, Origin, operator_prefix, recorded_operator
from holdfast.checkpoint.continued import continued
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.settings import Settings
from holdfast.spark.earlier_query import CommittedBatch, committed_handles, kafka_offsets, last_committed_batch
from holdfast.spark.plan import OperatorPlan
from holdfast.storage import StorageOptions, open_file_store, store_uri


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
        The earlier query's checkpoint: its ``checkpointLocation``, a folder or a prefix in a bucket.
    operator
        The operator's name there; by default the name that it has now.
    state_dir
        The ``spark.holdfast.checkpoint.dir`` that the earlier query had; by default the one that the operator has now.

    Raises
    ------
    InvalidRequest
        Neither a folder nor a prefix in a bucket.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        *,
        operator: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = os.fspath(checkpoint)
        store_uri(self._path)  # told here, where it is said
        self._operator = operator
        self._state_dir = store_uri(os.fspath(state_dir)) if state_dir is not None else None
        self._batch: CommittedBatch | None = None
        self._handles: Mapping[str, Mapping[int, Handle]] | None = None

    def kafka_offsets(self, source: int = 0) -> str:
        """Where a Kafka source of the earlier query goes on, for the option ``startingOffsets`` of the new query's.

        ``events.option("startingOffsets", restore.kafka_offsets())``

        Parameters
        ----------
        source
            Which, of several, in the order in which the earlier query names them.

        Raises
        ------
        InvalidRequest
            No such source, or not one of Kafka (ours or Spark's).
        Incompatible
            As for the state.
        """
        return kafka_offsets(self._committed(SparkSession.active()), source)

    def begin(self, session: SparkSession, plan: OperatorPlan) -> OperatorRecord:
        """What is declared, as the operator goes on from the earlier one: with its origin, and the ids of its states.

        Raises
        ------
        InvalidRequest
            No such checkpoint, no committed batch, no such operator.
        Incompatible
            The operator contradicts what is recorded of the earlier one; or the newest batch is not settled.
        """
        declared = plan.declared
        batch = self._committed(session)
        if self._handles is None:
            self._handles = committed_handles(session, batch)
        name = self._operator or declared.name
        store = open_file_store(self._state_dir or plan.checkpoint_dir, StorageOptions.of(plan.settings))
        found = self._handles.get(name)
        where = f"operator {declared.name!r}: restore"
        if not found:
            known = ", ".join(map(repr, sorted(self._handles))) or "none"
            raise InvalidRequest(
                f"{where}: there is no state of an operator {name!r} in {batch.where}; there is some of: {known}. "
                "Name it: hf.Restore(…, operator=…)"
            )
        recorded = recorded_operator(store, operator_prefix(batch.query_id, name))
        if recorded is None:
            raise InvalidRequest(
                f"{where}: {store.uri} has no state of query {batch.query_id}, operator {name!r}. Say which "
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
        origin = Origin(store.uri, batch.query_id, name, batch.batch_id, handles, tuple(sorted(self._handles)))
        return continued(recorded, declared, origin)

    def _committed(self, session: SparkSession) -> CommittedBatch:
        """Read once: all operators and sources of a query go on from one batch."""
        if self._batch is None:
            settings = Settings.from_mapping(dict(session.conf.getAll))
            self._batch = last_committed_batch(self._path, StorageOptions.of(settings))
        return self._batch
