"""Sessions with a gap of 30 minutes, killed with kill -9 half-way, every session checked against DuckDB.

    python examples/sessions.py /tmp/sessions

Writes two days of purchases (one file a batch), reads them as a stream, and writes sessions exactly once to files. A
session is closed by a timer, when the watermark is 30 minutes past its last event, or by the user's next event, when
that comes before the watermark does. Ends with status 1 if any session differs from DuckDB's.
"""

import random
from datetime import timedelta

import killed
import pyarrow as pa

import holdfast as hf

GAP = timedelta(minutes=30)
USERS, ROWS = 30, 120
TIME = pa.timestamp("us", "UTC")
EVENTS = "user string, ts timestamp, amount long"
SESSIONS = "user string, began timestamp, ended timestamp, events long, amount long"
EXPECTED = """
    SELECT "user", min(ts), max(ts), count(*), sum(amount)::BIGINT FROM (
      SELECT *, sum(new) OVER (PARTITION BY "user" ORDER BY ts) AS session FROM (
        SELECT *, (lag(ts) OVER (PARTITION BY "user" ORDER BY ts) > ts - INTERVAL 30 MINUTE IS NOT TRUE)::INT AS new
        FROM events WHERE "user" <> 'watch'))
    GROUP BY "user", session"""


class Sessions(hf.KeyedProcessor):
    session = hf.ValueState(
        pa.struct([("began", TIME), ("ended", TIME), ("events", pa.int64()), ("amount", pa.int64())])
    )
    gap = hf.Timers("event")

    def process(self, key, rows, ctx):
        session = self.session.value()
        if session is not None:
            self.gap.delete(session["ended"] + GAP)
        for row in sorted(rows.to_pylist(), key=lambda row: row["ts"]):
            if session is not None and row["ts"] - session["ended"] >= GAP:
                yield {"user": key[0], **session}
                session = None
            if session is None:
                session = {"began": row["ts"], "events": 0, "amount": 0}
            session["ended"] = row["ts"]
            session["events"] += 1
            session["amount"] += row["amount"]
        self.session.update(session)
        self.gap.register(session["ended"] + GAP)

    def on_timer(self, key, time, namespace, ctx):
        yield {"user": key[0], **self.session.value()}
        self.session.clear()


def write_events(folder):
    draw = random.Random(11)

    def rows_of(began):
        seconds = sorted(draw.sample(range(7200), ROWS))
        rows = [
            (f"user-{draw.randrange(USERS)}", began + timedelta(seconds=s), draw.randrange(1, 100)) for s in seconds
        ]
        draw.shuffle(rows)  # within two hours rows come in any order
        return rows

    schema = pa.schema([("user", pa.string()), ("ts", TIME), ("amount", pa.int64())])
    killed.write_files(folder, rows_of, schema)


if __name__ == "__main__":
    operator = hf.keyed("user", Sessions(), SESSIONS, name="sessions", watermark=("ts", "0 seconds"), ticks="never")
    killed.main(__file__, write_events, EVENTS, operator, EXPECTED, "sessions")
