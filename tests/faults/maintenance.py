"""What a user does with checkpoints and savepoints, command by command: how each begins, what must hold when it was
killed anywhere, and when it was run again.

The past (`Past`) is made once; each try has a copy of what it needs. Judged by tests.faults.owned_oracle.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

from tests.checkpoint_driver import flip, operator_record
from tests.faults import owned_oracle as oracle
from tests.faults.begin_slots import OPERATOR, QUERY
from tests.faults.stored_state import States, Stored, read_states
from tests.slot_checkpoint import PREFIX, SlotCheckpoint, age
from tests.slot_checkpoint import QUERY as EARLIER

import holdfast as hf
from holdfast.checkpoint import Handle, VersionsOrigin, register_operator
from holdfast.inspect.savepoint import Format

SLOT = f"{PREFIX}/slot-00000"
#: Of a query that has begun, and whose slot has not copied what it begins with.
LIVING = "77777777-0000-4000-8000-000000000007"
NOTE = "notes.txt"

#: Runs a command to its end in a folder: its exit code, and what it said.
Run = Callable[[Path, list[str]], tuple[int, str]]


@dataclass
class Past:
    """A query's checkpoint, with what killed attempts left; a copy of its state; a savepoint of each format.

    Attributes
    ----------
    retained
        The handle of each batch that Spark retains, by batch.
    claimed
        An older one, with which another query begins.
    expected
        What the newest version holds.
    """

    folder: Path
    retained: dict[int, str]
    claimed: str
    expected: States
    content: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path) -> Past:
        query = SlotCheckpoint(folder)
        for batches in (5, 4, 12):
            query.batches(batches)
            shutil.copytree(query.slot, folder / "before", dirs_exist_ok=True)
        query.attempt()
        query.process.rest()
        query.start()
        query.batches(2)
        _put_back(folder / "before", query.slot)
        (query.slot / "sst" / f"{'f' * 32}-000009.sst").write_bytes(b"of a killed upload")
        handles = [handle for handle, _ in query.driver.history]
        commits = folder / "checkpoint" / "commits"
        named = ((batch, handles[batch + 1]) for batch in sorted(int(path.name) for path in commits.iterdir()))
        retained = {batch: handle.to_text() for batch, handle in named if handle is not None}
        claimed = _newest_whole(query.slot, handles[:6])
        assert claimed.to_text() not in retained.values()
        origin = VersionsOrigin(
            query.driver.store.uri, EARLIER, OPERATOR, claimed.batch_id, (claimed.stored(),), (OPERATOR,)
        )
        living = replace(operator_record(), origin=origin)
        register_operator(query.driver.store, living, prefix=f"{LIVING}/{OPERATOR}")
        age(folder / "store")
        shutil.copytree(folder / "store", folder / "backup")
        for form in get_args(Format):
            hf.Savepoint.create(checkpoint=folder / "checkpoint", state=folder / "store", to=folder / form, format=form)
        newest = retained[max(retained)]
        expected = read_states(folder / "store", [newest])
        sums = {(key,): value for key, value in query.driver.oracle.items()}
        assert expected[OPERATOR]["values"] == expected[OPERATOR]["folded"] == sums
        assert {key: sum(numbers) for key, numbers in expected[OPERATOR]["numbers"].items()} == sums
        made = cls(folder, retained, claimed.to_text(), expected)
        made.content = {path.name: oracle.content(path) for path in folder.iterdir() if path.is_dir()}
        return made

    @property
    def newest(self) -> int:
        return max(self.retained)

    def copy(self, folder: Path, *names: str) -> None:
        for name in names:
            shutil.copytree(self.folder / name, folder / name)

    def changes(self, folder: Path, *names: str) -> list[str]:
        """What is not as it was, or new, in folders that nobody may change."""
        found = []
        for name in names:
            after = oracle.content(folder / name)
            found += oracle.changed(self.content[name], after)
            found += [f"{name}/{new} is new" for new in after.keys() - self.content[name].keys()]
        return found


def _folders_of(source: str) -> tuple[str, ...]:
    return ("checkpoint", "store") if source == "checkpoint" else (source,)


def _put_back(before: Path, slot: Path) -> None:
    """What the query has deleted since, as if it had been killed before it could."""
    for path in sorted(before.rglob("*")):
        name = path.relative_to(before)
        if path.is_file() and not (slot / name).exists():
            shutil.copy2(path, slot / name)
    shutil.rmtree(before)


def _newest_whole(slot: Path, handles: list[Handle | None]) -> Handle:
    for handle in reversed(handles):
        if handle is None or not handle.snapshots or not all((slot / ref.name).exists() for ref in handle.snapshots):
            continue
        if all((slot / name).exists() for name in oracle.needed(slot, [handle.to_text()])):
            return handle
    raise AssertionError("no handle is whole")


class Command(ABC):
    """One command.

    Attributes
    ----------
    name
        The column of the table.
    read_later
        Folders whose rows only RocksDB knows: all are read at once, at the campaign's end.
    """

    name: str

    def __init__(self, past: Past) -> None:
        self.past = past
        self.read_later: list[Stored] = []

    @abstractmethod
    def prepare(self, folder: Path) -> list[str]:
        """Gives a folder what the command needs; the command."""

    @abstractmethod
    def killed(self, folder: Path, run: Run) -> list[str]:
        """What is wrong when it was killed."""

    @abstractmethod
    def ended(self, folder: Path) -> list[str]:
        """What is wrong when it has come to its end."""

    def again(self, folder: Path, command: list[str], run: Run) -> list[str]:
        """The same command, until it has come to its end: what it said where it did not."""
        code, said = run(folder, command)
        return [] if code == 0 else [f"run again: exit code {code}: {said}"]


class Making(Command):
    """Makes a savepoint, of a checkpoint or of a savepoint of the other format."""

    def __init__(self, past: Past, name: str, source: str, format: str) -> None:
        super().__init__(past)
        self.name, self._source, self._format = name, source, format
        self._sources = _folders_of(source)

    def prepare(self, folder: Path) -> list[str]:
        self.past.copy(folder, *self._sources)
        source, made = str(folder / self._source), ["--to", str(folder / "made"), "--json"]
        if self._source != "checkpoint":
            return ["holdfast", "savepoint", "convert", source, *made]
        given = ["--checkpoint", source, "--state", str(folder / "store"), "--format", self._format]
        return ["holdfast", "savepoint", "create", *given, *made]

    def killed(self, folder: Path, run: Run) -> list[str]:
        found = self.past.changes(folder, *self._sources)
        if oracle.is_whole(folder / "made"):
            return found + self._wrong(folder)
        code, said = run(folder, ["holdfast", "savepoint", "show", str(folder / "made")])
        if code != 1 or "holds no savepoint" not in said or "delete the folder" not in said:
            found.append(f"half of a savepoint was opened: exit code {code}: {said}")
        return found

    def again(self, folder: Path, command: list[str], run: Run) -> list[str]:
        code, said = run(folder, command)
        if code == 1 and (oracle.is_whole(folder / "made") or "may be deleted" in said):
            if oracle.is_whole(folder / "made"):
                return [] if "holds a savepoint already" in said else [f"run again: {said}"]
            shutil.rmtree(folder / "made")
            code, said = run(folder, command)
        return [] if code == 0 else [f"run again: exit code {code}: {said}"]

    def ended(self, folder: Path) -> list[str]:
        return [*self.past.changes(folder, *self._sources), *self._wrong(folder)]

    def _wrong(self, folder: Path) -> list[str]:
        made = folder / "made"
        if self._format == "canonical":
            return [] if oracle.tables(made) == self.past.expected else ["the tables have other rows"]
        stored, names = oracle.versions(made)
        if self._source != "checkpoint":
            self.read_later.append(stored)
            return []
        source, found = self.past.content["store"], oracle.content(made)
        return [f"{name} is not the checkpoint's" for name in names if found[name] != source[name]]


class Disposing(Command):
    """Disposes of a savepoint, beside which its owner has left a note; a native one shares the query's files."""

    def __init__(self, past: Past, name: str, format: str) -> None:
        super().__init__(past)
        self.name, self._format = name, format

    def prepare(self, folder: Path) -> list[str]:
        self.past.copy(folder, "checkpoint", "store")

        def shared(source: str, target: str) -> None:
            name = os.path.relpath(target, folder / "saved")
            ours = folder / "store" / name
            os.link(ours if ours.exists() else source, target)

        shutil.copytree(self.past.folder / self._format, folder / "saved", copy_function=shared)
        (folder / "saved" / NOTE).write_text("mine")
        return ["holdfast", "savepoint", "dispose", str(folder / "saved"), "--yes"]

    def killed(self, folder: Path, run: Run) -> list[str]:
        found = self._kept(folder)
        if oracle.is_whole(folder / "saved"):
            return found + oracle.changed(self.past.content[self._format], oracle.content(folder / "saved"))
        code, said = run(folder, ["holdfast", "savepoint", "show", str(folder / "saved")])
        if code != 1 or not ("dispose" in said or "holds no savepoint" in said):
            found.append(f"half of a savepoint was opened: exit code {code}: {said}")
        return found

    def again(self, folder: Path, command: list[str], run: Run) -> list[str]:
        code, said = run(folder, command)
        is_over = set(oracle.content(folder / "saved")) == {NOTE}
        if code == 0 or (code == 1 and is_over and "holds no savepoint" in said):
            return []
        return [f"run again: exit code {code}: {said}"]

    def ended(self, folder: Path) -> list[str]:
        left = set(oracle.content(folder / "saved")) - {NOTE}
        return [*self._kept(folder), *(f"{name} is left" for name in left)]

    def _kept(self, folder: Path) -> list[str]:
        lost = [] if (folder / "saved" / NOTE).exists() else ["the owner's note is gone"]
        return lost + self.past.changes(folder, "checkpoint", "store")


