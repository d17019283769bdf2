"""The requests of Kafka's protocol that are sent here, by kafka-python's classes: the one place that knows them.

kafka-python's admin client has public calls for some (list_transactions, describe_transactions, describe_producers),
and none for what it takes to end, fence and mark a transaction: EndTxn at a version of the caller's choice,
InitProducerId, WriteTxnMarkers. They go over the same connections, within one time limit, so all go the same way.
kafka-python is pinned below its next minor release, and `tests/tidy` names all that is imported of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

END_TXN_VERSION = 3  # later ones bump the epoch with each transaction
END_TXN_AND_BUMP_VERSION = 5  # Kafka 4.0
_INIT_PRODUCER_ID_VERSION_MAX = 4
_FIND_COORDINATOR_VERSION_MAX = 3  # one key a request
_FETCH_VERSION_MAX = 11  # later ones name topics by their ids, which say nothing in an error
_LIST_OFFSETS_VERSION_MAX = 5
_API_VERSIONS_VERSION_MIN = 3  # earlier ones have no features
_EARLIEST, _LATEST = -2, -1
_RECORDS_VERSION = 2  # a batch's "magic" since Kafka 0.11, which came with transactions
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


def features() -> Any:
    """Which levels of the cluster's features a broker goes by."""
    from kafka.protocol.metadata import ApiVersionsRequest

    return ApiVersionsRequest(
        client_software_name="holdfast", client_software_version="1", min_version=_API_VERSIONS_VERSION_MIN
    )


def end_txn(
    transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, version: int = END_TXN_VERSION
) -> Any:
    """Commit or abort what is open, of this producer and epoch alone, which writes no more after version
    END_TXN_AND_BUMP_VERSION.
    """
    from kafka.protocol.producer.transaction import EndTxnRequest

    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commit,
        min_version=version,
        max_version=version,
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


def fetch(place: tuple[str, int], offset: int, *, bytes_max: int, wait_ms: int) -> Any:
    """What lies in a partition from an offset on, whether it is committed or not."""
    from kafka.protocol.consumer import FetchRequest

    topic, number = place
    part = FetchRequest.FetchTopic.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=0,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        max_version=_FETCH_VERSION_MAX,
    )


def earliest_offset(place: tuple[str, int]) -> Any:
    """Where a partition's log begins."""
    return _list_offsets(place, _EARLIEST)


def latest_offset(place: tuple[str, int]) -> Any:
    """Where a partition's log ends that all replicas in sync have, whether it is committed or not."""
    return _list_offsets(place, _LATEST)


def _list_offsets(place: tuple[str, int], timestamp: int) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest

    (name, number), topic = place, ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[topic(name=name, partitions=[part])],
        max_version=_LIST_OFFSETS_VERSION_MAX,
    )


class DamagedBatchError(Exception):
    """What a broker has of a batch is not what was written: brokers send it as it lies on their disks."""


def record_batches(data: bytes) -> Iterator[Any]:
    """The whole batches of records in what a fetch has brought, in order, each compared with its checksum.

    Raises
    ------
    DamagedBatchError
        One is not what was written, or there is none, where a fetch brings one at least, as large as it may be
        (KIP-74). A batch's place and length are not in its checksum: they are compared with its neighbours'.
    """
    from kafka.errors import CorruptRecordError
    from kafka.record.memory_records import MemoryRecords

    records, reached = MemoryRecords(data), -1
    while records.has_next():
        try:
            batch = records.next_batch()
            is_whole = batch.magic == _RECORDS_VERSION and batch.validate_crc()
        except (CorruptRecordError, struct.error) as error:
            raise DamagedBatchError(str(error)) from error
        if not is_whole:
            raise DamagedBatchError("its checksum is not that of its bytes")
        if batch.base_offset < reached:
            raise DamagedBatchError(f"it says that it begins at {batch.base_offset}, behind one that ends at {reached}")
        reached = batch.next_offset
        yield batch
    if data and reached < 0:
        raise DamagedBatchError(f"of {len(data)} bytes none is a whole batch")
