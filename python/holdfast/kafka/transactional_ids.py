"""Names of transactions: ``holdfast-<query id>-<sink>-e<epoch>-<partition>-<parity>-<attempt>``.

Bounded in number: two parities of a batch's number are enough, since batch N - 1 is finished before batch N begins. The
epoch keeps a late task of an overtaken driver from the names of its successor. With witnesses (docs/rfcs/0006) it is
counted modulo a small ring, so that names are bounded over all starts: should a late task meet a name of its successor,
the witness tells what was committed. Without, it is the whole epoch: were such a task to initialise a name that the
successor has committed, the record that names it would read 'lost', and be written twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "holdfast-"
#: The topic in which transactions of these names leave their witnesses, where a sink names none of its own.
WITNESS_TOPIC = "holdfast-witness"
#: Epochs in names with witnesses are counted modulo this.
EPOCH_RING = 16
#: Of the ring, drivers after this one: more do not start between its look for newer ones and its next act. What is
#: open under such a name may be of a driver long ago, too: its witness says whose it is.
_NEWER = 3
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_END = r"-e(?P<epoch>\d+)-(?P<partition>\d+)-(?P<parity>[01])-(?P<attempt>\d+)"
# Spark's query ids are UUIDs; any other name of a query is told from the sink's by having no "-".
_NAME = re.compile(rf"{PREFIX}(?P<query>{_UUID}|[^-]+)-(?P<sink>.+){_END}")


@dataclass(frozen=True)
class TransactionalId:
    """The parts of a name."""

    query_id: str
    sink: str
    epoch: int
    partition: int
    parity: int
    attempt: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.query_id}-{self.sink}-e{self.epoch}-{self.partition}-{self.parity}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> TransactionalId | None:
        """The parts; None for a transactional id that is not ours."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        numbers = (int(found[part]) for part in ("epoch", "partition", "parity", "attempt"))
        return cls(found["query"], found["sink"], *numbers)


def epoch_in_name(epoch: int, *, witnessed: bool) -> int:
    """How a driver's epoch stands in the names of its transactions."""
    return epoch % EPOCH_RING if witnessed else epoch


def drivers_ago(named: int, epoch: int, *, witnessed: bool) -> int:
    """How many drivers before the one of ``epoch`` made a name with ``named`` in it; negative: one after it."""
    if not witnessed or named >= EPOCH_RING:
        return epoch - named
    ago = (epoch - named) % EPOCH_RING
    return ago - EPOCH_RING if ago >= EPOCH_RING - _NEWER else ago


def may_be_of_earlier(named: int, epoch: int, *, witnessed: bool) -> bool:
    """Whether a driver before the one of ``epoch`` can have made a name with ``named`` in it. Epochs count from 1."""
    if not witnessed or named >= EPOCH_RING:
        return named < epoch
    return epoch - ((epoch - named) % EPOCH_RING or EPOCH_RING) >= 1


def driver_id(query_id: str, sink: str) -> str:
    """The transactional id of the driver itself: whoever takes it over fences the one before."""
    return f"{PREFIX}{query_id}-{sink}-driver"


def prefix_of(query_id: str | None = None) -> str:
    """What all ids of a query begin with, and what permissions can be given on."""
    return PREFIX if query_id is None else f"{PREFIX}{query_id}-"


def pattern_of(query_id: str | None = None, sink: str | None = None) -> str:
    """A regular expression that the whole of each id of a query and sink matches (RE2's syntax, and Python's)."""
    query = re.escape(query_id) if query_id is not None else ".+"
    return f"{PREFIX}{query}-{re.escape(sink) if sink is not None else '.+'}-e[0-9]+-[0-9]+-[01]-[0-9]+"
