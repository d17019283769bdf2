"""Fraud rules by broadcast, killed with kill -9 half-way, every alert checked against DuckDB.

    python examples/fraud.py /tmp/fraud

Writes two days of payments, and beside each file of them one of rules: how much a user may spend with a merchant, from
here on. Both are read as streams, one file of each a batch. A batch's rules reach every slot before its payments, so
what holds for a payment is what the rules say up to the file beside its own: that is how DuckDB is told. Ends with
status 1 if any alert differs.
"""

import random
import sys
from datetime import timedelta
from pathlib import Path

import killed
import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

USERS, MERCHANTS, ROWS = 12, 6, 120
TIME = pa.timestamp("us", "UTC")
PAYMENTS = "user string, ts timestamp, merchant long, amount long"
RULES = "rule string, since timestamp, merchant long, most long"
ALERTS = "user string, ts timestamp, merchant long, amount long, spent long, most long"
EXPECTED = """
    SELECT "user", ts, paid.merchant, amount, spent, most FROM (
      SELECT *, sum(amount) OVER (PARTITION BY "user", merchant ORDER BY ts)::BIGINT AS spent,
        time_bucket(INTERVAL 2 HOUR, ts) AS file FROM events WHERE "user" <> 'watch') paid
    ASOF JOIN read_parquet('{rules}/*.parquet') rules ON rules.merchant = paid.merchant AND rules.since <= paid.file
    WHERE spent > most"""


class Watch(hf.BatchProcessor):
    most = hf.BroadcastState(pa.int64(), pa.int64())
    spent = hf.ReducingState(pa.int64(), "sum")

    def process_rules(self, rows, ctx):
        held = rows.filter(pc.is_valid(rows["most"]))
        self.most.put(held["merchant"], held["most"])
        self.most.remove(rows.filter(pc.is_null(rows["most"]))["merchant"])

    def process_payments(self, batch, ctx):
        judged = batch.append_column("spent", self.spent.add(batch, batch["amount"]))
        judged = judged.append_column("most", self.most.get(batch["merchant"]))
        yield judged.filter(pc.greater(judged["spent"], judged["most"]))


def write_files(folder):
    draw = random.Random(11)

    def payments(began):
        for second in sorted(draw.sample(range(7200), ROWS)):
            user, merchant = f"user-{draw.randrange(USERS)}", draw.randrange(1, MERCHANTS + 1)
            yield user, began + timedelta(seconds=second), merchant, draw.randrange(1, 100)

    def rules(began):
        changed = range(1, MERCHANTS + 1) if began == killed.START else draw.sample(range(1, MERCHANTS + 1), 2)
        for merchant in changed:  # one rule in four goes away
            yield "rule", began, merchant, None if draw.random() < 0.25 else draw.randrange(500, 3000)

    of_payments = pa.schema([("user", pa.string()), ("ts", TIME), ("merchant", pa.int64()), ("amount", pa.int64())])
    of_rules = pa.schema([("rule", pa.string()), ("since", TIME), ("merchant", pa.int64()), ("most", pa.int64())])
    killed.write_files(folder, payments, of_payments)
    killed.write_files(folder.parent / "rules", rules, of_rules)


def judged(payments):
    source = payments.sparkSession.readStream.schema(RULES).option("maxFilesPerTrigger", 1)
    inputs = {"payments": payments, "rules": hf.broadcast(source.parquet(str(rules)))}
    return hf.connect(inputs, ["user", "merchant"], Watch(), ALERTS, name="fraud")


if __name__ == "__main__":
    rules = Path(sys.argv[1]) / "rules"
    killed.main(__file__, write_files, PAYMENTS, judged, EXPECTED.format(rules=rules), "alerts")
