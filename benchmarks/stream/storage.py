"""storage: what a query asks of an object store, counted at the server: requests are what a cloud bills.

A keyed operator, commit records and files out, all in a bucket of an S3 server (moto's) behind a proxy that counts.
What is measured begins when each worker process has had both slots: before, each looks once whether it may go on.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path

from benchmarks.figures import arguments, at_most, figure, work_folder
from benchmarks.records import recorded
from tests.fault_proxy import Asked, FaultProxy, fault_proxy
from tests.processors import TOTALS, RunningTotal
from tests.s3_server import CREDENTIALS, s3_server
from tests.spark_sessions import start_session

import holdfast as hf

_SLOTS = 2
_DELTA = re.compile(r"/(slot-\d+)/delta/(\d+)-")
_PARTS = {"/state/": "state", "/checkpoint/": "commit records", "/output/": "output"}
#: What a query asks when it starts, and each worker process at its first batch with a slot.
_WARM_BATCHES = 12


def main() -> None:
    """Between two folds first, then over some of them."""
    given = arguments(__doc__, batches=30).parse_args()
    batches = 6 if given.short else given.batches
    os.environ.update(CREDENTIALS)
    with recorded(given) as folder:
        _figures(folder, batches, short=given.short)


def _figures(folder: Path, batches: int, *, short: bool) -> None:
    quiet = _run(folder, batches, {"fold.deltas.max": 100_000, "snapshot.deltas.max": 100_000})
    deltas = [match.groups() for asked in quiet if asked.kind == "put" and (match := _DELTA.search(asked.path))]
    figure("storage.puts_per_slot", len(deltas) / max(1, len(set(deltas))), at_most(1), f"{len(deltas)} deltas")
    lists = [asked for asked in quiet if asked.kind == "list" and _part(asked) != "output"]
    figure("storage.lists_per_batch", len(lists) / _batches(quiet), at_most(0), f"{_batches(quiet)} batches, no fold")
    _table("between folds", quiet)
    if short:
        return
    folding = _run(folder, 3 * batches, {"fold.deltas.max": 8, "snapshot.deltas.max": 16})
    lists = [asked for asked in folding if asked.kind == "list" and _part(asked) != "output"]
    note = f"{_batches(folding)} batches, a fold each 8, a snapshot each 16: the defaults are 32 and 64"
    figure("storage.lists_per_batch_folding", len(lists) / _batches(folding), None, note)
    _table("with folds and snapshots", folding)


def _run(folder: Path, batches: int, settings: dict[str, int]) -> list[Asked]:
    """What is asked in so many batches."""
    with work_folder(folder) as work, s3_server(work / "server.log") as server, fault_proxy(server.url) as proxy:
        (work / "checkpoint").mkdir()
        bucket = server.bucket()
        spark = start_session(
            "local[2]",
            work / "spark",
            spark__holdfast__storage__endpoint=proxy.url,
            spark__holdfast__checkpoint__dir=f"s3://{bucket}/state",
            spark__holdfast__local__dir=str(work / "local"),
            spark__hadoop__fs__s3__impl="org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
            **{f"spark__hadoop__fs__viewfs__mounttable__{bucket}__link__/checkpoint": f"file://{work}/checkpoint"},
        )
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
        events = rows.selectExpr("concat('user', value % 100) AS user", "value AS amount")
        totals = events.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=settings))
        query = hf.write_exactly_once(
            totals,
            hf.FileSink(f"s3://{bucket}/output"),
            checkpoint=f"s3://{bucket}/checkpoint",
            trigger={"processingTime": "0 seconds"},
        )
        try:
            _wait(query, proxy, _WARM_BATCHES)
            with proxy.lock:
                proxy.asked.clear()
            _wait(query, proxy, batches)
            with proxy.lock:
                return list(proxy.asked)
        finally:
            query.stop()
            spark.stop()


def _wait(query: hf.Query, proxy: FaultProxy, batches: int) -> None:
    def recorded() -> int:
        with proxy.lock:
            return _batches(proxy.asked)

    wanted = recorded() + batches
    while recorded() < wanted:
        if not query.isActive:
            query.awaitTermination()
        time.sleep(0.1)


def _batches(asked: list[Asked]) -> int:
    return len({one.path for one in asked if one.kind == "put" and "/records/" in one.path})


def _part(asked: Asked) -> str:
    place = asked.path + "".join(f"/{prefix}" for prefix in asked.query.get("prefix", ()))
    return next((part for sign, part in _PARTS.items() if sign in place), "other")


def _table(when: str, asked: list[Asked]) -> None:
    counted = Counter((_part(one), one.kind) for one in asked)
    print(f"# requests a batch {when}, {_batches(asked)} batches, {_SLOTS} slots, {_SLOTS} sink tasks")
    for (part, kind), count in sorted(counted.items()):
        print(f"#   {part:15} {kind:13} {count / _batches(asked):.2f}")


if __name__ == "__main__":
    main()
