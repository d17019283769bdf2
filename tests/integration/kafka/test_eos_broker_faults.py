"""Batches committed to Kafka while brokers die and move and transactions time out. What a reader sees is each row once,
in order, from the attempts that the records name.

Without Spark (tests/kafka_query.py plays it), so that a fault strikes at exactly one step. With Spark, and kill -9 of
its processes: tests/faults/eos_harness.py.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_query import (
    DRIVER_STEPS,
    RECOVERY_STEPS,
    TASK_STEPS,
    KafkaQuery,
    TaskFailed,
    crashes,
    listen,
    side_by_side,
)

from holdfast.commit.sink import SinkTask, SinkWriter
from holdfast.errors import Fenced, Unavailable
from holdfast.kafka.transactions import Transactions
from holdfast.kafka.wire import Wire, wire_to
from holdfast.sink.kafka.former import EPOCHS_FENCED
from holdfast.testing import KafkaBroker, KafkaCluster

MakeQuery = Callable[..., KafkaQuery]


class MortalBroker:
    """A broker that is killed, and comes back while everybody else goes on."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.kills = 0
        self._starting: threading.Thread | None = None

    def kill(self) -> None:
        """kill -9, and a start in the background."""
        self.wait()
        self.broker.kill()
        self.kills += 1
        self._starting = threading.Thread(target=self.broker.start)
        self._starting.start()

    def wait(self) -> None:
        """Until it is there again."""
        if self._starting is not None:
            self._starting.join()
            self._starting = None


@pytest.fixture(scope="module")
def _own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture
def mortal(_own_broker: KafkaBroker) -> Iterator[MortalBroker]:
    made = MortalBroker(_own_broker)
    yield made
    made.wait()


@pytest.fixture(autouse=True)
def _listening(monkeypatch: pytest.MonkeyPatch) -> None:
    listen(monkeypatch)


@pytest.fixture
def make_mortal(mortal: MortalBroker, tmp_path: Path) -> MakeQuery:
    """Into the broker that dies."""
    return _maker(KafkaWorld(mortal.broker), tmp_path)


@pytest.fixture
def make(kafka: KafkaWorld, tmp_path: Path) -> MakeQuery:
    """Into the broker of all tests."""
    return _maker(kafka, tmp_path)


def _maker(world: KafkaWorld, folder: Path) -> MakeQuery:
    numbers = itertools.count()

    def made(**given: Any) -> KafkaQuery:
        topic = world.topic(partitions=2, name=f"eos-{uuid.uuid4().hex[:8]}")
        return KafkaQuery(world.servers, topic, folder / str(next(numbers)), **given)

    return made


# --- the broker is killed -----------------------------------------------------------------------------------------


def test_the_broker_is_killed_and_the_batch_goes_on(make_mortal: MakeQuery, mortal: MortalBroker) -> None:
    """Queries of one driver, each at another step when it dies. Tasks are tried again where the client does not wait
    for the broker; the driver waits in any case.
    """
    steps = (*TASK_STEPS, *DRIVER_STEPS)
    together = threading.Barrier(len(steps), mortal.kill, timeout=240)

    def strike(step: str) -> None:
        query = make_mortal()
        query.strike(step, together.wait)
        query.run_to_the_end()
        assert query.ends == [None], f"{step}: nothing of it ends the query"
        query.check()

    side_by_side(*[partial(strike, step) for step in steps])
    assert mortal.kills == 1


@pytest.mark.slow
def test_the_broker_is_killed_in_every_batch_and_at_every_step(make_mortal: MakeQuery, mortal: MortalBroker) -> None:
    steps = (*TASK_STEPS, *DRIVER_STEPS)
    query = make_mortal(batches=2 * len(steps))
    for batch, step in enumerate((*steps, *reversed(steps))):
        query.strike(step, mortal.kill, batch)
    query.run_to_the_end()
    assert (mortal.kills, query.ends) == (query.batches, [None])
    query.check()


