"""Whether a slot's state belongs to the checkpoint that a handle came from, or was taken on from another copy of it.

Spark's checkpoint is a folder, and folders are copied, restored and rolled back. Two copies of one name the same
state; the one that deletes what it no longer needs would take it from the other. What is seen of the other are its
deltas: a version that is no ancestor of ours and whose parent is none either was made on a version that another
checkpoint committed. A crashed or failed attempt never looks so: its parent is committed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.checkpoint.delta_file import DeltaIdentity, identity_of
from holdfast.checkpoint.handle import Handle, StoredHandle
from holdfast.checkpoint.names import delta_name, maker_of, parse_version, run_digits
from holdfast.checkpoint.runs import Alive, Runs
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Corrupt, Fenced, Incompatible
from holdfast.storage import StoredFile

#: Deltas of other runs, newest first, whose parents are looked at. More are left by nothing but a query that fails
#: again and again at one batch; and a timeline that is alive is among the newest.
_READ_MAX = 8
SETTING = "spark.holdfast.abandonedRuns"


@dataclass(frozen=True)
class Foreign:
    """A delta of another timeline."""

    sequence: int
    version_id: str
    name: str

    @property
    def digits(self) -> str:
        return maker_of(self.version_id)


class Timeline:
    """Of one slot in one run. ``runs`` is the operator's, shared by its slots in this process."""

    def __init__(self, context: SlotContext, runs: Runs) -> None:
        self._context = context
        self._runs = runs
        self._admitted_at: int | None = None  # the sequence that this run went on from, in this process
        abandoned = context.settings.abandoned_runs
        self._abandoned = frozenset(run_digits(run_id) for run_id in abandoned) | frozenset(abandoned)

    def admit(self, handle: Handle | None, batch_id: int, *, look_again: bool = False) -> None:
        """Before batch ``batch_id`` on ``handle``'s version; looks at storage once.

        Parameters
        ----------
        look_again
            Whether an attempt at this task failed: perhaps in a process that knew of another run what this one does
            not know yet. Otherwise Spark would try again until it finds such a process, batch after batch.

        Raises
        ------
        Incompatible
            The state was taken on, past ``handle``, from another copy of the checkpoint; or Spark gives no handle of a
            slot that has had a version.
        Fenced
            This run was found to be overtaken.
        """
        try:
            if look_again:
                self.check_alone(handle)
            if self._runs.fenced is not None:
                raise self._runs.fenced
        except Fenced:
            if handle is not None:
                self._runs.note_alive(self._context.slot, handle.sequence, handle.version_id)
            raise
        if self._admitted_at is not None:
            return
        self._check_taken_on(handle, batch_id)
        self._admitted_at = handle.sequence if handle else 0

    def check_newest(self, handle: StoredHandle) -> None:
        """Where the newest delta of ``handle`` is missing or damaged: raises as :meth:`admit`, if what came after
        ``handle`` tells why, or nothing of any slot is there.
        """
        if self._runs.fenced is not None:
            self._runs.note_alive(self._context.slot, handle.sequence, handle.version_id)
            raise self._runs.fenced
        self._check_taken_on(handle)
        if not self._context.file_store.list(f"{self._context.prefix}/slot-"):
            raise self._nothing_there(handle)

    def _check_taken_on(self, handle: Handle | StoredHandle | None, batch_id: int | None = None) -> None:
        folder = self._context.stored("")
        listed = [
            StoredFile(file.name[len(folder) :], file.size_bytes, file.modified_ms)
            for file in self._context.file_store.list(f"{folder}delta/")
        ]
        foreign = self._foreign(listed, handle, self._since_ms(listed, handle))
        if foreign:
            raise self._older(handle, foreign)
        if handle is None and batch_id is not None:
            self._check_never_begun(listed, batch_id)

    def check_alone(self, handle: Handle | None) -> None:
        """Before anything is done in the background: Fenced when another run has registered after this one, or an
        earlier one goes on.
        """
        self._runs.check_newest()
        notes = self._runs.alive(self._context.slot)
        alive = self._unsettled(handle, notes)
        self._runs.forget_alive([note for note in notes if note not in alive])
        if alive:
            self._fence(handle, sorted({note.run_id for note in alive}))

    def check_listed(self, handle: Handle, listed: Iterable[StoredFile]) -> None:
        """Before anything of ``listed``, the slot's files, is deleted: Fenced when they show that an earlier run goes
        on, or that this one has two lines of versions.
        """
        listed = list(listed)
        since_ms = self._runs.registered_ms
        foreign = self._foreign(listed, handle, since_ms) or self._left_behind(listed, handle, since_ms)
        if foreign:
            self._fence(handle, self._ids(foreign))
        twin = self._second_line(listed, handle)
        if twin is not None:
            self._runs.fenced = self._stands_twice(handle, twin)
            raise self._runs.fenced

    def others(self, handle: Handle, listed: Iterable[StoredFile]) -> list[str]:
        """Runs that may go on with the slot from another copy of the checkpoint: by what they left among ``listed``,
        its files, or because they registered later and have committed nothing here. For one who only looks, from the
        side of the run that made ``handle``, the newest of its checkpoint. Changes nothing.
        """
        listed = list(listed)
        later = [run_id for run_id in self._runs.later() if run_digits(run_id) not in self._abandoned]
        alive = [note.run_id for note in self._unsettled(handle, self._runs.alive(self._context.slot))]
        foreign = self._foreign(listed, handle, self._since_ms(listed, handle))
        foreign += self._made_since(listed, handle, self._runs.registered_ms)
        return sorted({*later, *alive, *self._ids(foreign)})

    def _unsettled(self, handle: Handle | None, notes: list[Alive]) -> list[Alive]:
        """Those of runs that may go on: they are not given up, and have a version that is no ancestor of ``handle``'s.

        Nor does one go on whose version retention has taken already, below all whose ancestors can be told: it has
        outlived its query by long, or is a copy that slept for so long that nothing here is left of what it needs.
        """
        notes = [note for note in notes if run_digits(note.run_id) not in self._abandoned]
        if handle is None or not notes:
            return notes
        versions = self._ancestors(handle, min(note.sequence for note in notes))
        return [
            note
            for note in notes
            if versions.get(note.sequence) != note.version_id
            and (
                note.sequence in versions
                or note.sequence > handle.floor
                or self._is_stored(delta_name(note.sequence, note.version_id))
            )
        ]

    def _is_stored(self, name: str) -> bool:
        name = self._context.stored(name)
        return any(file.name == name for file in self._context.file_store.list(name))

    def _fence(self, handle: Handle | None, others: list[str]) -> None:
        """This run is the newer one of two that live; it cannot know which is meant to."""
        self._runs.fenced = Fenced(
            f"{self._where(handle)}: {_runs(others)} went on with the same state in "
            f"{self._context.file_store.uri}/{self._context.prefix} after this run, {self._runs.run_id}, began: two "
            f"queries run from copies of one checkpoint. Nothing more is deleted, and both stop. Stop the other one "
            f"for good and set {SETTING}={','.join(others)} for this one, or give one of them its own copy of the "
            f"state folder (docs/guide/recovery.md)"
        )
        raise self._runs.fenced

    def _since_ms(self, listed: list[StoredFile], handle: Handle | StoredHandle | None) -> int:
        """Others' versions from before this do not count: the run that made the handle's version knew of them."""
        if handle is None:
            return 0
        maker = self._runs.by_digits(maker_of(handle.version_id))
        if maker is not None:
            return maker.registered_ms
        own = (handle.sequence, handle.version_id)
        return next((file.modified_ms for file in listed if parse_version(file.name) == own), 0)

    def _foreign(
        self, listed: Iterable[StoredFile], handle: Handle | StoredHandle | None, since_ms: int
    ) -> list[Foreign]:
        """Deltas of other timelines since then, the newest version first; of a text alone, those after its version."""
        if isinstance(handle, StoredHandle):
            versions, start, sequence = {handle.sequence: handle.version_id}, handle.sequence, handle.sequence
        else:
            versions = handle.versions if handle else {}
            start, sequence = (handle.start, handle.sequence) if handle else (0, 0)
        ignored = self._runs.own_digits | self._abandoned
        maker = maker_of(handle.version_id) if handle else ""
        found: list[Foreign] = []
        unclear: list[tuple[int, Foreign]] = []
        for file in listed:
            version = parse_version(file.name) if file.name.startswith("delta/") else None
            # Of the same instant too: object stores tell whole seconds, and a query may be stopped and started in one.
            if version is None or file.modified_ms <= since_ms:
                continue
            other = Foreign(*version, file.name)
            if other.digits in ignored or other.sequence <= start or versions.get(other.sequence) == other.version_id:
                continue
            if other.sequence > sequence + 1:
                found.append(other)
            elif other.digits != maker:  # what the handle's own run left there were failed attempts
                unclear.append((file.modified_ms, other))
        newest = sorted(unclear, key=lambda entry: entry[0], reverse=True)[:_READ_MAX]
        found += [other for _, other in newest if self._is_on_foreign_version(other, versions)]
        return sorted(found, key=lambda other: other.sequence, reverse=True)

    def _second_line(self, listed: Iterable[StoredFile], handle: Handle) -> Foreign | None:
        """The newest version that this very run made on two of its own that are none of ``handle``'s: of one slot, a
        second state in Spark's checkpoint. Attempts that failed are made on ``handle``'s; and one may be made on an
        attempt that did not count, where Spark takes that for its state (docs/rfcs/0020), but hardly two.
        """
        mine = self._runs.own_digits - self._abandoned
        versions = handle.versions
        others = {
            version: Foreign(*version, file.name)
            for file in listed
            if file.name.startswith("delta/")
            and (version := parse_version(file.name)) is not None
            and handle.start < version[0] <= handle.sequence + 1
            and versions.get(version[0]) != version[1]
            and maker_of(version[1]) in mine
        }
        for one in sorted(others.values(), key=lambda other: other.sequence, reverse=True)[:_READ_MAX]:
            made = self._identity_of(one)
            before = others.get((one.sequence - 1, made.parent_id)) if made is not None else None
            if before is not None and self._is_on_foreign_version(before, versions):
                return one
        return None

    def _check_never_begun(self, listed: Iterable[StoredFile], batch_id: int) -> None:
        """Of a slot of which Spark has no handle. One that another run made a version of, in a batch before this one,
        has had a handle: Spark has committed that batch since, or this one would not run. Unless the run after it ran
        the batch once more, and the slot had no rows in it then: what had failed was taken out of the input.
        """
        ignored = self._runs.own_digits | self._abandoned
        firsts = [
            (file.modified_ms, Foreign(*version, file.name))
            for file in listed
            if (version := parse_version(file.name)) is not None and version[0] == 1
        ]
        others = sorted(((ms, one) for ms, one in firsts if one.digits not in ignored), key=lambda entry: -entry[0])
        for _, one in others[:_READ_MAX]:
            made = self._identity_of(one)
            if made is not None and made.batch_id < batch_id and not self._runs.ran_again(one.digits, made.batch_id):
                raise self._forgotten(one, made.batch_id, batch_id)

    def _left_behind(self, listed: Iterable[StoredFile], handle: Handle, since_ms: int) -> list[Foreign]:
        """As :meth:`_foreign`, below what the handle lists.

        A process that outlived its query leaves one version a slot there, on the one that this run went on from or on
        an older one, and no second one on top of it. Times alone make nobody another timeline: clocks are set right,
        and what is mended is newer than it was. Ancestors are none, nor is a run whose newest one is made on an
        ancestor: it failed there. Which batch they are of tells nothing: the original of a copy may lag far behind it.
        """
        ignored = self._runs.own_digits | self._abandoned
        others = [
            other
            for file in listed
            if file.name.startswith("delta/")
            and file.modified_ms > since_ms
            and (version := parse_version(file.name)) is not None
            and version[0] <= handle.start
            and (other := Foreign(*version, file.name)).digits not in ignored
        ]
        outlived_at_most = (self._admitted_at if self._admitted_at is not None else handle.sequence) + 1
        if not _more_than_outlived(others, outlived_at_most):
            return []
        versions = self._ancestors(handle, min(other.sequence for other in others) - 1)
        others = [other for other in others if versions.get(other.sequence) != other.version_id]
        suspects = _more_than_outlived(others, outlived_at_most)
        failed = [
            other
            for other in suspects[:_READ_MAX]
            if other.sequence <= outlived_at_most
            and (made := self._identity_of(other)) is not None
            and made.parent_id == versions.get(other.sequence - 1, "")
        ]
        return [other for other in suspects if other not in failed]

    def _ancestors(self, handle: Handle, sequence: int) -> dict[int, str]:
        """``handle.versions``, and those before them, down to ``sequence``: as far as stored deltas say what was before
        each, which they do as long as retention leaves them.
        """
        versions = dict(handle.versions)
        at = handle.deltas[0].sequence if handle.deltas else handle.sequence
        while at > max(sequence, 1):
            made = self._identity_of(Foreign(at, versions[at], delta_name(at, versions[at])))
            if made is None or (made.sequence, made.version_id) != (at, versions[at]):
                break
            before = [(at - 1, made.parent_id), *((delta.sequence, delta.version_id) for delta in made.lineage or ())]
            versions = {**dict(before), **versions}
            at = min(before)[0]
        return versions

    def _made_since(self, listed: Iterable[StoredFile], handle: Handle, registered_ms: int) -> list[Foreign]:
        """Deltas that other runs made after this one had registered. One alone may be of a process that outlived its
        query, or of the original of a copy: who can wait leaves it.
        """
        ignored = self._runs.own_digits | self._abandoned
        others = [
            other
            for file in listed
            if file.name.startswith("delta/")
            and registered_ms
            and file.modified_ms > registered_ms
            and (version := parse_version(file.name)) is not None
            and not handle.names(*version)
            and (other := Foreign(*version, file.name)).digits not in ignored
        ]
        versions = self._ancestors(handle, min((other.sequence for other in others), default=handle.sequence))
        return [other for other in others if versions.get(other.sequence) != other.version_id]

    def _is_on_foreign_version(self, other: Foreign, versions: dict[int, str]) -> bool:
        made = self._identity_of(other)
        return made is not None and made.parent_id != versions.get(other.sequence - 1, "")

    def _identity_of(self, other: Foreign) -> DeltaIdentity | None:
        """What its file says of it; None: it is gone, or torn, and nobody's."""
        data = self._context.file_store.get(self._context.stored(other.name))
        if data is None:
            return None
        try:
            return identity_of(data, other.name)
        except Corrupt:
            return None

    def _older(self, handle: Handle | StoredHandle | None, foreign: list[Foreign]) -> Incompatible:
        context = self._context
        newest = foreign[0]
        at = f"batch {handle.batch_id} (version {handle.sequence})" if handle else "the empty state"
        data = context.file_store.get(context.stored(newest.name))
        try:
            batch = f"batch {identity_of(data, newest.name).batch_id}, " if data is not None else ""
        except Corrupt:
            batch = ""
        others = self._ids(foreign)
        return Incompatible(
            f"operator {context.operator!r}, slot {context.slot}: expected the newest checkpoint of this state, found "
            f"one that is at {at}, while the state in {context.file_store.uri}/{context.prefix} was taken on to "
            f"{batch}version {newest.sequence}, by {_runs(others)}. This is an older copy of Spark's checkpoint, or it "
            f"was rolled back. Nothing was changed. Go on from the newest checkpoint; or, where a copy is meant to "
            f"live beside the original, give it a copy of the state folder too, at another "
            f"spark.holdfast.checkpoint.dir; or, to give up for good what came after, set "
            f"{SETTING}={','.join(others)} (docs/guide/recovery.md)"
        )

    def _forgotten(self, first: Foreign, made_in: int, batch_id: int) -> Incompatible:
        context, runs = self._context, self._ids([first])
        return Incompatible(
            f"operator {context.operator!r}, slot {context.slot}: Spark's state has no version of it as batch "
            f"{batch_id} begins, but batch {made_in}, which is committed since, made one, by {_runs(runs)}, in "
            f"{context.file_store.uri}/{context.prefix}. Spark knows operators by their place in the query: it has the "
            f"state of this one elsewhere if they changed places (as a.union(b) and b.union(a)), and none if its "
            f"checkpoint was changed, or if batch {made_in} failed in that run and was run again without rows of this "
            f"slot. Nothing was changed here. Put the operators back in the order that they had, or Spark's "
            f"checkpoint; or, where the batch failed, or to give up for good what was made, set "
            f"{SETTING}={','.join(runs)} (docs/guide/recovery.md)"
        )

    def _nothing_there(self, handle: StoredHandle) -> Incompatible:
        return Incompatible(
            f"{self._where(handle)}: Spark's state has this version, and {self._context.file_store.uri} has nothing of "
            f"any slot of the operator ({self._context.prefix}): that is another folder than it had, or it was "
            f"deleted, or is not mounted. Put it back, or name the one that it had (spark.holdfast.checkpoint.dir); "
            f"or begin with a new checkpoint"
        )

    def _stands_twice(self, handle: Handle, other: Foreign) -> Fenced:
        return Fenced(
            f"{self._where(handle)}: this run made version {other.sequence} ({other.version_id}) too, on a version "
            f"that is none of this one's: Spark's checkpoint has a second state of the slot. The operator stands twice "
            f"in the query, as in totals.union(totals): call hf.keyed for each, with a name of its own, and begin with "
            f"a new checkpoint (docs/guide/operators.md). Nothing of either is deleted, and the query stops"
        )

    def _where(self, handle: Handle | StoredHandle | None) -> str:
        return handle.where if handle else f"operator {self._context.operator!r}, slot {self._context.slot}"

    def _ids(self, foreign: list[Foreign]) -> list[str]:
        runs = {other.digits: self._runs.by_digits(other.digits) for other in foreign}
        return [run.run_id if run else digits for digits, run in runs.items()]


def _more_than_outlived(others: list[Foreign], outlived_at_most: int) -> list[Foreign]:
    """Of each run that left more among ``others`` than a process does that outlived its query, the newest one; those of
    the greatest sequences first.
    """
    by_run: dict[str, dict[int, Foreign]] = {}
    for other in others:
        by_run.setdefault(other.digits, {})[other.sequence] = other
    left = [made for made in by_run.values() if len(made) > 1 or max(made) > outlived_at_most]
    return sorted((max(made.items())[1] for made in left), key=lambda other: other.sequence, reverse=True)


def _runs(run_ids: list[str]) -> str:
    return f"run{'s' if len(run_ids) > 1 else ''} {', '.join(run_ids)}"
