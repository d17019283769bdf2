"""What is committed: the batches that Spark has committed, and the handles that Spark's state has after each.

Committed is what Spark says: files of versions that no committed handle names never happened. But of several attempts
at a batch Spark may have one that does not count: then it is the one that the batch's commit record names
(`recorded_versions.py`). Where Spark's default provider keeps its state, its files are read here; otherwise Spark reads
them. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.checkpoint.as_of import AsOf, in_force
from holdfast.checkpoint.expiry import BatchTime
from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import operator_prefix
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.ttl_log import declared_ttls
from holdfast.commit.timeline import spark_query_id
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.recorded_versions import RecordedVersions
from holdfast.spark_files.logs import CommittedBatch, LostBatch, committed_batch, committed_batches, newest_lost
from holdfast.spark_files.state import CUT_OFF, HANDLE_FORMAT, SparkReader, SparkState, unreadable
from holdfast.storage import FileStore


@dataclass(frozen=True)
class CommittedState:
    """A committed batch, and the handles after it by operator and slot. ``without_state``: how many of Spark's stateful
    operators have no state yet, of which may be some of ours. ``query_id``: Spark's id of the query. ``passed_over``:
    what Spark has in place of some of the handles, of attempts that do not count.
    """

    batch: CommittedBatch
    handles: dict[str, dict[int, StoredHandle]]
    query_id: str
    without_state: int = 0
    passed_over: Mapping[str, Mapping[int, StoredHandle]] = field(default_factory=dict)

    def as_of(self, record: OperatorRecord, state_store: FileStore) -> AsOf:
        """The batch's end, as which an operator's versions are read. ``state_store``: has the operators' state.

        Raises
        ------
        Corrupt
            What the operator noted of its TTLs is damaged.
        """
        batch = self.batch
        said = declared_ttls(state_store, operator_prefix(self.query_id, record.name), batch.batch_id)
        lifetimes = in_force(self.handles.get(record.name, {}).values(), said)
        dropped = frozenset(state.id for state in record.dropped)
        return AsOf(batch.batch_id, BatchTime(batch.timestamp_ms, batch.began_ms), lifetimes, dropped)


class Committed:
    """The committed batches of one checkpoint.

    Parameters
    ----------
    store
        Spark's checkpoint.
    spark_reader
        Reads state that is not kept by Spark's default provider; None: such a checkpoint is refused.
    begun
        The names of the query's operators of which a version was committed, each of which is one of Spark's stateful
        operators; by default it is not known where they store them.
    state_store
        Gives the store of the operators' state. None: it is not known yet, and handles are as Spark has them until
        :meth:`that_count` is called.
    """

    def __init__(
        self,
        store: FileStore,
        spark_reader: SparkReader | None,
        begun: Callable[[], Sequence[str]] = tuple,
        state_store: Callable[[], FileStore] | None = None,
    ) -> None:
        self.store = store
        self._begun = begun
        self._state_store = state_store
        self._recorded: RecordedVersions | None = None
        self.query_id = spark_query_id(store)
        self._spark_reader = spark_reader
        self._state: SparkState | None = None
        self._known: set[int] = set()  # batches that were committed when Spark's files were listed

    def batches(self) -> list[int]:
        """Batches that Spark's logs still have, ascending."""
        return committed_batches(self.store)

    def lost(self) -> LostBatch | None:
        """The newest batch that was committed, where Spark's logs lack it, as in a copy that was cut off. None: they
        have it, or no batch was committed yet.
        """
        begun = () if self.batches() else self._begun()
        lost = newest_lost(self.store)
        if lost is not None or not begun or self.batches():  # listed after what tells that there must be some
            return lost
        return LostBatch(0, "commits/", f"a version of operator {', '.join(map(repr, begun))} after it")

    def problem_of(self, lost: LostBatch) -> str:
        """For messages."""
        why = f"batch {lost.batch_id} was committed, since there is {lost.told_by}"
        return f"{self.store.uri} lacks {lost.name}: {why}. {CUT_OFF}"

    def check_logs(self) -> None:
        """Corrupt where Spark's logs lack the newest batch that was committed."""
        if lost := self.lost():
            raise Corrupt(self.problem_of(lost))

    def check_begun(self, begun: Sequence[str]) -> None:
        """Corrupt where Spark has state of fewer operators than have begun."""
        self._check_begun(SparkState(self.store) if self._state is None else self._state, begun)

    def at(self, batch_id: int | None) -> CommittedState:
        """The state after a batch; None: after the newest.

        Raises
        ------
        InvalidRequest
            No such batch is committed and retained; or Spark must read it, and there is no Spark.
        Corrupt
            Spark's files of it, or a handle, are damaged; or the version that counts is, where Spark has another. Or
            Spark's logs lack the newest batch that was committed, and that is wanted, or one that they do not have.
        Incompatible
            Spark's checkpoint and the operators' state are not of one query.
        """
        known = self.batches()
        if batch_id not in known:
            self.check_logs()
        if not known:
            raise InvalidRequest(f"{self.store.uri} has no committed batch yet; run the query, then try again")
        wanted = known[-1] if batch_id is None else batch_id
        if wanted not in known:
            raise InvalidRequest(
                f"batch {wanted} is not among the committed batches that {self.store.uri} retains: there are "
                f"{known[0]} to {known[-1]}"
            )
        state = self._state_of(committed_batch(self.store, wanted))
        return state if self._state_store is None else self.that_count(state, self._state_store(), state.handles)

    def recorded(self) -> RecordedVersions:
        """What commit records name, as they are now."""
        return RecordedVersions(self.store, self.query_id)

    def that_count(self, state: CommittedState, state_store: FileStore, operators: Iterable[str]) -> CommittedState:
        """``state``, in these operators with the versions that count. Raises as :meth:`at`."""
        if self._recorded is None:
            self._recorded = self.recorded()
        handles, passed_over = dict(state.handles), dict(state.passed_over)
        for operator in operators:
            in_spark = handles[operator]
            counting = self._recorded.that_count(in_spark, state_store, operator_prefix(self.query_id, operator))
            handles[operator] = counting
            other = {slot: handle for slot, handle in in_spark.items() if counting[slot] != handle}
            if other:
                passed_over[operator] = other
        return replace(state, handles=handles, passed_over=passed_over)

    def _state_of(self, batch: CommittedBatch) -> CommittedState:
        reason = unreadable(batch.conf)
        if reason is not None and self._spark_reader is None:
            raise InvalidRequest(
                f"Spark's state of batch {batch.batch_id} in {self.store.uri} must be read by Spark itself, since "
                f"{reason}: give a session, Checkpoint(…, spark=spark)"
            )
        if self._state is None or batch.batch_id not in self._known:
            known = set(self.batches())
            state = SparkState(self.store)  # listed after those were committed: their files are there, or gone
            self._check_complete(state, readable=reason is None)
            self._known, self._state = known, state
            self._recorded = None  # a record is there before Spark commits its batch
        found: dict[str, dict[int, StoredHandle]] = {}
        without_state = 0
        for operator in self._state.operators():
            lacking = None if reason is None else self._state.lacking(operator, batch.partitions)
            if lacking is not None:
                raise Corrupt(f"{self.store.uri} lacks state/{operator.number}/{lacking}. {CUT_OFF}")
            texts = self._state.texts_after(operator, batch, self._spark_reader)
            without_state += not texts
            if texts and not any(HANDLE_FORMAT in text.encode() for text in texts):
                continue  # of another program's applyInPandasWithState, in the same query
            for text in texts:
                _add(found, text, f"Spark's state of batch {batch.batch_id} in {self.store.uri}")
        return CommittedState(batch, found, self.query_id, without_state)

    def _check_complete(self, state: SparkState, *, readable: bool) -> None:
        if unknown := state.unknown(readable=readable):
            raise Corrupt(f"{self.store.uri} lacks state/{min(unknown)}/_metadata. {CUT_OFF}")
        numbers = state.numbers
        gone = next((number for number in range(max(numbers, default=0)) if number not in numbers), None)
        if gone is not None:
            raise Corrupt(f"{self.store.uri} lacks state/{gone}: there are {sorted(numbers)}. {CUT_OFF}")
        self._check_begun(state, self._begun())

    def _check_begun(self, state: SparkState, begun: Sequence[str]) -> None:
        if len(state.numbers) < len(begun):
            raise Corrupt(
                f"{self.store.uri} has Spark's state of {len(state.numbers)} stateful operators, and the query has "
                f"{len(begun)} that have committed versions: {', '.join(map(repr, begun))}. {CUT_OFF}"
            )


def _add(found: dict[str, dict[int, StoredHandle]], text: str, where: str) -> None:
    try:
        handle = StoredHandle.from_text(text)
    except Corrupt as error:
        raise Corrupt(f"{where}: {error}") from error
    slots = found.setdefault(handle.operator, {})
    if handle.slot in slots:
        raise Corrupt(f"{where} has two handles of operator {handle.operator!r}, slot {handle.slot}")
    slots[handle.slot] = handle
