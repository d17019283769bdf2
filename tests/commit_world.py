"""A world for the committer without Spark: store, sinks and tasks that fail, crash or are overtaken at any step.

Everything outside the committer calls `World.step` before and after what it does, so a plan can strike anywhere: a
crash of the driver, an answer that is lost, a time-out at the other side, or another driver that takes over and comes
back. The processor draws a random number for each row it writes, so that output and state of different attempts differ.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.record import CommitRecord
from holdfast.commit.record_log import RecordLog
from holdfast.commit.retries import Retries
from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.commit.timeline import FORMAT, VERSION, Fork
from holdfast.commit.traces import Trace
from holdfast.errors import Corrupt, Fenced, HoldfastError, Incompatible, Unavailable
from holdfast.kafka.fates import Fate, State, fate
from holdfast.sealed import seal
from holdfast.storage import StoredFile

ACTIONS = ("crash", "refuse", "forget", "time out", "overtake", "fail a task")
#: What only a sink with witnesses stands: the other side forgets its names, a late task takes one.
WITNESSED = (*ACTIONS, "expire", "late task")
#: Epochs in names are counted modulo this; the product's ring is larger, so less of it meets.
RING = 2


class Crash(BaseException):
    """The driver is gone."""


class TaskFailed(Exception):
    """The job failed."""


#: What ends a driver to which it happens once, where it does not go on.
ENDS: Mapping[str, tuple[type[BaseException], ...]] = {
    "crash": (Crash,),
    "refuse": (Unavailable,),
    "forget": (),  # what it asked is asked again
    "time out": (Unavailable, TaskFailed),
    "overtake": (Fenced, TaskFailed),
    "fail a task": (),  # Spark tries it again, once
    "expire": (),
    "late task": (Unavailable, TaskFailed),
}
#: What else, where it happens more than once: others may have gone on by so much that no record tells of its batch, or
#: that one is deleted which it has listed.
ENDS_TWICE: Mapping[str, tuple[type[BaseException], ...]] = {
    "fail a task": (TaskFailed,),
    "overtake": (Incompatible, Corrupt),
}


class Clock:
    """Moves when somebody sleeps."""

    ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += seconds * 1000


@dataclass
class Transaction:
    """One generation of a transactional id."""

    name: str
    generation: int
    rows: list[tuple[int, int, int]]  # batch, partition, random number
    state: str = "open"  # prepared, committed, aborted
    epoch: int = 0
    trace: Trace = field(default_factory=Trace)


@dataclass
class Id:
    """What the coordinator says of a transactional id, to whoever has no witness."""

    state: State = State.EMPTY
    epoch: int = -1

    def begin(self, *, writes: bool = True) -> int:
        """Somebody takes it over: what is open is aborted."""
        self.epoch += 2 if self.state is State.ONGOING else 1
        self.state = State.ONGOING if writes else State.EMPTY
        return self.epoch

    def time_out(self) -> None:
        self.state, self.epoch = State.COMPLETE_ABORT, self.epoch + 1


@dataclass
class World:
    """All that outlives a driver. ``plan``: what happens at which step."""

    batches: int = 4
    sinks: int = 1
    partitions: int = 2
    plan: Mapping[int, str] = field(default_factory=dict)
    seed: int = 0
    epoch_in_names: bool = True
    witnessed: bool = True
    late: str = "writes"  # or "opens", or "gives up": what late tasks do
    spares_names: bool = True  # without witnesses: those of what Spark has yet to commit
    rows_stay: bool = True  # in the tasks that read what they are made of
    has_slots: bool = True  # which take over their versions: tasks that are done give no rows

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.steps = 0
        self.log: list[str] = []
        self.struck: list[str] = []  # of the plan, what has happened
        self.files: dict[str, bytes] = {}
        self.transactions: dict[str, dict[str, Transaction]] = {f"sink{i}": {} for i in range(self.sinks)}
        self.witnesses: dict[str, dict[int, Transaction]] = {f"sink{i}": {} for i in range(self.sinks)}  # by generation
        self.ids: dict[str, dict[str, Id]] = defaultdict(lambda: defaultdict(Id))  # by sink
        self.traces: dict[tuple[str, str], list[Trace]] = defaultdict(list)  # by query and sink
        self.owners: dict[tuple[str, str], str] = {}
        self.generations = 0
        self.backup: tuple[dict[str, bytes], dict[int, Any]] | None = None
        self.copy: Copy | None = None
        self.copying = False
        self.visible: dict[str, list[tuple[int, int, int]]] = {f"sink{i}": [] for i in range(self.sinks)}
        self.lost: set[tuple[int, ...]] = set()  # batch, partition: a sink has said so, whichever
        self.versions: dict[tuple[str, int], list[int]] = {}  # (run, task attempt): random numbers of that attempt
        self.spark_state: dict[int, list[dict[int, tuple[str, int]]]] = {}  # batch: by partition, as committed
        self.runs = 0
        self.fails_next_task = False
        self.overtaking = False

    @property
    def next_batch(self) -> int:
        return len(self.spark_state)

    def step(self, what: str, undo: Callable[[], None] | None = None, *, answer: bool = False) -> None:
        """Before something happens (it may be refused), or after it, with ``answer`` (the answer may get lost)."""
        self.steps += 1
        self.log.append(what)
        action = self.plan.get(self.steps)
        if action is None or action == ("refuse" if answer else "forget"):
            return
        self.struck.append(action)
        if action == "crash":
            raise Crash(what)
        if action in ("refuse", "forget"):
            raise Unavailable(f"{what}: the test wanted it")
        if action == "fail a task":
            self.fails_next_task = True
        if action == "time out":
            for name, sink in self.transactions.items():
                for transaction in sink.values():
                    if transaction.state in ("open", "prepared"):
                        transaction.state = "aborted"
                for one in self.ids[name].values():
                    if one.state is State.ONGOING:
                        one.time_out()
        if action == "expire":
            for sink in self.transactions.values():
                for name in [name for name, one in sink.items() if one.state in ("committed", "aborted")]:
                    del sink[name]
        if action == "late task":
            for name, sink in self.transactions.items():
                for used in self.chance.sample(sorted(sink), min(2, len(sink))):
                    WorldSink(self, name).open_late(used)
        if action == "back up":
            self.backup = dict(self.files), dict(self.spark_state)
        if action == "start the copy" and self.backup is not None and self.copy is None:
            self.copying = True
            self.copy = Copy(self, *self.backup)
            self.copy.end = self.copy.drive(min(len(self.copy.spark_state) + 2, self.batches))
            self.copying = False
        if action == "overtake" and not self.overtaking:
            self.overtaking = True
            drive(self, min(self.next_batch + 2, self.batches))
            self.overtaking = False

    def fork(self, query_id: str) -> None:
        """What `holdfast fork` leaves in the checkpoint."""
        fork = Fork(query_id, f"fork-of-{query_id}", query_id, "host", 1, 0)
        self.files["holdfast/forks/000001.json"] = seal(FORMAT, VERSION, asdict(fork)).encode()

    def check(self) -> None:
        """Each row of each batch is visible once, and is what the state says. Of several sinks one may have lost its
        row: it is written again from the state as it was, and the others keep what they have.
        """
        batches = self.batches
        for name, rows in self.visible.items():
            wanted = [(batch, partition) for batch in range(batches) for partition in range(self.partitions)]
            assert sorted(row[:2] for row in rows) == wanted, f"{name}: {self.log}"
        assert self.next_batch == batches
        for name, rows in self.visible.items():
            for batch, partition, number in rows:
                if self.sinks == 1 or (batch, partition) not in self.lost:
                    version = self.spark_state[batch][0][partition]
                    assert self.versions[version] == [number], f"{name}, batch {batch}, {partition}: {self.log}"


class Copy:
    """The same query from a copy of its checkpoint: what it writes goes where the original's goes."""

    def __init__(self, world: World, files: dict[str, bytes], spark_state: dict[int, Any]) -> None:
        self.world = world
        self.files = files
        self.spark_state = spark_state
        self.end: Any = None

    def drive(self, batches: int) -> Any:
        """As `drive`, in the copy's own folder."""
        mine = self.world.files, self.world.spark_state
        self.world.files, self.world.spark_state = self.files, self.spark_state
        try:
            return drive(self.world, batches)
        finally:
            self.world.files, self.world.spark_state = mine


