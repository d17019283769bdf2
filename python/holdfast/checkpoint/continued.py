"""How an operator goes on from an earlier generation: what must be as it was, and which ids its states keep. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.checkpoint.added_states import may_be_added, next_id
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Incompatible, InvalidRequest

_WAYS = (
    "declare it as it was; or say what shall become of it: restore.operator(…, dropped=…, renamed=…, added=…); or "
    "leave restore= out, and begin with nothing"
)


@dataclass(frozen=True)
class StateChanges:
    """What a program says of states that are not as they were.

    Attributes
    ----------
    dropped
        Names of earlier states that are left behind.
    renamed
        By the name of an earlier state the name that it has now.
    added
        Names of states that begin with nothing. Timers, broadcast and operator states need not be among them.
    """

    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()

    def check(self, earlier: OperatorRecord, declared: OperatorRecord, where: str) -> None:
        """InvalidRequest where it speaks of states that are not there, or contradicts itself."""
        there, here = {state.name for state in earlier.states}, {state.name for state in declared.states}
        kept = there - self.dropped - set(self.renamed)
        news = list(self.renamed.values())
        clashes = {name for name in news if news.count(name) > 1 or name in kept}
        problems = [
            *(f"dropped: {name!r} is no state there" for name in sorted(self.dropped - there)),
            *(f"renamed: {name!r} is no state there" for name in sorted(set(self.renamed) - there)),
            *(f"{name!r} is both dropped and renamed" for name in sorted(self.dropped & set(self.renamed))),
            *(f"renamed: {name!r} is the name of another state already" for name in sorted(clashes)),
            *(f"added: {name!r} is declared by no state" for name in sorted(self.added - here)),
            *(
                f"added: {name!r} is taken over; if it shall begin with nothing, drop it too"
                for name in sorted(self.added & (kept | set(news)))
            ),
        ]
        if problems:
            raise InvalidRequest(
                f"operator {declared.name!r} from {where}: there are the states {', '.join(sorted(there)) or 'none'}, "
                f"here {', '.join(sorted(here)) or 'none'}:\n  " + "\n  ".join(problems)
            )


NO_CHANGES = StateChanges()


def continued(
    earlier: OperatorRecord, declared: OperatorRecord, origin: Origin, changes: StateChanges = NO_CHANGES
) -> OperatorRecord:
    """The record of a generation that begins with the state of ``earlier``, its origin among it.

    Slots, labels and inputs are the new generation's: its Spark checkpoint is new. States keep their ids, by which the
    entries in the store know them; new ones get ids that no earlier state had, so that nothing of one that was dropped
    is ever taken for theirs.

    Raises
    ------
    InvalidRequest
        ``changes`` speaks of states that are not there.
    Incompatible
        What is declared contradicts what is recorded: names each difference.
    """
    changes.check(earlier, declared, origin.where)
    kept = [
        replace(state, name=changes.renamed.get(state.name, state.name))
        for state in earlier.states
        if state.name not in changes.dropped
    ]
    names = {state.name for state in kept}
    added = [
        state
        for state in declared.states
        if state.name not in names and (may_be_added(state) or state.name in changes.added)
    ]
    new = {state.name for state in added}
    alike = replace(
        declared,
        slots=earlier.slots,
        inputs=earlier.inputs,
        states=tuple(state for state in declared.states if state.name not in new),
    )
    differences = replace(earlier, states=tuple(kept)).differences(alike, _WAYS)
    if differences:
        raise Incompatible(
            f"operator {declared.name!r} cannot begin with the state of {origin.where}, which is another:\n  "
            + "\n  ".join(differences)
        )
    known, states = list(earlier.states), kept
    for state in added:
        made = replace(state, id=next_id(state, known))
        known.append(made)
        states.append(made)
    dropped = [state.id for state in earlier.states if state.name in changes.dropped]
    return replace(declared, states=tuple(states), origin=origin.without(dropped) if dropped else origin)