class Beginning(Command):
    """A query begins with a savepoint, or with an earlier query, with another number of slots."""

    def __init__(self, past: Past, name: str, source: str, slots: int) -> None:
        super().__init__(past)
        self.name, self._source, self._slots = name, source, slots
        self._sources = _folders_of(source)

    def prepare(self, folder: Path) -> list[str]:
        self.past.copy(folder, *self._sources)
        source = "+".join(str(folder / name) for name in self._sources)
        return ["begin", str(folder), source, str(self._slots)]

    def killed(self, folder: Path, run: Run) -> list[str]:
        return self.past.changes(folder, *self._sources)

    def ended(self, folder: Path) -> list[str]:
        self.read_later.append(oracle.begun(folder / "next-state", QUERY, OPERATOR, self._slots))
        return self.past.changes(folder, *self._sources)


class Collecting(Command):
    """Deletes what nothing needs; another query is about to begin with an older version."""

    name = "gc"

    def __init__(self, past: Past) -> None:
        super().__init__(past)
        slot = past.folder / "store" / SLOT
        handles = [*past.retained.values(), past.claimed]
        self._needed = {f"{SLOT}/{name}" for name in oracle.needed(slot, handles)}
        self._left: set[str] | None = None

    def prepare(self, folder: Path) -> list[str]:
        self.past.copy(folder, "checkpoint", "store")
        given = ["--state", str(folder / "store"), "--yes"]
        return ["holdfast", "checkpoints", "gc", str(folder / "checkpoint"), *given]

    def killed(self, folder: Path, run: Run) -> list[str]:
        return self._lost(folder)

    def _lost(self, folder: Path) -> list[str]:
        before, after = self.past.content["store"], oracle.content(folder / "store")
        may_go = {name for name in before if name.startswith(f"{SLOT}/")} - self._needed
        return [*self.past.changes(folder, "checkpoint"), *oracle.changed(before, after, may_go=may_go)]

    def ended(self, folder: Path) -> list[str]:
        """It leaves what it leaves when nobody kills it, and the file by which the killed one told the time: the next
        one deletes that when it is an hour old.
        """
        left = {name for name in oracle.content(folder / "store") if not name.startswith(f"{EARLIER}/gc-time-")}
        self._left = left if self._left is None else self._left
        differs = [f"{name} is left, or gone, where it was killed" for name in left ^ self._left]
        stray = f"{SLOT}/sst/{'f' * 32}-000009.sst"
        return [*self._lost(folder), *differs, *([f"{stray} is left"] if stray in left else [])]


