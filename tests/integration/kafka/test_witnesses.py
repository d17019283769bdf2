"""Whether a transaction was committed, and who writes to a query's sink: by what lies in the topic of witnesses."""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_query import KafkaQuery, crashes, listen, side_by_side
from tests.kafka_reading import read_committed

from holdfast.commit.sink import SinkTask
from holdfast.commit.timeline import Fork
from holdfast.errors import Corrupt, Fenced, Incompatible, InvalidRequest, Unavailable, Undecided
from holdfast.kafka.partition_log import Ending, PartitionLog
from holdfast.kafka.transactional_ids import EPOCH_RING
from holdfast.kafka.transactions import Transactions
from holdfast.kafka.wire import wire_to
from holdfast.sealed import seal
from holdfast.sink.kafka import KafkaSink
from holdfast.testing import KafkaBroker

MakeQuery = Callable[..., KafkaQuery]


@pytest.fixture(autouse=True)
def _listening(monkeypatch: pytest.MonkeyPatch) -> None:
    listen(monkeypatch)


@pytest.fixture
def make(kafka: KafkaWorld, tmp_path: Path) -> MakeQuery:
    numbers = itertools.count()

    def made(**given: Any) -> KafkaQuery:
        topic = kafka.topic(partitions=2, name=f"witnessed-{uuid.uuid4().hex[:8]}")
        return KafkaQuery(kafka.servers, topic, tmp_path / str(next(numbers)), **given)

    return made


def copy_of(query: KafkaQuery, folder: Path) -> KafkaQuery:
    """The query on a copy of its checkpoint, as it is now."""
    shutil.copytree(query.folder, folder)
    other = query.heir()
    other.folder = folder
    other.store = type(query.store)(str(folder))  # type: ignore[call-arg]
    other.committed = query.committed
    return other


def batches_in(query: KafkaQuery) -> Counter[int]:
    """How many rows of each batch a reader sees."""
    return Counter(int(value.split()[0]) for value in read_committed(query.servers, query.topic))


# --- did it commit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolated", [True, False])
def test_a_log_tells_what_was_committed_while_a_neighbour_is_open(kafka: KafkaWorld, isolated: bool) -> None:
    topic = kafka.topic(compression__type="uncompressed")
    neighbour = None if isolated else kafka.begin(topic, [b"neighbour"])
    opened = [kafka.begin(topic, [f"{number}".encode()]) for number in range(3)]
    opened[0].commit_transaction(30)
    opened[1].abort_transaction(30)
    log = PartitionLog(wire_to({"bootstrap.servers": kafka.servers}), topic, 0, 10_000)
    wanted = [(b"0", Ending.COMMITTED), (b"1", Ending.ABORTED), (b"2", Ending.OPEN)]

    def found() -> list[tuple[bytes, Ending]]:
        part = log.read(0 if isolated else 1, lambda key: True)
        assert part is not None
        return [(record.value, record.ending) for record in part.records]

    eventually(lambda: found() == wanted)
    assert log.read(1000, lambda key: True) is None, "the log ends before that"
    kafka.delete_before(topic, 2)
    part = log.read(0, lambda key: True)
    assert part is not None
    assert part.start == 2
    del neighbour, opened


