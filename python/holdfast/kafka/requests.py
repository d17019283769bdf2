"""The requests of Kafka's protocol that are sent here, by kafka-python's classes: the one place that knows them.

kafka-python's admin client has public calls for some (list_transactions, describe_transactions, describe_producers),
and none for what it takes to end, fence and mark a transaction: EndTxn at a version of the caller's choice,
InitProducerId, WriteTxnMarkers. They go over the same connections, within one time limit, so all go the same way.
kafka-python is pinned below its next minor release, and `tests/tidy` names all that is imported of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

END_TXN_VERSION = 3  # later ones bump the epoch with each transaction
_INIT_PRODUCER_ID_VERSION_MAX = 4
_FIND_COORDINATOR_VERSION_MAX = 3  # one key a request
_TRANSACTION = 1  # FindCoordinator's type of key


def find_coordinator(transactional_id: str) -> Any:
    """Which broker answers for a transactional id."""
    from kafka.protocol.metadata import FindCoordinatorRequest

    return FindCoordinatorRequest(
        key=transactional_id, key_type=_TRANSACTION, max_version=_FIND_COORDINATOR_VERSION_MAX
    )


def metadata(topics: Iterable[str]) -> Any:
    """Partitions and leaders of topics, which are not created by the question."""
    from kafka.protocol.metadata import MetadataRequest

    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def end_txn(transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> Any:
    """Commit or abort."""
    from kafka.protocol.producer.transaction import EndTxnRequest

    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commit,
        min_version=END_TXN_VERSION,
        max_version=END_TXN_VERSION,
    )


def init_producer_id(transactional_id: str, timeout_ms: int) -> Any:
    """Abort what is open and fence whoever has the id."""
    from kafka.protocol.producer.transaction import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        max_version=_INIT_PRODUCER_ID_VERSION_MAX,
    )


def list_transactions(states: Sequence[str]) -> Any:
    """What a broker coordinates, in these states; all where there are none."""
    from kafka.protocol.admin.transactions import ListTransactionsRequest

    return ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])


def describe_transactions(transactional_ids: Sequence[str]) -> Any:
    """State, producer and partitions of each."""
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def describe_producers(partitions: Mapping[str, Sequence[int]]) -> Any:
    """Who has a transaction open in partitions, by topic."""
    from kafka.protocol.admin.transactions import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[topic(name=name, partition_indexes=list(numbers)) for name, numbers in partitions.items()]
    )


def write_txn_marker(place: tuple[str, int], producer: tuple[int, int], coordinator_epoch: int, *, commit: bool) -> Any:
    """One marker into one partition; ``producer`` is its id and epoch."""
    from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    (topic, number), (producer_id, producer_epoch) = place, producer
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commit,
                topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
                coordinator_epoch=coordinator_epoch,
            )
        ]
    )
