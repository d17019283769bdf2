"""Sessions with a gap of 30 minutes, killed with kill -9 half-way, every session checked against DuckDB.

    python examples/sessions.py /tmp/sessions

Writes two days of purchases (one file a batch), some of which come up to ten minutes late, with the next file. Reads
them as a stream, and writes sessions exactly once to files. Purchases less than the gap apart are one session, in
whatever order they come; a timer closes it when the watermark is the gap past its last one. Ends with status 1 if any
session differs from DuckDB's.
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
    sessions = hf.ListState(
        pa.struct([("began", TIME), ("ended", TIME), ("events", pa.int64()), ("amount", pa.int64())])
    )
    gap = hf.Timers("event")

    def process(self, key, rows, ctx):
        sessions = self.sessions.get()
        for ts, amount in zip(rows["ts"].to_pylist(), rows["amount"].to_pylist()):
            near = [one for one in sessions if one["began"] - GAP < ts < one["ended"] + GAP]
            sessions = [one for one in sessions if one not in near] + [merged(ts, amount, near)]
        self.sessions.update(sessions)
        for one in sessions:
            self.gap.register(one["ended"] + GAP)

    def on_timer(self, key, time, namespace, ctx):
        sessions = self.sessions.get()
        over = [one for one in sessions if one["ended"] + GAP == time]  # none where it went on since
        self.sessions.update([one for one in sessions if one not in over])
        yield from ({"user": key[0], **one} for one in over)


def merged(ts, amount, sessions):
    """One session of a purchase, and of those that it lies near to."""
    return {
        "began": min([ts, *(one["began"] for one in sessions)]),
        "ended": max([ts, *(one["ended"] for one in sessions)]),
        "events": 1 + sum(one["events"] for one in sessions),
        "amount": amount + sum(one["amount"] for one in sessions),
    }


def write_events(folder):
    draw = random.Random(11)

    def rows_of(began):
        seconds = draw.sample(range(-600, 7200), ROWS)
        return [
            (f"user-{draw.randrange(USERS)}", began + timedelta(seconds=s), draw.randrange(1, 100)) for s in seconds
        ]

    schema = pa.schema([("user", pa.string()), ("ts", TIME), ("amount", pa.int64())])
    killed.write_files(folder, rows_of, schema)


if __name__ == "__main__":
    operator = hf.keyed("user", Sessions(), SESSIONS, name="sessions", watermark=("ts", "10 minutes"), ticks="never")
    killed.main(__file__, write_events, EVENTS, operator, EXPECTED, "sessions")
