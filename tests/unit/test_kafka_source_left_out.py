"""What a stream does not read any more, or never did: who is told of it, and whom it stops."""

from __future__ import annotations

import pytest
from tests.unit.test_kafka_source_planner import A, Brokers, Stream

from holdfast.errors import Corrupt


def test_the_group_is_not_told_of_what_was_left_out() -> None:
    """Its lag grew for good, and lag tools showed a query that hangs."""
    brokers = Brokers()
    brokers.stable = {A: 10, ("u", 0): 10}
    query = Stream(brokers, subscribe="t,u", failOnDataLoss="false")
    query.batch()
    query.planner.commit(query.offset)
    assert brokers.told == {A: 10, ("u", 0): 10}
    brokers.not_subscribed, brokers.stable = {"u"}, {A: 12, ("u", 0): 99}
    query.batch()
    query.planner.commit(query.offset)
    assert brokers.told == {A: 12}
    brokers.not_subscribed = set()
    query.batch()
    query.planner.commit(query.offset)
    assert brokers.told == {A: 12, ("u", 0): 99}


def test_a_query_whose_pattern_meant_the_witnesses_of_sinks_once_goes_on_without_them() -> None:
    brokers = Brokers()
    brokers.stable = {A: 10, ("holdfast-witness", 0): 10}
    before = Stream(brokers, subscribe="t,holdfast-witness")
    before.batch()
    brokers.not_subscribed, brokers.stable = {"holdfast-witness"}, {A: 12, ("holdfast-witness", 0): 99}
    query = Stream(brokers, subscribePattern=".*")
    query.offset = before.offset
    assert query.batch() == [(0, 10, 12)]
    with pytest.raises(Corrupt, match="holdfast-witness-0 were read before"):
        Stream(brokers).planner.latest(before.offset)
