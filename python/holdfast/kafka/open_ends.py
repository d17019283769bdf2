"""What the leaders of partitions call open: transactions whose marker has not come there (KIP-664: DescribeProducers).

Asked inside of a question of `Wire.call`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.kafka.client import logger
from holdfast.kafka.requests import describe_producers
from holdfast.kafka.wire import Retry, Wire, refuse

Place = tuple[str, int]
"""A topic and a partition of it."""

NO_SUCH_PARTITION, TOPIC_NOT_ALLOWED = 3, 29
ELSEWHERE = {5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 9: "REPLICA_NOT_AVAILABLE"}

_not_shown: set[Place] = set()


@dataclass(frozen=True)
class OpenEnd:
    """A transaction that the leader of a partition calls open there."""

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int


@dataclass(frozen=True)
class Look:
    """What was seen, and the partitions of which nothing could be seen."""

    open_ends: tuple[OpenEnd, ...]
    hidden: frozenset[Place]


async def look_into(wire: Wire, leaders: Mapping[Place, int]) -> Look:
    """All that the leaders call open. Partitions that do not exist have nothing open."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for (topic, number), leader in leaders.items():
        if leader < 0:
            raise Retry(f"partition {topic}-{number} has no leader")
        by_leader.setdefault(leader, {}).setdefault(topic, []).append(number)
    looks = await wire.all_of(_look_at(wire, leader, wanted) for leader, wanted in by_leader.items())
    return Look(
        tuple(one for look in looks for one in look.open_ends),
        frozenset(place for look in looks for place in look.hidden),
    )


async def look_at_places(wire: Wire, places: Iterable[Place]) -> Look:
    """The same, where it is not known who leads. What does not exist now is hidden: it may be there again soon."""
    wanted = set(places)
    led = await wire.leaders_of({topic for topic, _ in wanted})
    look = await look_into(wire, {place: leader for place, leader in led.items() if place in wanted})
    return Look(look.open_ends, look.hidden | (wanted - led.keys()))


async def _look_at(wire: Wire, leader: int, wanted: Mapping[str, list[int]]) -> Look:
    await wire.know(leader)
    answer = await wire.send(describe_producers(wanted), leader)
    parts = [((one.name, part.partition_index), part) for one in answer.topics for part in one.partitions]
    shown = [(place, part) for place, part in parts if _is_shown(part.error_code, place)]
    return Look(
        tuple(
            OpenEnd(place, one.producer_id, one.producer_epoch, one.coordinator_epoch, one.current_txn_start_offset)
            for place, part in shown
            for one in part.active_producers
            if one.current_txn_start_offset >= 0
        ),
        frozenset(place for place, part in parts if part.error_code == TOPIC_NOT_ALLOWED),
    )


def _is_shown(code: int, place: Place) -> bool:
    """Whether a leader may tell of its partition's producers; False as well when there is no such partition."""
    topic, number = place
    if code in ELSEWHERE:
        raise Retry(f"partition {topic}-{number}: {ELSEWHERE[code]}")
    if code == TOPIC_NOT_ALLOWED and place not in _not_shown:
        _not_shown.add(place)
        logger.warning(
            "Whether commits arrive in %s-%d is not looked at: it needs READ on the topic. Without, a broker that dies"
            " at the wrong moment can leave rows invisible",
            topic,
            number,
        )
    if code not in (0, NO_SUCH_PARTITION, TOPIC_NOT_ALLOWED):
        refuse(code, f"a look at the transactions in {topic}-{number}")
    return code == 0
