"""`hf.Restore`: begins an operator with the state of an earlier query or a savepoint. Runs on the driver. RFC 15."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.checkpoint import OperatorRecord, StateChanges
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.inspect.earlier import Earlier, EarlierQuery, earlier_savepoint
from holdfast.inspect.restore_plan import RestorePlan, plan_of
from holdfast.inspect.settled import HAS_BEGUN
from holdfast.spark.beginning import Beginning, storage_of
from holdfast.spark.plan import OperatorPlan
from holdfast.state import Processor
from holdfast.storage import StorageOptions, check_checkpoint_name, open_file_store, store_uri


class Restore(Beginning):
    """State that an operator begins with: ``hf.keyed(…, restore=hf.Restore("/data/old"))``.

    That of an earlier query at the end of a batch, or of a savepoint. The new query has a new checkpoint, and may have
    another number of slots, another backend and another state folder. What it begins with is read once: give one
    ``Restore`` to all operators of a query. The state is copied in the first batch with rows of the operator; what it
    comes from is not needed any more after it, and not changed, unless it is claimed. A program that starts again goes
    on with what it has, whether it still gives ``restore`` or not. docs/guide/rescale.md

    Parameters
    ----------
    checkpoint
        The earlier query's checkpoint: its ``checkpointLocation``, a folder or a prefix in a bucket.
    savepoint
        A savepoint's folder, instead. Executors must reach it too.
    claim
        Of a savepoint: it becomes the query's, whose workers delete it once all of its operators are taken over and a
        batch of theirs is committed; of an operator that the query has not, nothing is deleted. Its manifest stays, so
        that the program starts again as it is. Nobody else can begin with it meanwhile. By default the savepoint stays
        its owner's, and is never changed. docs/guide/checkpoints.md
    batch_id
        Begin at the end of this batch of the checkpoint, which must still retain it. What the earlier query wrote after
        it stays where it is, and the new query writes the like again. By default the last batch that is committed,
        and only if all output that is visible is of it and of those before.
    state_dir
        The ``spark.holdfast.checkpoint.dir`` that the earlier query had; by default the one that the operator has now,
        and in a dry run what is found in the checkpoint and beside it.
        This, and the savepoint's folder, may be another one when the program starts again: it moved, or executors did
        not reach it. What is not yet taken over is read where the program has it last.
    storage
        Endpoint, region and retries of buckets, for the driver, which reads first; by default the session's
        ``spark.holdfast.storage.*``. Executors go by the operator's own settings.

    Raises
    ------
    InvalidRequest
        Not one of a checkpoint and a savepoint, or neither a folder nor a prefix in a bucket.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        claim: bool = False,
        batch_id: int | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        if (checkpoint is None) == (savepoint is None):
            found = "neither" if checkpoint is None else "both"
            raise InvalidRequest(f"hf.Restore takes a checkpoint or savepoint=, one of them; found {found}")
        if savepoint is not None and (batch_id is not None or state_dir is not None):
            raise InvalidRequest("hf.Restore: batch_id and state_dir are of a checkpoint; a savepoint has all in it")
        if claim and savepoint is None:
            raise InvalidRequest("hf.Restore: claim is of a savepoint; a checkpoint stays its query's")
        if checkpoint is not None:
            check_checkpoint_name(os.fspath(checkpoint))
        self._checkpoint = _place(checkpoint)
        self._savepoint = _place(savepoint)
        self._claim = claim
        self._batch_id = batch_id
        self._state_dir = store_uri(os.fspath(state_dir)) if state_dir is not None else None
        self._storage = storage
        self._read: list[Earlier] = []  # shared by all that `operator` gives
        self._name: str | None = None
        self._changes = NOTHING_SAID

    def operator(
        self,
        name: str | None = None,
        *,
        dropped: Collection[str] = (),
        renamed: Mapping[str, str] | None = None,
        added: Collection[str] = (),
    ) -> Restore:
        """For one operator that is not what it was: ``hf.keyed(…, restore=restore.operator(dropped=["seen"]))``.

        Parameters
        ----------
        name
            Its name there; by default the name that it has now.
        dropped
            States there that are left behind.
        renamed
            By the name of a state there the name that it has now.
        added
            States that were not there and begin with nothing. Of a state whose type cannot follow, or whose function is
            another, one is dropped and one is added. Timers, broadcast and operator states may be added without a word.

        What the processor says of states and fields (`renamed_from`, `DroppedState`, …) holds too, after this.

        Returns
        -------
        Restore
            It reads what this one has read.

        Raises
        ------
        InvalidRequest
            A text where names were expected. Whether the names are known is told when the operator is declared.
        """
        for what, names in (("dropped", dropped), ("added", added)):
            if isinstance(names, str):
                raise InvalidRequest(f"{what} is {names!r}; expected names of states: [{names!r}]")
        one = copy.copy(self)
        one._name = name
        now_and_before = tuple((now, before) for before, now in (renamed or {}).items())
        one._changes = StateChanges(dropped=tuple(dropped), renamed=now_and_before, added=tuple(added))
        return one

    def operators(self) -> tuple[str, ...]:
        """Names of the operators that have state there, in order."""
        return self._earlier(None).operators

    def kafka_offsets(
        self, source: int | None = None, *, topic: str | None = None, options: Mapping[str, object] | None = None
    ) -> str:
        """Where a Kafka source of the earlier query goes on, for the option ``startingOffsets`` of the new query's.

        ``events.option("startingOffsets", restore.kafka_offsets(options=options))``

        Parameters
        ----------
        source
            Its number among all sources of the earlier query, of whatever kind, in the order in which Spark has them,
            as what :meth:`plan` gives shows them. Inputs of :func:`connect` are in the order of their names, not
            as they are given. May be left out where one source alone is of Kafka.
        topic
            That the source reads: of several sources of Kafka, the one that names it.
        options
            The new source's, with its brokers and its subscription. Then the brokers are asked, and partitions and
            topics that have come since the batch begin at their earliest offset, as they do when a query goes on. By
            default only what the batch has read is told: a source refuses it where its topics have grown. Partitions
            that were gone, and left out with ``failOnDataLoss`` false, are named only where the brokers have them.

        Raises
        ------
        InvalidRequest
            No such source, or not one of Kafka (ours or Spark's); several that may be meant, told with their topics; or
            an option that our source does not know.
        Unavailable
            The brokers do not answer.
        Incompatible
            Output is visible of a batch that Spark has not committed.
        """
        earlier = self._earlier(None)
        found = _kafka_source(earlier.sources, earlier.where, source, topic)
        kept = _kept(found)
        if options is None:
            return json.dumps(kept)
        return json.dumps(_with_new_partitions(kept, _positions(found) or {}, _topic_ids(found), options))

    def plan(
        self, processor: Processor | type[Processor] | None = None, *, name: str | None = None, slots: int | None = None
    ) -> RestorePlan:
        """What would happen to one operator, without anything happening: a dry run, for ``print``.

        Parameters
        ----------
        processor
            That begins with the state. By default nothing is compared.
        name
            The operator's name; may be left out after :meth:`operator`, and where there is one only.
        slots
            That it shall have; by default as many as it had.

        Raises
        ------
        InvalidRequest
            No such operator, or there is none. What contradicts the state is not raised: it is in the plan.
        Corrupt
            The checkpoint is a copy that was cut off.
        """
        earlier = self._earlier(None)
        if not earlier.operators:
            raise InvalidRequest(
                f"{earlier.where}: it has no state of an operator of Holdfast: the query has none, or none of its "
                "operators has had rows in a committed batch"
            )
        wanted = self._name or name or (earlier.operators[0] if len(earlier.operators) == 1 else None)
        if wanted is None:
            raise InvalidRequest(
                f"{earlier.where}: which operator? There are {', '.join(map(repr, earlier.operators))}"
            )
        recorded, origin = earlier.operator(wanted, earlier.where, None)
        return plan_of(earlier, recorded, origin, self._changes, processor, slots)

    def begin(self, session: Any, plan: OperatorPlan) -> OperatorRecord:
        """As :class:`Beginning` says; also Incompatible where the newest batch is not settled, and Corrupt where what
        is read is damaged, or a copy that was cut off.
        """
        declared = plan.declared
        own_store = open_file_store(plan.checkpoint_dir, StorageOptions.of(plan.settings))
        try:
            earlier = self._earlier(session)
            where = f"operator {declared.name!r}: {earlier.where}"
            recorded, origin = earlier.operator(self._name or declared.name, where, own_store)
        except (InvalidRequest, Incompatible, Corrupt) as error:  # deleted since, in part or whole, or gone on, perhaps
            if HAS_BEGUN in str(error):
                raise
            kind = next(one for one in (InvalidRequest, Incompatible, Corrupt) if isinstance(error, one))
            raise kind(f"operator {declared.name!r}: restore: {error}. {HAS_BEGUN}") from error
        return continued(recorded, declared, origin, self._changes)

    def _earlier(self, session: Any) -> Earlier:
        """Read once: all operators and sources of a query go on from one batch."""
        if not self._read:
            storage = self._storage or storage_of(session)
            if self._savepoint is not None:
                self._read.append(earlier_savepoint(self._savepoint, storage, self._claim))
            else:
                path = str(self._checkpoint)
                self._read.append(EarlierQuery(path, self._state_dir, self._batch_id, storage, session))
        return self._read[0]


