"""The runs of an operator, in the order in which they came: ``runs/<number>-<run id>.json``. Format:
docs/formats/operator.md.

A run registers once, under a number above all that are there: in the driver before its first job, where that knows the
operator and another run was before, else in whichever of its processes comes first. Where another run took the same
number at the same moment, it takes a higher one too, and the highest counts. Only the newest may go on: an older one
that is still at work is the original of a copied checkpoint, or a process that outlived its query. If its query goes
on, it leaves a note before it stops, ``runs/<run id>.<slot>-<version>.alive``: the newest version that its checkpoint
has. One object for each operator and run in a process; safe for several threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.names import alive_name, parse_alive, parse_run, run_digits, run_name
from holdfast.errors import Corrupt, Fenced, Incompatible, InvalidRequest, Unavailable
from holdfast.sealed import seal, unseal
from holdfast.storage import FileStore

FORMAT = "holdfast.run"
VERSION = 1
_FIRST_BATCH = "first_batch"
#: Runs that are remembered. A query that starts anew each five minutes has 288 a day.
_KEPT = 300
#: How often one call takes a higher number. Those that meet again and again are in the order of their names.
_NUMBERS_MAX = 8


@dataclass(frozen=True)
class Alive:
    """The note of a run that went on, of one slot."""

    run_id: str
    slot: int
    sequence: int
    version_id: str
    name: str


@dataclass(frozen=True, order=True)
class Run:
    """A registered run. ``registered_ms``: by the store's clock."""

    number: int
    run_id: str
    registered_ms: int
    name: str


