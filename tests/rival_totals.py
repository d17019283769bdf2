"""Every way of the benchmarks over the same files; writes the totals that each gave, by key, as JSON.

    python -m tests.rival_totals FOLDER

reads FOLDER/input, a file a batch, and writes FOLDER/totals.json.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from benchmarks.stream.rivals import RIVALS
from benchmarks.stream.ways import OURS, Way
from benchmarks.stream.workload import configured, start_session
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark_jvm import jvm_options

GIVING_TOTALS = {name: OURS[name] for name in ("holdfast", "holdfast, a total for each row")} | RIVALS
#: transformWithState in Python asks a worker of the driver for its states while it plans, and gives that worker ten
#: seconds to start, a limit that no setting moves: on a busy machine it is asked again.
ATTEMPTS = 6
_TOO_SLOW = "Python worker failed to connect back"


def totals(spark: SparkSession, checkpoint: Path, way: Way) -> dict[str, object]:
    """The last total of each key; and the rows that each batch gave."""
    last: dict[int, int] = {}
    given: Counter[int] = Counter()

    def keep(frame: DataFrame, batch_id: int) -> None:
        for row in frame.selectExpr("CAST(key AS LONG) AS key", "CAST(total AS LONG) AS total").collect():
            last[row.key] = row.total
            given[batch_id] += 1

    source = spark.readStream.schema("key long, amount long").option("maxFilesPerTrigger", 1)
    with configured(spark, way.conf):
        writer = way.build(source.parquet(str(checkpoint.parent / "input"))).writeStream.foreachBatch(keep)
        writer = writer.outputMode(way.output_mode).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300), "not done within five minutes"
    return {"totals": last, "rows": [given[batch] for batch in sorted(given)]}


def totals_in_the_end(spark: SparkSession, folder: Path, number: int, way: Way) -> dict[str, object]:
    """The same, begun anew where a worker was too slow to start."""
    for attempt in range(ATTEMPTS):
        try:
            return totals(spark, folder / f"checkpoint-{number}-{attempt}", way)
        except StreamingQueryException as error:
            if _TOO_SLOW not in str(error):
                raise
    raise TimeoutError(f"in {ATTEMPTS} attempts no worker started within Spark's ten seconds")


def main() -> None:
    folder = Path(sys.argv[1])
    spark = start_session(folder, scala=True, spark__driver__extraJavaOptions=jvm_options())
    found = {}
    for number, (name, way) in enumerate(GIVING_TOTALS.items()):
        found[name] = totals_in_the_end(spark, folder, number, way)
        print(name, found[name]["rows"], flush=True)
    (folder / "totals.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
