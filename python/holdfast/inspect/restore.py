"""`hf.Restore`: begins an operator with the state of an earlier query. Runs on the driver. docs/rfcs/0015"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

from holdfast.checkpoint import OperatorRecord, Origin, operator_prefix, recorded_operator
from holdfast.checkpoint.continued import continued
from holdfast.commit.record_log import RecordLog
from holdfast.commit.timeline import timeline_of
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.inspect.committed import Committed, CommittedState, SparkReader
from holdfast.settings import Settings
from holdfast.spark.beginning import Beginning
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.state_reader import start_session, state_texts
from holdfast.storage import StorageOptions, open_file_store, store_uri


class Restore(Beginning):
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
        self._read: tuple[Committed, CommittedState] | None = None

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
            Output is visible of a batch that Spark has not committed.
        """
        sources = self._committed(start_session()[0])[1].batch.sources
        if not 0 <= source < len(sources):
            raise InvalidRequest(
                f"{self._where}: source {source}: expected 0 to {len(sources) - 1}, in the order in which the query "
                "names its sources"
            )
        offsets = _positions(sources[source])
        if offsets is None:
            raise InvalidRequest(
                f"{self._where}: source {source}: expected offsets of Kafka, found {sources[source]}. How other "
                "sources go on: docs/guide/rescale.md"
            )
        return json.dumps(offsets)

    def begin(self, session: Any, plan: OperatorPlan) -> OperatorRecord:
        """As :class:`Beginning` says; also Incompatible where the newest batch is not settled."""
        declared, name = plan.declared, self._operator or plan.name
        committed, state = self._committed(session)
        query_id, batch_id, found = committed.query_id, state.batch.batch_id, state.handles.get(name)
        where = f"operator {declared.name!r}: {self._where}"
        if not found:
            known = ", ".join(map(repr, sorted(state.handles))) or "none"
            raise InvalidRequest(
                f"{where}: at its last committed batch, {batch_id}, there is no state of an operator {name!r}; there "
                f"is some of: {known}. Name it: hf.Restore(…, operator=…)"
            )
        store = open_file_store(self._state_dir or plan.checkpoint_dir, StorageOptions.of(plan.settings))
        recorded = recorded_operator(store, operator_prefix(query_id, name))
        if recorded is None:
            raise InvalidRequest(
                f"{where}: {store.uri} has no state of query {query_id}, operator {name!r}. Say which folder was its "
                "spark.holdfast.checkpoint.dir: hf.Restore(…, state_dir=…)"
            )
        handles = tuple(found.get(slot) for slot in range(recorded.slots))
        unknown = sorted(set(found) - set(range(recorded.slots)))
        if unknown or (recorded.origin is not None and None in handles):
            raise Incompatible(
                f"{where} has versions of the slots {sorted(found)}; expected all of the {recorded.slots} that "
                f"{store.uri} records. Files of two checkpoints are mixed: restore both from one backup"
            )
        origin = Origin(store.uri, query_id, name, batch_id, handles, tuple(sorted(state.handles)))
        return continued(recorded, declared, origin)

    @property
    def _where(self) -> str:
        return f"restore from {self._path}"

    def _committed(self, session: Any) -> tuple[Committed, CommittedState]:
        """Read once: all operators and sources of a query go on from one batch."""
        if self._read is None:
            options = StorageOptions.of(Settings.from_mapping(dict(session.conf.getAll)))
            reader: SparkReader = partial(state_texts, session, self._path)
            committed = Committed(open_file_store(self._path, options), reader)
            state = committed.at(None)
            check_settled(committed, state.batch.batch_id)
            self._read = committed, state
        return self._read


def check_settled(committed: Committed, batch_id: int) -> None:
    """What begins before a batch whose output is visible would write that output again.

    Raises
    ------
    Incompatible
        There is such a batch.
    """
    store = committed.store
    records = RecordLog(store, timeline_of(store, committed.query_id))
    records.load()
    if records.newest_batch is not None and records.newest_batch > batch_id:
        raise Incompatible(
            f"restore: Spark has committed {store.uri} up to batch {batch_id}, and output is visible of batch "
            f"{records.newest_batch}: a query that begins at batch {batch_id} would write it again. Start the earlier "
            "query once more, until it has committed that batch, then stop it"
        )


def _positions(text: str | None) -> dict[str, dict[str, int]] | None:
    """The offsets that a source of Kafka, ours or Spark's, has in Spark's log; None for what is none."""
    try:
        found = json.loads(text or "")
        offsets = found["offsets"] if "format" in found else found  # ours says more than Spark's
        if offsets and all(
            isinstance(partitions, dict) and all(type(offset) is int for offset in partitions.values())
            for partitions in offsets.values()
        ):
            return dict(offsets)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return None
