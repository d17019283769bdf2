"""The table of fates against what brokers do: each row that a broker can be brought to, in every locked release."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_committed

from holdfast.errors import Unavailable
from holdfast.kafka.fates import Fate
from holdfast.kafka.markers import Markers
from holdfast.kafka.open_ends import look_at_places
from holdfast.kafka.transactions import Answer, Prepared, Transaction, Transactions, fate_of
from holdfast.testing import KafkaBroker, KafkaCluster, kafka_jars

ID = "holdfast-query-kafka-e1-0-0-0"
OLDER = [pytest.param(version, marks=pytest.mark.slow) for version in kafka_jars.releases()]


@pytest.fixture(scope="module", params=["newest", *OLDER])
def world(request: pytest.FixtureRequest) -> Iterator[KafkaWorld]:
    with KafkaBroker(version=None if request.param == "newest" else request.param) as broker:
        yield KafkaWorld(broker)


class Story:
    """One id, and the first transaction of its: a record in a topic of its own."""

    def __init__(self, world: KafkaWorld, timeout_ms: int = 60_000) -> None:
        self.world, self.topic = world, world.topic()
        self.known = Transactions({"bootstrap.servers": world.servers}, 30_000)
        self.id = f"{ID}-{self.topic}"
        self.first = self.begin(timeout_ms)

    def begin(self, timeout_ms: int = 60_000) -> Prepared:
        """Another producer takes the id and writes."""
        producer = Producer(
            {"bootstrap.servers": self.world.servers, "transactional.id": self.id, "transaction.timeout.ms": timeout_ms}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.topic, b"v", partition=0)
        assert producer.flush(120) == 0
        return self.now().prepared

    def now(self) -> Transaction:
        [found] = self.known.describe([self.id])
        assert found is not None
        return found

    def end(self, one: Prepared, commit: bool) -> None:
        assert self.known.end([one], commit) == [Answer.DONE]
        eventually(lambda: self.now().state.startswith("Complete"))

    def take(self) -> None:
        """Somebody initialises the id and writes nothing."""
        self.known.fence([self.id], 60_000)


def answers_to_a_commit(known: Transactions, one: Prepared) -> list[Answer]:
    """As the sink asks where there is no witness."""
    return known.told_of_takeovers([one], known.end([one], commit=True))


def committed(story: Story) -> None:
    story.end(story.first, commit=True)


def aborted(story: Story) -> None:
    story.end(story.first, commit=False)


def committed_then_taken(story: Story) -> None:
    committed(story)
    story.take()


def committed_then_begun_again(story: Story) -> None:
    committed(story)
    story.begin()


def committed_then_another_committed(story: Story) -> None:
    committed(story)
    story.end(story.begin(), commit=True)


def taken_while_open(story: Story) -> None:
    story.take()


def committed_then_begun_again_then_timed_out(story: Story) -> None:
    """Was taken for lost, and written twice."""
    committed(story)
    story.begin(1000)
    timed_out(story)


def committed_then_begun_again_then_aborted(story: Story) -> None:
    """Looks like a time limit of the first: why no writer aborts by request where there is no witness."""
    committed(story)
    story.end(story.begin(), commit=False)


def committed_then_begun_again_then_fenced(story: Story) -> None:
    """Looks like a fence of the first: why, where there is no witness, nobody fences what the next start asks for."""
    committed(story)
    story.begin()
    story.take()


def begun_again_while_open(story: Story) -> None:
    story.begin()


def begun_again_while_open_then_aborted(story: Story) -> None:
    story.end(story.begin(), commit=False)


def timed_out(story: Story) -> None:
    eventually(lambda: story.now().state == "CompleteAbort")


def left_open(story: Story) -> None:
    pass


@pytest.mark.parametrize(
    ("happens", "fate", "answer"),
    [
        (left_open, Fate.OPEN, Answer.DONE),
        (committed, Fate.COMMITTED, Answer.DONE),
        (aborted, Fate.ABORTED, Answer.OPPOSITE),
        (committed_then_taken, Fate.ENDED, Answer.DONE),
        (committed_then_begun_again, Fate.CONTESTED, Answer.DONE),
        (committed_then_another_committed, Fate.ENDED, Answer.DONE),
        (taken_while_open, Fate.ABORTED, Answer.FENCED),
        (begun_again_while_open, Fate.SUPERSEDED, Answer.FENCED),
        (begun_again_while_open_then_aborted, Fate.FORGOTTEN, Answer.UNKNOWN),
        (committed_then_begun_again_then_timed_out, Fate.FORGOTTEN, Answer.UNKNOWN),
        (committed_then_begun_again_then_aborted, Fate.ABORTED, Answer.FENCED),
        (committed_then_begun_again_then_fenced, Fate.ABORTED, Answer.FENCED),
        (timed_out, Fate.ABORTED, Answer.FENCED),
    ],
)
def test_the_fate_of_a_transaction_is_what_the_table_says(
    world: KafkaWorld, happens: Callable[[Story], None], fate: Fate, answer: Answer
) -> None:
    story = Story(world, 1000 if happens is timed_out else 60_000)
    happens(story)
    assert fate_of(story.now(), story.first) is fate
    assert answers_to_a_commit(story.known, story.first) == [answer]
    was_committed = happens.__name__.startswith("committed") or happens is left_open
    visible = [b"v"] * (was_committed + (happens is committed_then_another_committed))
    if happens in (committed_then_begun_again, begun_again_while_open):
        story.take()  # what was begun again would stall the reader
    eventually(lambda: read_committed(world.servers, story.topic) == visible)


@contextmanager
def without_its_follower(
    version: str, features: dict[str, int], timeout_ms: int
) -> Iterator[tuple[KafkaCluster, Transactions, Prepared]]:
    """A transaction whose coordinator cannot write its log: two replicas must have it, and one is dead."""
    settings = {"transaction.state.log.min.isr": "2"}
    with KafkaCluster(2, version=version, features=features, settings=settings) as cluster:
        world = KafkaWorld(cluster.brokers[0])
        world.admin.create_topics([NewTopic("t", 1, 2)])["t"].result(120)
        eventually(lambda: world.end_of("t") == 0)
        servers = cluster.bootstrap_servers
        producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": ID, "transaction.timeout.ms": timeout_ms}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"v", partition=0)
        assert producer.flush(120) == 0
        known = Transactions({"bootstrap.servers": servers}, 3_000)
        [found] = known.describe([ID])
        assert found is not None
        cluster.broker(3 - found.coordinator).kill()
        yield cluster, known, found.prepared


@pytest.mark.parametrize(
    ("version", "features"),
    [
        ("3.9", {}),
        pytest.param("3.3", {}, marks=pytest.mark.slow),
        pytest.param("4.0.0", {}, marks=pytest.mark.slow),
        pytest.param("4.3", {"transaction.version": 0}, marks=pytest.mark.slow),
    ],
)
def test_a_time_limit_that_its_coordinator_cannot_write_down_ends_nothing(
    version: str, features: dict[str, int]
) -> None:
    """Ongoing at X + 1 was taken for "committed, and taken over since": DONE, and a commit marker was forced onto a
    transaction that the coordinator aborted when its follower was back.
    """
    with without_its_follower(version, features, 10_000) as (cluster, known, one):

        def now() -> Transaction:
            [found] = known.describe([ID])
            assert found is not None
            return found

        def fate() -> Fate:
            try:
                return fate_of(now(), one)
            except Unavailable:
                return Fate.UNDER_WAY

        try:
            eventually(lambda: fate() is Fate.CONTESTED)
        except AssertionError:
            raise AssertionError(now()) from None
        with pytest.raises(Unavailable, match="is contested, its coordinator says .*Ongoing"):
            answers_to_a_commit(known, one)
        for settle in (
            lambda: Markers(known).wait_for([one], ["t"], None),
            lambda: Markers(known).sweep([ID], ["t"]),
        ):
            # A sweep knows of the id at its new epoch, and finds the old one in the partition.
            with pytest.raises(Unavailable, match="is still open in 1 partitions"):
                settle()
        look = known.wire.call("look", 3_000, lambda: look_at_places(known.wire, [("t", 0)]))
        assert [(end.producer_id, end.producer_epoch) for end in look.open_ends] == [
            (one.producer_id, one.producer_epoch)
        ]
        for broker in cluster.brokers:
            if not broker.running:
                broker.start()
        eventually(lambda: fate() is Fate.ABORTED)
        assert answers_to_a_commit(known, one) == [Answer.FENCED]
        deadline = time.monotonic() + 120
        while (found := read_committed(cluster.bootstrap_servers, "t")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found == []