class WorldStore:
    """Files in a dictionary."""

    uri = "world"

    def __init__(self, world: World) -> None:
        self._world = world

    def create_if_absent(self, name: str, data: bytes) -> bool:
        self._world.step(f"create {name}")
        created = name not in self._world.files
        self._world.files.setdefault(name, bytes(data))
        self._world.step(f"created {name}", answer=True)
        return created

    def get(self, name: str) -> bytes | None:
        self._world.step(f"get {name}")
        return self._world.files.get(name)

    def list(self, prefix: str) -> list[StoredFile]:
        self._world.step(f"list {prefix}")
        return [
            StoredFile(name, len(data), 0)
            for name, data in sorted(self._world.files.items())
            if name.startswith(prefix)
        ]

    def delete(self, names: Sequence[str]) -> None:
        self._world.step("delete")
        for name in names:
            self._world.files.pop(name, None)

    def sweep(self, prefix: str, before_ms: int) -> int:
        self._world.step(f"sweep {prefix}")
        return 0  # what is being written is no file here


class WorldSink:
    """Transactions as Kafka has them: an id has generations, and a new one ends the one before."""

    kind = "world"

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._ids = world.transactions[name]
        self._known = world.ids[name]

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        self._world.step("traces")
        found = list(self._world.traces[scope.query_id, scope.sink])
        self._world.step("traced", answer=True)
        return found

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        self._world.step("claim")
        self._world.owners[scope.query_id, scope.sink] = scope.run_id
        self.recover(scope, newest)
        check(list(self._world.traces[scope.query_id, scope.sink]))  # as they were: what comes later is another look
        if self._world.owners[scope.query_id, scope.sink] != scope.run_id:
            raise Fenced("another driver claims it at the same moment")
        self._world.traces[scope.query_id, scope.sink].append(Trace(scope.epoch, scope.run_id))
        self._world.step("claimed", answer=True)
        return {"owner": scope.run_id}

    def open_transaction(self, scope: Scope, batch_id: int, partition: int, attempt: int) -> Transaction:
        # Without the epoch, a late task of a driver that was overtaken would end what its successor prepared, or make
        # what that committed look lost; unless there are witnesses.
        epoch = scope.epoch % RING if self._world.witnessed else scope.epoch
        owner = epoch if self._world.epoch_in_names else "any"
        name = f"{scope.query_id}-{scope.sink}-{owner}-{partition}-{batch_id % 2}-{attempt}"
        return self.open_name(name, scope.run_id, scope.epoch, batch_id)

    def open_late(self, name: str) -> None:
        late, known = self.open_name(name, "late", 0, -1), self._known[name]
        if self._world.late == "opens":
            known.state = State.EMPTY
        if self._world.late == "gives up":
            late.state, known.state = "aborted", State.COMPLETE_ABORT

    def open_name(self, name: str, run_id: str, epoch: int, batch_id: int) -> Transaction:
        before = self._ids.get(name)
        if before is not None and before.state in ("open", "prepared"):
            before.state = "aborted"
        self._world.generations += 1
        trace, taken = Trace(epoch, run_id, batch_id), self._known[name].begin()
        transaction = Transaction(name, self._world.generations, [], epoch=taken, trace=trace)
        self._ids[name] = transaction
        self._world.witnesses[self.name][transaction.generation] = transaction
        return transaction

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        self._world.step("commit")
        if scope.claim and self._world.owners[scope.query_id, scope.sink] != scope.claim["owner"]:
            raise Fenced("another driver has claimed it")
        self._world.step("it is still the owner's")
        outcomes = []
        for one in committables:
            transaction = self._world.witnesses[self.name][one.body["generation"]]
            if self._outcome(transaction) is Outcome.LOST:
                (row,) = transaction.rows
                self._world.lost.add(row[:2])
                outcomes.append(Outcome.LOST)
                continue
            if transaction.state == "prepared":
                transaction.state, self._known[transaction.name].state = "committed", State.COMPLETE_COMMIT
                self._world.visible[self.name] += transaction.rows
                self._world.traces[scope.query_id, scope.sink].append(transaction.trace)
            assert transaction.state == "committed", "what was never visible was called so"
            outcomes.append(Outcome.DONE)
            self._world.step("mid_commit", answer=True)
        return outcomes

    def abort(self, scope: Scope, committables: Sequence[Committable]) -> None:
        assert scope.sink == self.name
        self._world.step("abort")
        for one in committables:
            transaction = self._world.witnesses[self.name][one.body["generation"]]
            if transaction.state == "prepared":
                transaction.state, self._known[transaction.name].state = "aborted", State.COMPLETE_ABORT

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        self._world.step("recover")
        kept = {one.body["generation"] for one in keep}
        by_name = not self._world.witnessed and self._world.spares_names
        spared = {one.body["name"] for one in keep} if by_name else set[str]()
        mine = [one for one in self._ids.values() if one.name.startswith(f"{scope.query_id}-{scope.sink}-")]
        swept = [one for one in mine if one.name not in spared and one.generation not in kept]
        strays = [one for one in swept if one.state in ("open", "prepared")]
        for stray in strays:
            stray.state = "aborted"
        for one in swept:
            if self._known[one.name].state in (State.EMPTY, State.ONGOING):
                self._known[one.name].begin(writes=False)
        self._world.step("recovered", answer=True)
        return len(strays)

    def abort_former(self, scope: Scope, names: Collection[str], newest: Sequence[Committable]) -> int:
        assert scope.claim, "after it was claimed"
        self._world.step("abort former")
        mine = [f"{scope.query_id}-{name}-" for name in self._world.transactions if name not in names]
        ids = [one for sink in self._world.transactions.values() for one in sink.values()]
        strays = [one for one in ids if one.state in ("open", "prepared") and one.name.startswith(tuple(mine))]
        for stray in strays:
            stray.state = "aborted"
        return len(strays)

    def _outcome(self, one: Transaction) -> Outcome:
        """What became of it: by its witness, or by how far its id's epoch has moved."""
        truth = Outcome.LOST if one.state == "aborted" else Outcome.DONE
        if self._world.witnessed:
            return truth
        known = self._known[one.name]
        told = fate(known.state.value, known.epoch - one.epoch)
        if told is Fate.FORGOTTEN:
            return truth  # a person looks
        # Contested: it is not open in its partitions any more, where whoever has begun another is.
        done = (Fate.OPEN, Fate.COMMITTED, Fate.ENDED, Fate.CONTESTED)
        return Outcome.DONE if told in done else Outcome.LOST