def test_transactions_of_one_batch_that_ended_differently_and_are_forgotten(tmp_path: Path) -> None:
    """Killed between two ends, and down for longer than Kafka remembers: no answer would be right for both."""
    settings = {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with KafkaBroker(settings=settings) as broker:
        topic = KafkaWorld(broker).topic(partitions=2)
        options: dict[str, object] = {"kafka.transaction.timeout.ms": 2000}
        query = KafkaQuery(broker.bootstrap_servers, topic, tmp_path, options=options)
        query.strike("mid_commit", query.crash)
        query.start()
        query.wait_until_aborted()
        known = Transactions({"bootstrap.servers": query.servers}, 30_000)
        eventually(lambda: not known.listing(".*"))
        assert query.start() is None
        query.check()
        assert query.records()[1].sinks["kafka"].done == (0,)


def check_after_three_crashes(query: KafkaQuery, wake_up: Callable[[], None]) -> None:
    """``wake_up``, which ends the first driver, when a batch is visible; the next two die before they commit one."""
    query.strike("after_commit", wake_up)
    query.start()
    for step in ("before_end", "during_recover"):
        query.strike(step, query.crash, batch=query.batch)
        query.start()
    query.run_to_the_end()
    assert crashes(query.ends) == 3
    query.check()


def test_a_late_task_and_two_crashes_do_not_make_what_was_committed_look_lost(make: MakeQuery) -> None:
    """RFC 4's last limit: the name is taken over after its commit, swept, and the sweeper dies at once."""
    query = make()

    def wake_up() -> None:
        query.write(SinkTask(query.scope, query.batch, 0, 0, 999))
        query.crash()

    check_after_three_crashes(query, wake_up)


@pytest.mark.parametrize("does", ["opens", "writes", "fails"])
def test_without_witnesses_a_late_task_and_crashes_do_not_make_what_was_committed_look_lost(
    does: str, make: MakeQuery
) -> None:
    """One crash was enough: the next start's claim fenced the name, or the task had aborted by itself."""
    query = make(witness_topic=None)

    def wake_up() -> None:
        task = SinkTask(query.scope, query.batch, 0, 0, 999)
        late = query.sink.open(task) if does == "opens" else query.open(task)
        late.abort() if does == "fails" else late.prepare()
        query.crash()

    check_after_three_crashes(query, wake_up)


def test_a_witness_that_the_brokers_disk_has_changed_stops_the_start_and_nothing_is_written(
    make: MakeQuery, kafka: KafkaWorld
) -> None:
    """Killed after its commit; the next start looks whether it was one, and the broker sends what its disk has."""
    query = make()
    query.strike("after_commit", query.crash)
    query.start()
    seen = batches_in(query)
    own = query.query_id.encode()
    [log] = [path for path in kafka.broker.data.rglob("holdfast-witness-*/*.log") if own in path.read_bytes()]
    at = log.read_bytes().rindex(b"holdfast-" + own) + len("holdfast-")  # of a key: values have checksums of their own
    flip(log, at)
    try:
        end = query.start()
        assert isinstance(end, Corrupt), repr(end)
        assert "holdfast-witness-" in str(end) and "kafka-leader-election.sh" in str(end)
        assert batches_in(query) == seen
    finally:
        flip(log, at)
    query.run_to_the_end()
    query.check()


def flip(log: Path, at: int) -> None:
    with log.open("r+b") as file:
        file.seek(at)
        [before] = file.read(1)
        file.seek(at)
        file.write(bytes([before ^ 1]))


def test_a_topic_that_is_deleted_before_the_commit_is_not_taken_for_written(make: MakeQuery, kafka: KafkaWorld) -> None:
    def strike(step: str, again: bool) -> None:
        query = make()

        def delete() -> None:
            kafka.delete_topic(query.topic)
            if again:
                kafka.topic(partitions=2, name=query.topic)
            query.crash()

        query.strike(step, delete, batch=0)
        query.start()
        if not again:
            end = query.start()
            assert isinstance(end, InvalidRequest), repr(end)
            kafka.topic(partitions=2, name=query.topic)
        query.run_to_the_end()
        assert crashes(query.ends) == 1
        query.check()

    side_by_side(partial(strike, "after_record", False), partial(strike, "after_record", True))


@pytest.mark.slow
def test_a_name_that_runs_out_of_epochs_after_its_commit_is_still_done(make: MakeQuery) -> None:
    """Its producer id is another one then: the coordinator knows nothing of the one that is recorded."""
    query = make()

    def use_up() -> None:
        from kafka.protocol.producer.transaction import InitProducerIdRequest

        wire = wire_to({"bootstrap.servers": query.servers})
        names = [one.body["transactional_id"] for one in query.records()[1].sinks["kafka"].committables]

        async def bump(name: str) -> int:
            first = producer_id = -1
            while producer_id == first:
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, max_version=4)
                answer = await wire.to_coordinator(name, request)
                assert answer.error_code == 0, answer
                producer_id = int(answer.producer_id)
                first = producer_id if first < 0 else first
            return producer_id

        assert len(wire.call("use up epochs", 300_000, lambda: wire.gather(map(bump, names)))) == 2
        query.crash()

    query.strike("after_commit", use_up)
    query.run_to_the_end()
    assert crashes(query.ends) == 1
    query.check()