def _place(given: str | os.PathLike[str] | None) -> str | None:
    if given is None:
        return None
    store_uri(os.fspath(given))  # told here, where it is said
    return os.fspath(given)


def _kafka_source(sources: Sequence[str | None], where: str, source: int | None, topic: str | None) -> str | None:
    """The offset of the one source of Kafka that is meant; where another might be, it is refused."""
    if not sources:
        raise InvalidRequest(f"{where} has no sources: it was made of tables, not of a query's batch")
    if source is not None and not 0 <= source < len(sources):
        raise InvalidRequest(
            f"{where}: source {source}: expected 0 to {len(sources) - 1}, as `holdfast restore plan` numbers them"
        )
    numbers = range(len(sources)) if source is None else (source,)
    topics = {number: found for number in numbers if (found := _positions(sources[number]))}
    if not topics:
        what = "; ".join(f"source {number}: expected offsets of Kafka, found {sources[number]}" for number in numbers)
        raise InvalidRequest(f"{where}: {what}. How other sources go on: docs/guide/rescale.md")
    among = ", ".join(f"source {number} ({', '.join(sorted(found))})" for number, found in topics.items())
    if topic is not None:
        topics = {number: found for number, found in topics.items() if topic in found}
        if not topics:
            raise InvalidRequest(f"{where}: no source of Kafka has read topic {topic!r}; topics are those of {among}")
    meant = {sources[number] for number in topics}
    if len(meant) > 1:  # one that Spark has at two places of the plan has one offset
        raise InvalidRequest(
            f"{where}: which source of Kafka? There are {among}: give topic=…, or the number where both have read it"
        )
    return meant.pop()


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