def test_the_broker_is_killed_during_recovery(make_mortal: MakeQuery, mortal: MortalBroker) -> None:
    """Drivers that died left strays, or a record to finish; the broker dies when their successors have begun."""
    left = [("sink_after_prepare", step) for step in RECOVERY_STEPS[1:]]
    left += [(left_by, step) for left_by in ("after_record", "mid_commit") for step in RECOVERY_STEPS]
    together = threading.Barrier(len(left), mortal.kill, timeout=240)

    def strike(left_by: str, step: str) -> None:
        query = make_mortal()
        query.strike(left_by, query.crash)
        query.start()
        query.strike(step, together.wait)
        assert query.start() is None, f"{step} after {left_by}"
        query.check()

    side_by_side(*[partial(strike, *one) for one in left])
    assert mortal.kills == 1


@pytest.mark.slow
def test_a_broker_that_stays_away_ends_the_query_and_the_next_start_loses_nothing(
    make_mortal: MakeQuery, mortal: MortalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past commit.retry.max, after the record: the error is clear, and the record is finished by the next start."""
    monkeypatch.setattr("holdfast.sink.kafka.sink.PATIENCE_MS", 500.0)
    query = make_mortal(retry_max_ms=1000)
    query.strike("after_record", mortal.broker.kill)
    end = query.start()
    assert isinstance(end, Unavailable)
    assert "committing batch 1 to sink 'kafka' failed" in str(end)
    mortal.broker.start()
    query.retry_max_ms = 60_000
    assert query.start() is None
    query.check()


def test_connections_that_one_query_gives_up_do_not_stop_another(kafka: KafkaWorld) -> None:
    """A failure closes this process's connections to the cluster, while others ask over them."""
    config = {"bootstrap.servers": kafka.servers}
    shared = wire_to(config)
    left = [30] * 4

    def ask(number: int) -> None:
        while left[number]:
            Transactions(config, 30_000, shared).listing("nobody")
            left[number] -= 1

    asking = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(len(left))]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + 240
    while any(thread.is_alive() for thread in asking):
        shared.close()
        time.sleep(0.01)
        assert time.monotonic() < deadline, f"questions without an answer: {left}"
    assert left == [0] * 4


# --- transactions time out ----------------------------------------------------------------------------------------

_SECONDS = {"kafka.transaction.timeout.ms": 2000}


def test_a_driver_that_is_down_for_longer_than_a_transaction_lives(make: MakeQuery) -> None:
    def strike(step: str, revisions: list[int]) -> None:
        query = make(options=_SECONDS)
        query.strike(step, query.crash)
        query.start()
        assert crashes(query.ends) == 1
        before = query.records()
        query.wait_until_aborted()
        assert query.start() is None
        after = query.records()
        assert [record.revision for record in after] == revisions, step
        assert [record.offsets for record in after[: len(before)]] == [record.offsets for record in before]
        assert after[1].sinks["kafka"].done == ((0,) if step == "mid_commit" else ())
        query.check()

    side_by_side(
        # Nobody named it: the batch runs as if for the first time.
        partial(strike, "sink_after_prepare", [0, 0, 0, 0]),
        partial(strike, "before_record", [0, 0, 0, 0]),
        # Its record names it: all of it is lost and written again, from the same offsets, as the next revision.
        partial(strike, "after_record", [0, 1, 0, 0]),
        # One partition is visible, the other one is lost.
        partial(strike, "mid_commit", [0, 1, 0, 0]),
    )


def test_a_driver_that_sleeps_for_longer_than_a_transaction_lives(make: MakeQuery) -> None:
    """It says so, since a second job of one batch is not possible; the next start writes what was lost."""

    def strike(step: str) -> None:
        query = make(options=_SECONDS)
        query.strike(step, query.wait_until_aborted)
        end = query.start()
        assert isinstance(end, Unavailable)
        assert "batch 1: after its record was written, this was lost at the other side" in str(end)
        assert query.start() is None
        assert [record.revision for record in query.records()] == [0, 1, 0, 0], step
        query.check()

    side_by_side(partial(strike, "before_record"), partial(strike, "after_record"))


@pytest.mark.slow
def test_output_that_is_lost_again_and_again_is_written_once_in_the_end(make: MakeQuery) -> None:
    query = make(options=_SECONDS)
    for _ in range(3):
        query.strike("after_record", query.wait_until_aborted)
        assert isinstance(query.start(), Unavailable)
    assert query.start() is None
    assert [record.revision for record in query.records()] == [0, 3, 0, 0]
    query.check()


