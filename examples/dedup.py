"""Drops repeats from a topic that a KafkaSink writes with mode="at-least-once". Prints each record once.

Every record has a header, the same in a replay: query id, sink, batch, partition of the batch, index in it. What one
partition of a query writes to one partition of a topic comes batch after batch, and a replay writes a batch to the same
partitions again, while it is the newest. So the newest batch and the indices in it, for each (partition of the topic,
query, sink, partition of the query), are all there is to remember. Not the highest index: an attempt that failed may
have brought a later record and not an earlier one.

The same header must stand for the same row: docs/guide/kafka_sink.md says what the query owes for that. An input topic
that compacts needs a min.compaction.lag.ms above the longest downtime.

This program reads the topic from its start to its end. One that goes on where it was keeps `newest` with its offsets.

    python examples/dedup.py --bootstrap-servers localhost:9092 --topic totals
"""

import argparse

from confluent_kafka import Consumer, TopicPartition

newest = {}


def is_repeat(message):
    marks = [value for name, value in message.headers() or () if name == "holdfast-dedup"]
    if not marks:
        return False  # somebody else wrote it
    # The first: sinks of early versions passed on, behind their own, what came with their input.
    query, sink, batch, partition, index = marks[0].decode().split(":")
    writer = (message.partition(), query, sink, partition)
    known, indices = newest.get(writer, (-1, set()))
    if int(batch) < known or (int(batch) == known and int(index) in indices):
        return True
    if int(batch) > known:
        indices = set()
        newest[writer] = (int(batch), indices)
    indices.add(int(index))
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    arguments = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap_servers,
            "group.id": "dedup-example",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    unread = set(consumer.list_topics(arguments.topic, timeout=10).topics[arguments.topic].partitions)
    consumer.assign([TopicPartition(arguments.topic, number, 0) for number in unread])
    repeats = 0
    while unread:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            unread.discard(message.partition())
        elif is_repeat(message):
            repeats += 1
        else:
            print((message.key() or b"").decode(), (message.value() or b"").decode())
    consumer.close()
    print(f"{repeats} repeats dropped")


if __name__ == "__main__":
    main()