def test_a_witness_topic_that_was_made_again_leaves_each_transaction_to_a_person(
    make: MakeQuery, kafka: KafkaWorld
) -> None:
    query = make(options={"kafka.transaction.timeout.ms": 2000})
    own = f"witnesses-of-{query.topic}"
    query.sink = KafkaSink(
        query.servers, query.topic, partition_column="to", witness_topic=own,
        options={"kafka.transaction.timeout.ms": 2000},
    )  # fmt: skip
    query.strike("after_record", query.crash)
    query.start()
    query.wait_until_aborted()
    kafka.delete_topic(own)
    end = query.start()
    assert isinstance(end, Undecided), repr(end)
    names = [one.body["transactional_id"] for one in query.records()[1].sinks["kafka"].committables]
    assert all(name in str(end) for name in names)
    query.sink = KafkaSink(
        query.servers, query.topic, partition_column="to", witness_topic=own,
        when_undecided=dict.fromkeys(names, "lost"),
    )  # fmt: skip
    query.run_to_the_end()
    assert crashes(query.ends) == 1
    query.check()


# --- who writes here ----------------------------------------------------------------------------------------------


def test_a_checkpoint_that_was_restored_from_a_backup_is_refused(make: MakeQuery, tmp_path: Path) -> None:
    query = make(batches=2)
    assert query.start() is None
    restored = copy_of(query, tmp_path / "backup")
    query.batches = 6
    query.strike("before_record", query.crash, batch=4)
    query.start()
    restored.batches = 6
    for _ in range(2):
        end = restored.start()
        assert isinstance(end, Incompatible), repr(end)
        assert "the newest record here is of batch 1, at the sink's other side there is batch 3" in str(end)
        assert f"`holdfast fork {restored.store.uri}`" in str(end)
    assert batches_in(query) == Counter(dict.fromkeys(range(4), 10)), "nothing was written"
    assert query.start() is None, "and the original goes on"
    query.check()


def test_a_copy_beside_a_live_query_harms_nobody(make: MakeQuery, tmp_path: Path) -> None:
    """Started at any step of the original, once that has begun to write from where the copy was made."""
    query = make(batches=1)
    assert query.start() is None
    steps = ("before_open", "sink_after_prepare", "before_record", "after_record", "mid_commit", "after_commit")
    ends: list[Any] = []
    for number, step in enumerate(steps):
        copy = copy_of(query, tmp_path / f"copy-{number}")
        copy.batches = 20
        query.strike(step, lambda copy=copy: ends.append(copy.start()), batch=2 + number)  # type: ignore[misc]
    query.batches = 2 + len(steps)
    assert query.start() is None
    assert [type(end) for end in ends] == [Incompatible] * len(steps), ends
    query.check()


def test_a_copy_that_starts_where_nothing_was_written_since_takes_over(make: MakeQuery, tmp_path: Path) -> None:
    """Nobody can tell which of the two is meant: the one that runs before is fenced, and refused from then on."""
    query = make(batches=2)
    copies: list[KafkaQuery] = []
    ends: list[Any] = []

    def start_a_copy() -> None:
        copy = copy_of(query, tmp_path / "copy")
        copy.batches = 2
        copies.append(copy)
        ends.append(copy.start())

    query.strike("before_open", start_a_copy, batch=0)
    first = query.start()
    assert (ends, len(copies)) == ([None], 1) or isinstance(ends[0], Incompatible), ends
    if ends == [None]:
        assert not isinstance(first, type(None))
        assert isinstance(query.start(), Incompatible)
        copies[0].check()
    else:
        assert first is None
        query.check()


def test_a_copy_that_was_forked_goes_on_under_identities_of_its_own(make: MakeQuery, tmp_path: Path) -> None:
    query = make(batches=2)
    assert query.start() is None
    fork = copy_of(query, tmp_path / "fork")
    query.batches = 4
    assert query.start() is None
    forks = fork.folder / "holdfast" / "forks"
    forks.mkdir(parents=True)
    timeline = str(uuid.uuid4())
    text = seal("holdfast.fork", 1, vars(Fork(query.query_id, timeline, query.query_id, "localhost", 1, 0)))
    (forks / "000001.json").write_text(text)
    fork.batches = 3
    assert fork.start() is None
    assert batches_in(query) == Counter({0: 10, 1: 10, 2: 20, 3: 10}), "what came after the copy is there once more"
    known = Transactions({"bootstrap.servers": query.servers}, 30_000)
    assert known.listing(f"holdfast-{timeline}-.*")
    query.batches = 6
    assert query.start() is None, "the original knows nothing of it"
    fork.batches = 6
    assert fork.start() is None