# --- zombies ------------------------------------------------------------------------------------------------------


def check_is_fenced(zombie: SinkWriter, query: KafkaQuery) -> None:
    """It may write no more, nor end what it wrote."""
    with pytest.raises(Fenced, match="took over its transactional id"):
        zombie.write(query.rows(SinkTask(query.scope, 1, 0, 0, 999)))
        zombie.prepare()


def test_a_zombie_task_that_wakes_up_after_its_batch_was_committed_is_fenced(make: MakeQuery) -> None:
    """Its executor was taken for lost; the retry's output is committed; then it goes on."""
    query = make()
    zombies: list[Any] = []

    def sleep() -> None:
        task = SinkTask(query.scope, query.batch, 0, 0, 999)
        zombies.append(query.open(task))
        raise RuntimeError("the executor is lost")

    query.strike("before_open", sleep)
    assert query.start() is None
    [zombie] = zombies
    check_is_fenced(zombie, query)
    zombie.abort()
    query.check()


def test_a_zombie_task_of_a_driver_that_died_is_fenced_by_the_next_one(make: MakeQuery) -> None:
    query = make()
    zombies: list[Any] = []

    def sleep() -> None:
        zombies.append(query.open(SinkTask(query.scope, query.batch, 0, 0, 999)))
        query.crash()

    query.strike("before_open", sleep)
    query.start()
    assert query.start() is None
    [zombie] = zombies
    check_is_fenced(zombie, query)
    query.check()


def test_a_zombie_task_that_opens_its_transaction_after_its_driver_was_overtaken(make: MakeQuery) -> None:
    """It has a name of its own, with its driver's epoch: what its successor committed stays as it is."""
    query = make()
    scope: list[Any] = []

    def fall_asleep() -> None:
        scope.append(query.scope)
        query.crash()

    query.strike("before_open", fall_asleep)
    query.start()
    late: list[Any] = []
    query.strike("after_commit", lambda: late.append(query.write(SinkTask(scope[0], 1, 0, 0, 999))))
    query.strike("before_open", query.crash, batch=2)
    query.start()
    assert len(late) == 1
    assert query.start() is None
    query.check()


def test_an_orphan_that_opens_its_transaction_after_the_sweep_stalls_readers_for_seconds_only(
    make: MakeQuery, kafka: KafkaWorld
) -> None:
    """It waits in user code while its driver dies, and the next one sweeps and goes on. 439 s of 15 min were seen."""
    query = make()
    scope: list[Any] = []

    def fall_asleep() -> None:
        scope.append(query.scope)
        query.crash()

    query.strike("before_open", fall_asleep)
    query.start()
    query.stays_up = True
    assert query.start() is None
    assert query.committer is not None
    orphan = query.write(SinkTask(scope[0], 1, 0, 0, 999))
    assert orphan.rows
    opened, before = time.monotonic(), kafka.end_of(query.topic)
    kafka.produce(query.topic, [b"of somebody else"])
    eventually(lambda: kafka.end_of(query.topic) > before, 60)
    assert time.monotonic() - opened < 60, "and the query is idle meanwhile"
    query.committer.close()