class Runs:
    """The runs of one operator, seen from one of them.

    Parameters
    ----------
    run_id, instance
        The run, and what tells this operator from another of the same name in that run. Where Spark's run is not known,
        ``run_id`` is made from the instance (:meth:`of_instance`).
    prefix
        The operator's folder in the store.
    """

    def __init__(self, store: FileStore, prefix: str, operator: str, run_id: str, instance: str) -> None:
        self._store = store
        self._prefix = prefix
        self._operator = operator
        self._instance = instance
        self._known: list[Run] = []
        self._alive: list[Alive] = []
        self._instances: dict[str, str | None] = {}  # by the name of a run's file, which never changes
        self.run_id = run_id
        self.fenced: Fenced | None = None  #: why this run has to stop, once that is known

    @staticmethod
    def of_instance(instance: str) -> str:
        """The run's name where Spark does not say which it is."""
        return f"instance-{instance}"

    @classmethod
    def seen_from(cls, store: FileStore, prefix: str, operator: str, digits: str) -> Runs:
        """The runs as the one whose versions begin with ``digits`` sees them, for one who only looks."""
        runs = cls(store, prefix, operator, digits, "")
        runs._known = runs._list()
        found = runs.by_digits(digits)
        if found is not None:
            runs.run_id, runs._instance = found.run_id, runs._instance_of(found) or ""
        return runs

    @property
    def own_digits(self) -> frozenset[str]:
        """Of all names that this run goes by: a program may hide Spark's in some of its batches."""
        hidden = self.of_instance(self._instance)
        own = {self.run_id, hidden}
        if self.run_id == hidden:  # what Spark calls it is known from those of its batches that told
            own.update(run.run_id for run in self._known if self._is_own(run))
        return frozenset(map(run_digits, own))

    @property
    def registered_ms(self) -> int:
        """When this run registered; 0 when that is forgotten."""
        return next((run.registered_ms for run in self._known if run.run_id == self.run_id), 0)

    def by_digits(self, digits: str) -> Run | None:
        """The run whose versions have names that begin with ``digits``; None when it is forgotten."""
        return next((run for run in self._known if run_digits(run.run_id) == digits), None)

    def ran_again(self, digits: str, batch_id: int) -> bool:
        """Whether the run that came next after the one of ``digits`` began with batch ``batch_id``: Spark had not
        committed it. One that began before it is of an older checkpoint. False where that is not known, as of runs that
        an earlier Holdfast registered.
        """
        made = self.by_digits(digits)
        if made is None or not made.number:
            return False
        try:
            instance = self._document_of(made).get("instance")
            hidden = self.of_instance(str(instance))
            for run in self._known:
                is_later = run.number > made.number and run.run_id != made.run_id
                document = self._document_of(run) if is_later else {}
                is_other_name = document.get("instance") == instance and hidden in (made.run_id, run.run_id)
                if document and not is_other_name:  # a program may start the same DataFrame again, too
                    return document.get(_FIRST_BATCH) == batch_id
        except (Corrupt, Incompatible):
            pass
        return False

    def register(self, first_batch: int | None = None, *, unless_first: bool = False) -> None:
        """Registers the run, if no process of it has.

        Parameters
        ----------
        first_batch
            The batch at hand, which is the run's first; None: it is not told.
        unless_first
            Leave it to another process where no run has registered yet.

        Raises
        ------
        InvalidRequest
            Two operators of one name in one run.
        Fenced
            Another run has registered since.
        """
        created: set[int] = set()
        while True:
            self._known = self._list()
            if unless_first and not self._known:
                return
            mine = [run for run in self._known if run.run_id == self.run_id]
            if mine and (len(created) == _NUMBERS_MAX or not self._is_shared(mine[-1].number, created)):
                break
            number = max((run.number for run in self._known), default=0) + 1
            fields: dict[str, Any] = {"operator": self._operator, "instance": self._instance}
            if first_batch is not None:
                fields[_FIRST_BATCH] = first_batch
            text = seal(FORMAT, VERSION, fields).encode()
            # Not created: another process of this run was first, and the next list has it.
            if self._store.create_if_absent(f"{self._prefix}/{run_name(number, self.run_id)}", text):
                created.add(number)
                self._forget_oldest()
        for run in mine:
            first = self._instance_of(run)
            if first != self._instance:
                raise InvalidRequest(
                    f"two operators of one query are both named {self._operator!r}; give each its own name= "
                    f"(this one is {self._instance!r}, the first is {first!r})"
                )
        self._check(mine[-1])

    def check_newest(self) -> None:
        """Looks again; Fenced when another run has registered since. What is raised once is raised ever after."""
        if self.fenced is None:
            self._known = self._list()
            mine = [run for run in self._known if run.run_id == self.run_id]
            # Forgotten: as many runs came after it as are remembered.
            self._check(mine[-1] if mine else Run(0, self.run_id, 0, ""))
        if self.fenced is not None:
            raise self.fenced

    def later(self) -> list[str]:
        """Looks again: the runs that registered after this one, the oldest first, or all where this one is forgotten;
        none where no run registered. For one who looks from this run's side and registers nothing.
        """
        self._known = self._list()
        number = max((run.number for run in self._known if run_digits(run.run_id) in self.own_digits), default=-1)
        return [run.run_id for run in self._known if run.number > number and not self._is_own(run)]

    def note_alive(self, slot: int, sequence: int, version_id: str) -> None:
        """Leaves the note that this run's query was given another batch after a newer run began, on a version that its
        checkpoint has. If that is of the newer run's lineage too, the one has only outlived the other.
        """
        name = f"{self._prefix}/{alive_name(self.run_id, slot, sequence, version_id)}"
        self._store.create_if_absent(name, b"")

    def alive(self, slot: int) -> list[Alive]:
        """The notes of a slot that other runs left, as of the last look."""
        return [note for note in self._alive if note.slot == slot and note.run_id != self.run_id]

    def forget_alive(self, notes: list[Alive]) -> None:
        """Takes notes away: of runs that were given up, or that this one goes on from."""
        if notes:
            self._store.delete([note.name for note in notes])
            self._alive = [note for note in self._alive if note not in notes]

    def _is_shared(self, number: int, created: set[int]) -> bool:
        """Whether another run has a number that this call took: both listed before either had created its file, and
        neither is known to have come first. Who came long ago does not take another one.
        """
        return number in created and any(run.number == number and run.run_id != self.run_id for run in self._known)

    def _is_own(self, run: Run) -> bool:
        if run.name not in self._instances:
            self._instances[run.name] = self._instance_of(run)
        return self._instances[run.name] == self._instance

    def _check(self, mine: Run) -> None:
        later = [run for run in self._known if run > mine and run.run_id != self.run_id]
        for run in reversed(later):
            if self._instance_of(run) == self._instance:  # this run, by its other name
                continue
            self.fenced = Fenced(
                f"operator {self._operator!r}: run {run.run_id} began after this one, {self.run_id}, with the same "
                f"state in {self._store.uri}/{self._prefix}. Two queries run from copies of one checkpoint, or this "
                f"one was given up. It deletes nothing more and stops. Stop one of the two for good, or give the copy "
                f"its own copy of the state folder (docs/guide/recovery.md)"
            )
            raise self.fenced

    def _instance_of(self, run: Run) -> str | None:
        instance = self._document_of(run).get("instance")
        return None if instance is None else str(instance)

    def _document_of(self, run: Run) -> dict[str, Any]:
        """Empty where it was deleted meanwhile: it is forgotten."""
        data = self._store.get(run.name)
        if data is None:
            if run.run_id == self.run_id:
                raise Unavailable(f"{run.name} in {self._store.uri} exists but cannot be read; try again")
            return {}
        return unseal(data, FORMAT, VERSION, f"{run.name} in {self._store.uri}")

    def _list(self) -> list[Run]:
        """All that are remembered, oldest first."""
        found = []
        alive = []
        for file in self._store.list(f"{self._prefix}/runs/"):
            if (noted := parse_alive(file.name)) is not None:
                alive.append(Alive(*noted, file.name))
            parsed = parse_run(file.name)
            if parsed is not None:
                found.append(Run(*parsed, file.modified_ms, file.name))
        self._alive = alive
        return sorted(found)

    def _forget_oldest(self) -> None:
        # Those without a number are of earlier versions; among them, the time is the order.
        oldest_first = sorted(self._known, key=lambda run: (run.number, run.registered_ms))
        old = [run.name for run in oldest_first[: max(0, len(oldest_first) + 1 - _KEPT)]]
        if old:
            self._store.delete(old)
