"""Orders at the exchange rate of their moment: two Kafka topics joined by event time, each order checked by DuckDB.

    python examples/rates.py /tmp/rates

Starts a real broker, writes a day of orders and of rates into a topic each, and joins them exactly once into a third,
killed with kill -9 half-way. An order waits for its rate until the watermark of both topics has passed it, so that it
does not matter which topic is read first (Flink's temporal join). Ends with status 1 if any order differs.
"""

import functools
import json
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import killed
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as sql

import holdfast as hf
from holdfast.testing import KafkaBroker

ORDERS, RATES, CONVERTED, PARTITIONS = 12_000, 600, "converted", 2
A_BATCH = 1_000  # orders, at most
SECONDS = 86_400
CURRENCIES = ("CHF", "DKK", "EUR", "GBP", "JPY", "NOK", "SEK", "USD")
NEVER_RATED = "XAU"
WATCH = "watch"  # of this currency are rows that only move the watermark
INSTANT = timedelta(microseconds=1)
COLUMNS = {
    "orders": "order_id long, currency string, amount long, ts timestamp",
    "rates": "rate_id long, currency string, rate double, ts timestamp",
}
OUTPUT = "order_id long, currency string, amount long, ts timestamp, rate double"
EXPECTED = """
    SELECT order_id, currency, amount, ts, rate FROM orders ASOF LEFT JOIN rates USING (currency, ts)
    WHERE currency <> 'watch'"""


class AtItsRate(hf.KeyedProcessor):
    rates = hf.MapState(pa.timestamp("us", "UTC"), pa.float64())  # by the time from which they hold
    waiting = hf.MapState(pa.int64(), pa.int64())  # amounts by order
    passed = hf.Timers("event")

    def process_rates(self, key, rows, ctx):
        for row in rows.to_pylist():
            self.rates.put(row["ts"], row["rate"])

    def process_orders(self, key, rows, ctx):
        for row in rows.to_pylist():
            self.waiting.put(row["order_id"], row["amount"])
            self.passed.register(row["ts"] + INSTANT, str(row["order_id"]))  # a rate of its own instant counts

    def on_timer(self, key, time, namespace, ctx):
        order, ts = int(namespace), time - INSTANT
        held = sorted((began, rate) for began, rate in self.rates.items() if began <= ts)
        for began, _ in held[:-1]:  # nobody asks for them again: timers fire in order of time
            self.rates.remove(began)
        yield order, key[0], self.waiting.get(order), ts, held[-1][1] if held else None
        self.waiting.remove(order)


def write_topics(servers):
    """A day of both, in the order of their times, and three hours of rows that only move the watermarks."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (*COLUMNS, CONVERTED)]).values():
        made.result(30)
    draw = random.Random(17)
    producer = Producer({"bootstrap.servers": servers})
    seconds = sorted(draw.choices(range(SECONDS), k=ORDERS))
    orders = [(n, draw.choice((*CURRENCIES, NEVER_RATED)), draw.randrange(1, 1_000), s) for n, s in enumerate(seconds)]
    seconds = sorted(draw.sample(range(SECONDS), RATES))
    rates = [(n, draw.choice(CURRENCIES), draw.randrange(50, 200) / 64, s) for n, s in enumerate(seconds)]
    beats = [(n, WATCH, 0, SECONDS + n * 300) for n in range(36)]
    for topic, rows in (("orders", orders + beats), ("rates", rates + beats)):
        names = [column.split()[0] for column in COLUMNS[topic].split(", ")]
        for row in rows:
            value = dict(zip(names, (*row[:-1], (killed.START + timedelta(seconds=row[-1])).isoformat())))
            producer.produce(topic, json.dumps(value), partition=row[0] % PARTITIONS)
    if left := producer.flush(60):
        raise SystemExit(f"{left} rows were not written to the broker within a minute")


def stream(folder, servers):
    """Joins both topics into the third, until it is killed."""
    spark = killed.session(folder)
    hf.register_sources(spark)

    def rows_of(topic, most):
        messages = (
            spark.readStream.format("holdfast-kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", most)
            .load()
        )
        row = sql.from_json(messages.value.cast("string"), COLUMNS[topic])
        return messages.select(row.alias("row")).select("row.*")

    converted = hf.connect(
        {"orders": rows_of("orders", A_BATCH), "rates": rows_of("rates", A_BATCH * RATES // ORDERS)},
        "currency",
        AtItsRate(),
        OUTPUT,
        name="rates",
        watermark={"orders": ("ts", "1 hour"), "rates": ("ts", "1 hour")},
        ticks="2 seconds",
    )
    hf.write_exactly_once(
        converted.where(converted["currency"] != WATCH),
        hf.KafkaSink(servers, CONVERTED, key="currency", value=["order_id", "currency", "amount", "ts", "rate"]),
        checkpoint=str(folder / "spark"),
        trigger={"processingTime": "500 milliseconds"},
    ).awaitTermination()


def read(servers, topic):
    """All rows of a topic that a read_committed consumer sees."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "independent-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    left, rows = set(range(PARTITIONS)), []
    reader.assign([TopicPartition(topic, number, 0) for number in left])
    while left:
        for message in reader.consume(5_000, 0.2):
            if message.error():
                left.discard(message.partition())
            elif (value := message.value()) is not None:
                row = json.loads(value)
                rows.append({**row, "ts": datetime.fromisoformat(row["ts"].replace("Z", "+00:00"))})
    reader.close()
    return rows


def main(folder):
    """Feeds a broker, runs the stream with a kill half-way, and compares; status 1 where anything differs."""
    with KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        write_topics(servers)
        killed.run(__file__, folder, lambda: killed.newest(folder) >= ORDERS // A_BATCH // 2, servers)
        # A look reads the whole topic: one for each batch.
        converted_at = functools.cache(lambda batch: len(read(servers, CONVERTED)))
        killed.run(__file__, folder, lambda: converted_at(killed.newest(folder)) >= ORDERS, servers)
        found = {topic: read(servers, topic) for topic in (*COLUMNS, CONVERTED)}
    with duckdb.connect() as db:
        for topic, rows in found.items():
            db.register(topic, pa.Table.from_pylist(rows))
        differences = killed.differences(db, EXPECTED, f"SELECT order_id, currency, amount, ts, rate FROM {CONVERTED}")
    killed.tell(len(found[CONVERTED]), "orders", differences)


if __name__ == "__main__":
    if "--stream" in sys.argv:
        stream(Path(sys.argv[1]), sys.argv[-1])
    else:
        main(Path(sys.argv[1]))