def test_an_attempt_that_was_given_up_and_opens_late_is_aborted_between_two_batches(
    make: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor that was taken for lost, of this very driver: under a name that nobody takes again."""
    monkeypatch.setattr("holdfast.commit.sweeps.FIRST_PAUSE_MS", 1.0)
    query = make(batches=5)
    late: list[Any] = []

    def fail() -> None:
        raise RuntimeError("the executor is lost")

    query.strike("before_open", fail)
    query.strike("after_commit", lambda: late.append(query.write(SinkTask(query.scope, 1, 0, 7, 999))), batch=2)
    query.strike("before_open", query.check_nothing_is_open, batch=4)
    assert query.start() is None
    assert len(late) == 1
    query.check()


def test_a_zombie_task_that_takes_the_name_of_what_was_committed_does_not_make_it_look_lost(make: MakeQuery) -> None:
    """It was given up in an earlier batch, and wakes up between the commit and the driver's death."""
    query = make()

    def wake_up() -> None:
        query.write(SinkTask(query.scope, query.batch, 0, 0, 999))
        query.crash()

    query.strike("after_commit", wake_up)
    query.start()
    assert crashes(query.ends) == 1
    assert query.start() is None
    query.check()


# --- two drivers --------------------------------------------------------------------------------------------------


def test_a_driver_that_wakes_up_after_another_took_over_changes_nothing(make: MakeQuery) -> None:
    def strike(step: str) -> None:
        query = make()
        heir = query.heir()

        def take_over() -> None:
            heir.committed = query.committed
            heir.run_to_the_end()

        query.strike(step, take_over)
        end = query.start()
        assert isinstance(end, (Fenced, TaskFailed)), f"{step}: {end}"
        assert heir.ends == [None]
        heir.check()

    side_by_side(*[partial(strike, step) for step in (*TASK_STEPS, *DRIVER_STEPS)])


def test_a_driver_that_is_overtaken_just_before_it_writes_its_record(make: MakeQuery) -> None:
    """Its successor has aborted what that record names: it ends, and the next start writes the batch again."""
    query = make()
    heir = query.heir()
    prepared, recorded = threading.Event(), threading.Event()

    def wait_for_the_record() -> None:
        prepared.set()
        assert recorded.wait(240)

    heir.strike("before_record", wait_for_the_record)
    beside = threading.Thread(target=heir.start)

    def be_overtaken() -> None:
        heir.committed = query.committed
        beside.start()
        assert prepared.wait(240)

    query.strike("before_record", be_overtaken)
    assert isinstance(query.start(), Fenced)
    recorded.set()
    beside.join()
    [end] = heir.ends
    assert isinstance(end, Unavailable)
    assert "just before this driver, of epoch 2, took its place" in str(end)
    heir.run_to_the_end()
    assert [record.revision for record in heir.records()] == [0, 1, 0, 0]
    heir.check()


# --- answers that stay away, drivers that die while they recover -----------------------------------------------------


def test_an_end_whose_answer_is_lost_is_asked_for_again(make: MakeQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    """EndTxn is done at the coordinator, and the connection is gone before it says so: for each of them once."""
    import kafka.errors
    from kafka.protocol.producer.transaction import EndTxnRequest

    query, told = make(), set()
    original = Wire.to_coordinator

    async def send(self: Wire, transactional_id: str, request: Any) -> Any:
        answer = await original(self, transactional_id, request)
        if isinstance(request, EndTxnRequest) and (request.producer_id, request.producer_epoch) not in told:
            told.add((request.producer_id, request.producer_epoch))
            raise kafka.errors.KafkaConnectionError("the test wanted it")
        return answer

    monkeypatch.setattr(Wire, "to_coordinator", send)
    assert query.start() is None
    claims = 1
    assert len(told) == query.batches * query.partitions + claims
    query.check()


def test_a_driver_that_dies_during_recovery_is_followed_by_one_that_begins_anew(make: MakeQuery) -> None:
    """The first left strays, or a record; two more die when they have begun with that; the last one ends it."""

    def strike(left_by: str, step: str) -> None:
        query = make()
        query.strike(left_by, query.crash)
        query.start()
        for _ in range(2):
            query.strike(step, query.crash)
            query.start()
        query.run_to_the_end()
        assert crashes(query.ends) == 3, f"{step} after {left_by}"
        query.check()

    left = [(left_by, step) for left_by in ("sink_after_prepare", "after_record") for step in RECOVERY_STEPS]
    side_by_side(*[partial(strike, *one) for one in left])


def test_a_driver_that_dies_between_two_fences_is_followed_by_one_that_fences_the_rest(
    make: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make()
    query.strike("before_record", query.crash)
    query.start()
    fence = Transactions.fence
    with monkeypatch.context() as patch:

        def fence_one(self: Transactions, ids: list[str], timeout_ms: int) -> None:
            fence(self, ids[:1], timeout_ms)
            query.crash()

        patch.setattr(Transactions, "fence", fence_one)
        query.start()
    assert crashes(query.ends) == 2
    assert query.start() is None
    query.check()


# --- long lives ---------------------------------------------------------------------------------------------------


def test_names_of_drivers_long_ago_are_left_alone_so_that_kafka_forgets_them(
    make: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start fences what a bounded number of drivers left, however many there were."""
    fence, fenced = Transactions.fence, []

    def note(self: Transactions, ids: list[str], timeout_ms: int) -> None:
        fenced.append(len(ids))
        fence(self, ids, timeout_ms)

    monkeypatch.setattr(Transactions, "fence", note)
    query = make()
    for _ in range(EPOCHS_FENCED + 4):
        query.strike("before_record", query.crash)
        query.start()
    assert query.start() is None
    assert crashes(query.ends) == EPOCHS_FENCED + 4
    assert max(fenced) == fenced[-1] <= EPOCHS_FENCED * query.partitions
    query.check()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["in good order", "mid_commit", "after_commit"])
def test_a_query_that_comes_back_when_kafka_has_forgotten_its_transactions(tmp_path: Path, stopped: str) -> None:
    """Stopped in good order, or killed before Spark had committed its last batch: it goes on by itself."""
    settings = {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with KafkaBroker(settings=settings) as broker:
        topic = KafkaWorld(broker).topic(partitions=2)
        query = KafkaQuery(broker.bootstrap_servers, topic, tmp_path, batches=2, options={**_SECONDS})
        killed = stopped != "in good order"
        if killed:
            query.strike(stopped, query.crash)
        query.start()
        assert crashes(query.ends) == killed
        known = Transactions({"bootstrap.servers": query.servers}, 30_000)
        eventually(lambda: not known.listing(".*"))
        query.batches = 4
        assert query.start() is None
        query.check()


@pytest.mark.slow
def test_names_whose_producer_runs_out_of_epochs_go_on_with_another_one(make: MakeQuery) -> None:
    """Kafka counts 32,767 of them for each name, so many batches later it gives the name another producer id."""
    query = make(batches=12)
    wire = wire_to({"bootstrap.servers": query.servers})
    names = [f"holdfast-{query.query_id}-kafka-e1-{place}-{parity}-0" for place in range(2) for parity in range(2)]

    def use_up() -> None:
        from kafka.protocol.producer.transaction import InitProducerIdRequest

        async def bump(name: str) -> int:
            epoch = 0
            while epoch < 32_764:
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, max_version=4)
                answer = await wire.to_coordinator(name, request)
                assert answer.error_code == 0, answer
                epoch = int(answer.producer_epoch)
            return epoch

        assert wire.call("use up epochs", 300_000, lambda: wire.gather(map(bump, names))) == [32_764] * 4

    query.strike("before_open", use_up, batch=4)
    query.strike("mid_commit", query.crash, batch=9)
    query.run_to_the_end()
    assert crashes(query.ends) == 1
    ids = {one.body["producer_id"] for record in query.records() for one in record.sinks["kafka"].committables}
    assert len(ids) >= 8
    query.check()


# --- two brokers --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_coordinator_moves_at_every_step(tmp_path: Path) -> None:
    """Two brokers take turns in dying, one step later in each batch; topic and transaction log are on both."""
    with KafkaCluster(2) as cluster:
        world = KafkaWorld(cluster.brokers[0])
        world.admin.create_topics([NewTopic("moving", 2, 2)])["moving"].result(120)
        query = KafkaQuery(cluster.bootstrap_servers, "moving", tmp_path)
        steps = ("sink_mid", "sink_after_prepare", "before_record", "after_record", "mid_commit")
        query.batches = len(steps) + 1
        moves = [MortalBroker(broker) for broker in cluster.brokers]
        for batch, step in enumerate(steps):
            other, dying = moves[(batch + 1) % 2], moves[batch % 2]

            def move(other: MortalBroker = other, dying: MortalBroker = dying) -> None:
                other.wait()
                dying.kill()

            query.strike(step, move, batch)
        query.run_to_the_end()
        assert sum(move.kills for move in moves) == len(steps)
        for one in moves:
            one.wait()
        query.check()
