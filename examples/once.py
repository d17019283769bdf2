"""Each event once, with a state that forgets: repeats that come within three hours are dropped, through a kill -9.

    python examples/once.py /tmp/once

Writes two days of events, a third of which come twice, as from a producer that tries again; reads them as a stream, and
writes each once, exactly once, to files. What the state knows of an event lives for three hours of event time, so it
stays as large as some hours are; and ids, which are used again on the next day, are new then. Ends with status 1 if any
row differs from DuckDB's.
"""

import random
from datetime import timedelta

import killed
import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

ROWS = 500
EVENTS = "id string, ts timestamp, amount long"
EXPECTED = "SELECT DISTINCT * FROM events WHERE id <> 'watch'"


class Once(hf.BatchProcessor):
    seen = hf.AggregatingState(pa.int64(), "count", ttl=hf.TTL("3 h", time="event"))

    def process(self, batch, ctx):
        yield batch.filter(pc.equal(self.seen.add(batch, 1), 1))


def write_events(folder):
    draw = random.Random(13)
    again = []

    def rows_of(began):
        rows, again[:] = list(again), []
        for number in range(ROWS):
            ts = began + timedelta(seconds=draw.randrange(7200))
            row = (f"{began:%H}-{number}", ts, draw.randrange(1, 100))
            rows.append(row)
            if draw.random() < 1 / 3:
                (rows if draw.random() < 1 / 2 else again).append(row)  # in these two hours, or in the next
        return rows

    schema = pa.schema([("id", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.int64())])
    killed.write_files(folder, rows_of, schema)


if __name__ == "__main__":
    operator = hf.keyed("id", Once(), EVENTS, name="once", watermark=("ts", "2 hours"))
    killed.main(__file__, write_events, EVENTS, operator, EXPECTED, "events")
