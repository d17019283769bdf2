"""Who had no event for an hour? An alert by timer, killed with kill -9 half-way, every alert checked against DuckDB.

    python examples/silent_users.py /tmp/silent-users

Writes two days of events (one file a batch), reads them as a stream, and writes alerts exactly once to files. A user is
silent when an hour has passed since his last event: by a timer, when the watermark says so, or by his next event, when
both come in one batch. Ends with status 1 if any alert differs from DuckDB's.
"""

import random
from datetime import timedelta

import killed
import pyarrow as pa

import holdfast as hf

HOUR = timedelta(hours=1)
USERS, ROWS = 50, 40
EVENTS = "user string, ts timestamp"
ALERTS = "user string, silent_since timestamp"
EXPECTED = """
    SELECT "user", ts AS silent_since FROM (
      SELECT *, lead(ts) OVER (PARTITION BY "user" ORDER BY ts) AS next FROM events WHERE "user" <> 'watch')
    WHERE next IS NULL OR next - ts >= INTERVAL 1 HOUR"""


class Silence(hf.KeyedProcessor):
    last = hf.ValueState(pa.timestamp("us", "UTC"))
    alarm = hf.Timers("event")

    def process(self, key, rows, ctx):
        last = self.last.value()
        for ts in sorted(rows["ts"].to_pylist()):
            if last is not None and ts - last >= HOUR:
                yield key[0], last
            if last is not None:
                self.alarm.delete(last + HOUR)
            last = ts
        self.last.update(last)
        self.alarm.register(last + HOUR)

    def on_timer(self, key, time, namespace, ctx):
        yield key[0], self.last.value()
        self.last.clear()


def write_events(folder):
    draw = random.Random(7)

    def rows_of(began):
        return [(f"user-{draw.randrange(USERS)}", began + timedelta(seconds=draw.randrange(7200))) for _ in range(ROWS)]

    killed.write_files(folder, rows_of, pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC"))]))


if __name__ == "__main__":
    operator = hf.keyed("user", Silence(), ALERTS, name="silence", watermark=("ts", "0 seconds"), ticks="never")
    killed.main(__file__, write_events, EVENTS, operator, EXPECTED, "alerts")
