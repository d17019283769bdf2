"""Names that together ask every coordinator of transactions: whoever answers for all of them knows all there are.

A broker that has just started lists no transactions, and no error, until it has learnt what it is the coordinator of
(seen with Kafka 4.3.1). Asked for a single name it does tell: that it is not its coordinator, or still loads it. Each
name belongs to one partition of ``__transaction_state``, by Java's ``String.hashCode``.
"""

from __future__ import annotations

from functools import cache

STATE_TOPIC = "__transaction_state"
#: Kafka's default of ``transaction.state.log.num.partitions``, for users who may not see the topic.
STATE_PARTITIONS = 50


@cache
def probes(prefix: str, partitions: int) -> tuple[str, ...]:
    """A name of nobody's transaction for each partition of the topic."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name = f"{prefix}probe-{number}"
        found.setdefault(partition_of(name, partitions), name)
        number += 1
    return tuple(found.values())


def partition_of(transactional_id: str, partitions: int) -> int:
    """The partition of an id of ASCII letters: Kafka's ``TransactionStateManager.partitionFor``."""
    code = 0
    for letter in transactional_id.encode("ascii"):
        code = (31 * code + letter) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
