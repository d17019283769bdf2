"""Who had no event for an hour? An alert by timer, killed with kill -9 half-way, every alert checked against DuckDB.

    python examples/silent_users.py /tmp/silent-users

Writes two days of events (one file a batch), some of which come up to ten minutes late, with the next file. Reads them
as a stream, and writes alerts exactly once to files. A user is silent when an hour without an event has passed since
one of his, by the watermark: only then has all come that belongs into the hour, in whatever order. Ends with status 1
if any alert differs from DuckDB's.
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
    recent = hf.ListState(pa.timestamp("us", "UTC"))
    alarm = hf.Timers("event")

    def process(self, key, rows, ctx):
        for ts in rows["ts"].to_pylist():
            self.recent.add(ts)
            self.alarm.register(ts + HOUR)

    def on_timer(self, key, time, namespace, ctx):
        later = [ts for ts in self.recent.get() if ts > time - HOUR]
        self.recent.update(later)
        if all(ts >= time for ts in later):
            yield key[0], time - HOUR


def write_events(folder):
    draw = random.Random(7)

    def rows_of(began):
        times = [began + timedelta(seconds=draw.randrange(-600, 7200)) for _ in range(ROWS)]
        return [(f"user-{draw.randrange(USERS)}", ts) for ts in times]

    killed.write_files(folder, rows_of, pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC"))]))


if __name__ == "__main__":
    operator = hf.keyed("user", Silence(), ALERTS, name="silence", watermark=("ts", "10 minutes"), ticks="never")
    killed.main(__file__, write_events, EVENTS, operator, EXPECTED, "alerts")