def test_names_are_bounded_over_many_starts(make: MakeQuery) -> None:
    query = make(batches=1000)
    for number in range(40):
        query.strike("before_record", query.crash, batch=number // 2)
        query.strike("after_commit", query.crash, batch=number // 2)
        query.start()
    query.batches = query.committed + 1
    query.run_to_the_end(starts=60)
    known = Transactions({"bootstrap.servers": query.servers}, 30_000)
    names = known.listing(f"holdfast-{query.query_id}-kafka-e[0-9]+-.*")
    assert 0 < len(names) <= EPOCH_RING * 2 * query.partitions
    query.check()


def test_without_witnesses_names_above_ours_stop_a_copy(make: MakeQuery, tmp_path: Path) -> None:
    query = make(batches=1)
    query.sink = KafkaSink(query.servers, query.topic, partition_column="to", witness_topic=None)
    assert query.start() is None
    copy = copy_of(query, tmp_path / "copy")
    query.batches = 3
    assert query.start() is None
    copy.batches = 3
    end = copy.start()
    assert isinstance(end, Incompatible), repr(end)
    query.check()


# --- the topic ----------------------------------------------------------------------------------------------------


def test_a_witness_topic_that_forgets_is_refused(make: MakeQuery, kafka: KafkaWorld) -> None:
    query = make()
    for number, config in enumerate(
        (
            {"cleanup.policy": "delete"},
            {"cleanup.policy": "compact,delete", "compression.type": "uncompressed"},
            {"cleanup.policy": "compact"},
        )
    ):
        name = f"forgets-{query.topic}-{number}"
        kafka.admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(120)
        query.sink = KafkaSink(query.servers, query.topic, partition_column="to", witness_topic=name)
        end = query.start()
        assert isinstance(end, InvalidRequest), repr(end)
        assert "cannot hold witnesses: it has cleanup.policy=" in str(end)


def test_a_driver_that_was_overtaken_by_a_copy_is_fenced_before_it_commits(make: MakeQuery, tmp_path: Path) -> None:
    query = make(batches=2)
    ends: list[Any] = []

    def take_over() -> None:
        copy = copy_of(query, tmp_path / "copy")
        copy.batches = 1
        ends.append(copy.start())

    query.strike("after_record", take_over, batch=0)
    end = query.start()
    assert ends == [None], "the copy has the record, and commits it"
    assert isinstance(end, (Fenced, Unavailable)), repr(end)
    assert batches_in(query) == Counter({0: 10})


def renamed(query: KafkaQuery, **given: Any) -> KafkaSink:
    return KafkaSink(query.servers, query.topic, partition_column="to", **given)


@pytest.mark.parametrize("changed", [{"name": "new"}, {"name": "new", "witness_topic": None}])
def test_readers_do_not_wait_for_what_a_sink_of_another_name_left_open(
    make: MakeQuery, changed: dict[str, Any]
) -> None:
    """They stood still for its transaction timeout, 15 minutes, also for what the new sink had committed."""
    query = make()
    query.strike("before_record", query.crash)
    query.start()
    query.sink = renamed(query, **changed)
    query.run_to_the_end()
    assert crashes(query.ends) == 1
    query.check()


def test_readers_do_not_wait_for_what_a_sink_left_open_in_another_mode(make: MakeQuery) -> None:
    query = make(batches=1)
    query.strike("before_record", query.crash, batch=0)
    query.start()
    assert query.open_ends()
    query.sink = renamed(query, mode="at-least-once")
    query.run_to_the_end()
    query.check_nothing_is_open()


def test_a_copy_of_the_checkpoint_is_refused_under_another_name_too(make: MakeQuery, tmp_path: Path) -> None:
    """It looked for its own name, found nothing, and wrote everything since the copy once more."""
    query = make(batches=2)
    query.run_to_the_end()
    copy = copy_of(query, tmp_path / "copy")
    query.batches = 3
    query.run_to_the_end()
    copy.sink, copy.batches = renamed(copy, name="new"), 4
    assert isinstance(copy.start(), Incompatible)
    query.check()