class Repairing(Command):
    """Mends a delta that has a wrong bit, a table that is lost, and a manifest that is torn."""

    name = "repair"

    def __init__(self, past: Past) -> None:
        super().__init__(past)
        slot = past.folder / "store" / SLOT
        handle = past.retained[past.newest]
        way, *_ = oracle.ways(slot, handle)
        self._damaged = [
            next(name for name in sorted(way, reverse=True) if name.startswith(f"{sort}/"))
            for sort in ("delta", "snapshot", "sst")
        ]

    def prepare(self, folder: Path) -> list[str]:
        self.past.copy(folder, "checkpoint", "store", "backup")
        delta, manifest, table = (folder / "store" / SLOT / name for name in self._damaged)
        flip(str(delta))
        os.truncate(manifest, 20)
        table.unlink()
        given = ["--state", str(folder / "store"), "--backup", str(folder / "backup"), "--yes"]
        return ["holdfast", "checkpoints", "repair", str(folder / "checkpoint"), *given]

    def killed(self, folder: Path, run: Run) -> list[str]:
        """No file that was whole is another now; each damaged one is whole, or damaged or missing as it was."""
        before, after = self.past.content["store"], oracle.content(folder / "store")
        found = self.past.changes(folder, "checkpoint", "backup")
        for name, was in before.items():
            now = after.get(name)
            if now != was and not (name in self._as_damaged and now in (None, self._as_damaged[name])):
                found.append(f"{name} is {'gone' if now is None else 'another'}")
        return found

    @cached_property
    def _as_damaged(self) -> dict[str, str | None]:
        """What is in each damaged file before anybody mends it; None: it is lost."""
        work = self.past.folder.parent / "as-damaged"
        self.prepare(work)
        found = oracle.content(work / "store")
        return {f"{SLOT}/{name}": found.get(f"{SLOT}/{name}") for name in self._damaged}

    def ended(self, folder: Path) -> list[str]:
        after = oracle.content(folder / "store")
        known = set(self._as_damaged.values()) - {None}
        aside = {name: found for name, found in after.items() if f"{SLOT}/damaged/" in name}
        odd = [f"{name} is not what was damaged" for name, found in aside.items() if found not in known]
        lost = [f"{digest} was not kept" for digest in known - set(aside.values())]
        return [*oracle.changed(self.past.content["store"], after), *odd, *lost]


def commands(past: Past) -> list[Command]:
    """All, each the column of a table."""
    return [
        Making(past, "create", "checkpoint", "canonical"),
        Making(past, "create native", "checkpoint", "native"),
        Making(past, "convert", "native", "canonical"),
        Making(past, "to native", "canonical", "native"),
        Disposing(past, "dispose", "canonical"),
        Disposing(past, "dispose native", "native"),
        Beginning(past, "restore", "canonical", 2),
        Beginning(past, "restore native", "native", 3),
        Beginning(past, "rescale", "checkpoint", 3),
        Collecting(past),
        Repairing(past),
    ]