def _kept(text: str | None) -> dict[str, dict[str, int]]:
    """The same, without the partitions that are gone, and whose loss the query has accepted."""
    offsets = _positions(text) or {}
    found = json.loads(text or "{}")
    gone = found.get("gone", {}) if "format" in found else {}
    kept = {
        topic: {number: offset for number, offset in partitions.items() if int(number) not in gone.get(topic, ())}
        for topic, partitions in offsets.items()
    }
    return {topic: partitions for topic, partitions in kept.items() if partitions}


def _topic_ids(text: str | None) -> dict[str, str]:
    """By name, as far as a source of ours has noted them."""
    found = json.loads(text or "{}")
    return dict(found.get("topic_ids", {})) if "format" in found else {}


def _with_new_partitions(
    kept: Mapping[str, Mapping[str, int]],
    all_read: Mapping[str, Mapping[str, int]],
    topic_ids: Mapping[str, str],
    options: Mapping[str, object],
) -> dict[str, dict[str, int]]:
    """``kept``, and what there is now: what was gone and is back goes on where it was, what is new at its earliest. So
    does what is back as another topic of that name.
    """
    from holdfast.source.kafka.bounds import EARLIEST_OFFSET  # loads the client, which not everybody has
    from holdfast.source.kafka.cluster import Cluster
    from holdfast.source.kafka.doubt import differ
    from holdfast.source.kafka.options import SourceOptions

    found = {topic: dict(partitions) for topic, partitions in kept.items()}
    given = {name: str(value) for name, value in options.items() if not name.lower().startswith("starting")}
    cluster = Cluster(SourceOptions.parse(given, streaming=True))
    try:
        topics = cluster.topics()
        for topic, number in topics.partitions:
            is_another = topic in topics.topic_ids and differ(topic_ids.get(topic), topics.topic_ids[topic])
            read = {} if is_another else all_read.get(topic, {})
            start = read.get(str(number), EARLIEST_OFFSET)
            found.setdefault(topic, {}).setdefault(str(number), start)
    finally:
        cluster.close()
    return found