class Run:
    """One driver's run, and the tasks of its jobs."""

    def __init__(self, world: World) -> None:
        world.runs += 1
        self.world = world
        self.run_id = f"run{world.runs}"
        self.sinks = [WorldSink(world, name) for name in world.transactions]
        clock = Clock()
        retries = Retries(max_ms=1_000, backoff_ms=100, clock=clock, sleep=clock.sleep)
        driver = Driver(self.run_id, "host", 1, 0)
        options = CommitOptions(retries, 3, slots_take_over=world.has_slots, rows_stay=lambda: world.rows_stay)
        self.committer = Committer(WorldStore(world), "query", driver, self.sinks, options)  # type: ignore[arg-type]
        self._task_attempts = 0

    def play(self, batch_id: int) -> None:
        """One batch, as Spark runs it."""
        self.world.files.setdefault(f"offsets/{batch_id}", b"offsets of %d" % batch_id)
        state: dict[int, tuple[str, int]] = {}

        def job(replay: Replay | None) -> list[TaskResult]:
            state.clear()
            return [self._task(batch_id, partition, replay, state) for partition in range(self.world.partitions)]

        self.committer.run_batch(batch_id, job)
        if batch_id == self.world.next_batch:
            self.world.spark_state[batch_id] = [dict(state)]
            self.world.files[f"commits/{batch_id}"] = b"v1"
        else:  # overtaken, and yet not fenced: then both have the same truth
            assert self.world.spark_state[batch_id] == [state]
            raise Fenced("Spark sees that another driver committed the batch")

    def _task(
        self, batch_id: int, partition: int, replay: Replay | None, state: dict[int, tuple[str, int]], attempt: int = 0
    ) -> TaskResult:
        self.world.step("task")
        if replay is not None and partition not in replay.lost_partitions:
            if partition not in replay.tasks:
                return TaskResult(partition, attempt, 0, 1)
            recorded = replay.tasks[partition]
            state[partition] = (recorded.run_id, recorded.task_attempt_id)
            return TaskResult(partition, attempt, 0, 0 if self.world.has_slots else 1)
        self._task_attempts += 1
        version = (self.run_id, self._task_attempts)
        number = self.world.chance.randrange(1 << 30)
        opened = [
            (sink, sink.open_transaction(self.committer.scope(sink.name), batch_id, partition, attempt))
            for sink in self.sinks
            if replay is None or replay.writes(sink.name, partition)
        ]
        self.world.step("sink_mid")
        if self.world.fails_next_task:
            self.world.fails_next_task = False
            if attempt == 1:
                raise TaskFailed
            return self._task(batch_id, partition, replay, state, attempt + 1)
        committables: dict[str, Committable] = {}
        for sink, transaction in opened:
            if transaction.state != "open":
                raise TaskFailed("the writer was fenced")
            transaction.rows = [(batch_id, partition, number)]
            transaction.state = "prepared"
            body = {"name": transaction.name, "generation": transaction.generation}
            committables[sink.name] = Committable(partition, attempt, 1, 1, body)
        self.world.versions[version] = [number]
        state[partition] = version
        self.world.step("sink_after_prepare")
        return TaskResult(partition, attempt, version[1], 1, committables)


