"""How an operator goes on from an earlier generation: what must be as it was, and which ids its states keep. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.checkpoint.evolution import OperatorStates, StateChanges, as_said, contradictions, evolved
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import Origin
from holdfast.errors import Incompatible, InvalidRequest

_WAYS = (
    "declare it as it was; or say what shall become of it: restore.operator(…, dropped=…, renamed=…, added=…); or "
    "leave restore= out: a new query begins with nothing, one that has begun goes on with what it has"
)
#: Of a restore that says nothing: nothing is added in silence, but for timers, broadcast and operator states.
NOTHING_SAID = StateChanges(added=())


def continued(
    earlier: OperatorRecord, declared: OperatorRecord, origin: Origin, changes: StateChanges = NOTHING_SAID
) -> OperatorRecord:
    """The record of a generation that begins with the state of ``earlier``, its origin among it.

    Slots, labels and inputs are the new generation's: its Spark checkpoint is new. States keep their ids, by which the
    entries in the store know them. First they become what ``changes`` says, then what the program says, by the rule of
    a restart (`evolution.py`). Ids of states that are left behind are never given again.

    Raises
    ------
    InvalidRequest
        ``changes`` speaks of states that are not there.
    Incompatible
        What is declared contradicts what is recorded: names each difference.
    """
    _check_changes(earlier, declared, origin, changes)
    said, in_program = _as_restored(earlier, declared, changes)
    alike = replace(declared, slots=earlier.slots, inputs=earlier.inputs, changes=in_program)
    differences = replace(earlier, states=said.states, dropped=said.dropped).differences(alike, _WAYS)
    if differences:
        raise Incompatible(
            f"operator {declared.name!r} cannot begin with the state of {origin.where}, which is another:\n  "
            + "\n  ".join(differences)
        )
    states = evolved(said, declared.states, in_program)
    # What the restore said is done once: at a restart its names may be those of other states.
    there = tuple((state.id, state.name) for state in earlier.states)
    return replace(declared, states=states.states, dropped=states.dropped, origin=origin, earlier=there)


def taken_over(
    earlier: OperatorRecord, declared: OperatorRecord, changes: StateChanges
) -> tuple[OperatorStates, set[str]]:
    """The earlier states under the names that they have now, and those that are left behind; and the names of states,
    earlier or declared, for which :func:`continued` would refuse.
    """
    said, in_program = _as_restored(earlier, declared, changes)
    refused = {name for name, _ in contradictions(said, declared.states, in_program, _WAYS)}
    return as_said(said, in_program), refused


def _check_changes(earlier: OperatorRecord, declared: OperatorRecord, origin: Origin, changes: StateChanges) -> None:
    """InvalidRequest where what is said at a restore is of states that are not there, or contradicts itself."""
    there, here = {state.name for state in earlier.states}, {state.name for state in declared.states}
    dropped, renamed = set(changes.dropped), {old for _, old in changes.renamed}
    news = [new for new, _ in changes.renamed]
    kept = there - dropped - renamed
    clashes = {name for name in news if news.count(name) > 1 or name in kept}
    added = set(changes.added or ())
    problems = [
        *(f"dropped: {name!r} is no state there" for name in sorted(dropped - there)),
        *(f"renamed: {name!r} is no state there" for name in sorted(renamed - there)),
        *(f"{name!r} is both dropped and renamed" for name in sorted(dropped & renamed)),
        *(f"renamed: {name!r} is the name of another state already" for name in sorted(clashes)),
        *(f"added: {name!r} is declared by no state" for name in sorted(added - here)),
        *(
            f"added: {name!r} is taken over; if it shall begin with nothing, drop it too"
            for name in sorted(added & (kept | set(news)))
        ),
    ]
    if problems:
        raise InvalidRequest(
            f"operator {declared.name!r} from {origin.where}: there are the states "
            f"{', '.join(sorted(there)) or 'none'}, here {', '.join(sorted(here)) or 'none'}:\n  "
            + "\n  ".join(problems)
            + "\nCorrect what restore.operator(…) is given; a query that has begun goes on without restore="
        )


def _as_restored(
    earlier: OperatorRecord, declared: OperatorRecord, changes: StateChanges
) -> tuple[OperatorStates, StateChanges]:
    """The earlier states as ``changes`` has them, and what the program says of these; which of them begins anew is not
    for the program to say, whose lines may be of an earlier restart.
    """
    renamed = tuple(row for row in declared.changes.renamed if not changes.begins(row[0]))
    return as_said(earlier.all_states, changes), replace(declared.changes, renamed=renamed, added=changes.added)
