"""Names of transactions: ``holdfast-<query id>-<sink>-e<epoch>-<partition>-<parity>-<attempt>``.

Bounded in number for each start of a query: two parities of a batch's number are enough, since batch N - 1 is finished
before batch N begins. The epoch keeps a late task of an overtaken driver from the names of its successor: were it to
initialise one that the successor has committed, the record that names it would read 'lost', and be written twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "holdfast-"
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


def prefix_of(query_id: str | None = None) -> str:
    """What all ids of a query begin with, and what permissions can be given on."""
    return PREFIX if query_id is None else f"{PREFIX}{query_id}-"


def pattern_of(query_id: str | None = None, sink: str | None = None) -> str:
    """A regular expression that the whole of each id of a query and sink matches (RE2's syntax, and Python's)."""
    query = re.escape(query_id) if query_id is not None else ".+"
    return f"{PREFIX}{query}-{re.escape(sink) if sink is not None else '.+'}-e[0-9]+-[0-9]+-[01]-[0-9]+"