def drive(world: World, batches: int) -> Any:
    """A driver that runs until so many batches are committed, or it ends. What ended it."""
    run = Run(world)
    try:
        while world.next_batch < batches:
            run.play(world.next_batch)
    except (Crash, TaskFailed, HoldfastError) as end:
        return end
    return None


def drive_to_the_end(world: World, restarts: int = 40) -> list[Any]:
    """Starts drivers until all batches are committed; what ended each: something that struck, and once at most."""
    ends: list[Any] = []
    while world.next_batch < world.batches:
        ends.append(drive(world, world.batches))
        assert len(ends) < restarts, f"no progress: {ends[-3:]}\n{world.log[-60:]}"
    failed = [end for end in ends if end is not None]
    expected = [kind for action in world.struck for kind in ENDS[action]]
    expected += [kind for action, kinds in ENDS_TWICE.items() if world.struck.count(action) > 1 for kind in kinds]
    assert all(isinstance(end, tuple(expected)) for end in failed), (failed, world.struck, world.log)
    assert len(failed) <= len(world.struck), (failed, world.struck, world.log)
    return ends


def records(world: World) -> list[str]:
    return [name.rpartition("/")[2] for name in sorted(world.files) if "/records/" in name]


def after_the_first_record() -> int:
    """The step at which a driver looks whether it may make visible what it has recorded."""
    world = World(batches=1)
    drive(world, 1)
    written = next(
        number for number, what in enumerate(world.log) if what.startswith("created") and "/records/" in what
    )
    looks = (n for n in range(written, len(world.log)) if world.log[n].startswith("get holdfast/query/epochs/"))
    return 1 + next(looks)


def the_record(world: World, batch_id: int) -> CommitRecord:
    log = RecordLog(WorldStore(world), "query")  # type: ignore[arg-type]
    log.load()
    found = log.newest(batch_id)
    assert found is not None
    return found
