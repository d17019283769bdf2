"""pressure: a state that is larger than the memory, keys drawn uniformly and by Zipf's law.

JVM, workers and the page cache of their files share a memory cgroup; the state is larger than all of it. It holds
the last payload of each key: filled once, in order of keys, then each query is started again on its checkpoint, round
after round, in turns: ours within the limit, ours without one, and within it Spark's RocksDB provider, tuned, twice:
under Spark SQL's aggregation, which sorts for a last value that is no number, and under transformWithState in Scala,
which reads none. Batches are by turns uniform and Zipf. A round takes minutes, so each batch that is measured counts.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.figures import IN_TURNS, ROOT, arguments, at_least, at_most, figure, in_turns, middle, ratio
from benchmarks.memory_group import run_within
from benchmarks.records import recorded
from benchmarks.stream.last_payload import OURS, SCALA, SPARK, Stream
from benchmarks.stream.long_run import KEYS
from benchmarks.stream.workload import configured, start_session
from benchmarks.turns import against, turns

from holdfast.settings import Settings

MIB = 1 << 20
#: Batches after each start that are not measured: caches fill, Spark fetches its snapshots.
WARM_UP = 4
HEAP_MIB = 1024
#: What a container of this size is given: with the defaults two tasks may hold more than all of it.
MEMORY = {
    "spark.holdfast.memory.cache.max": "64 MiB",
    "spark.holdfast.memory.batch.max": "96 MiB",
    "spark.holdfast.memory.spool.max": "32 MiB",
}
#: The rivals by the end of their figures' names.
RIVALS = {"spark_sql_tuned": SPARK, "scala_transform_with_state": SCALA}
ENGINES = {"holdfast": OURS["holdfast"], **RIVALS}
#: Each way: the engine, and whether it has the limit.
WAYS = {
    "holdfast": ("holdfast", True),
    "holdfast, no limit": ("holdfast", False),
    **{rival: (rival, True) for rival in RIVALS},
}


@dataclass(frozen=True)
class Size:
    """Rows a batch, keys, measured batches of each kind a round, the limit in MiB."""

    rows: int
    keys: int
    measured: int
    limit_mib: int

    def stream(self) -> Stream:
        """Filled in order of keys; then uniform and Zipf batches by turns."""
        uniform, zipf = (KEYS[drawn].format(keys=self.keys) for drawn in ("uniform", "zipf"))
        return Stream(self.rows, self.keys, f"CASE WHEN value DIV {self.rows} % 2 = 0 THEN {uniform} ELSE {zipf} END")


def run_engine(folder: Path, engine: str, size: Size, batches: int) -> None:
    """The role of the child process: so many batches more; prints the number and the milliseconds of each."""
    spark = start_session(folder, scala=True, spark__driver__memory=f"{HEAP_MIB}m")
    way = ENGINES[engine]
    with configured(spark, {**MEMORY, **way.conf}):
        writer = way.build(size.stream().of(spark)).writeStream.format("noop").outputMode(way.output_mode)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        while len(query.recentProgress) < batches:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.05)
        found = [(one.batchId, one.durationMs["triggerExecution"]) for one in query.recentProgress]
        query.stop()
    print("MS " + json.dumps(found), flush=True)
    spark.stop()


@dataclass
class Found:
    """Of one start: rows/s of each uniform and each Zipf batch, and what memory it took beside the page cache."""

    uniform: list[float]
    zipf: list[float]
    anonymous_bytes: int


class Queries:
    """Both engines' checkpoints, each started again and again."""

    def __init__(self, folder: Path, size: Size) -> None:
        self._folder, self._size = folder, size
        for engine in ENGINES:
            if not (folder / engine).is_dir():
                self._run(engine, size.stream().filling, None)
                print(f"{engine}: {size.keys:,} keys stored", flush=True)

    def once(self, way: str) -> Found:
        """A start with warm-up and measured batches."""
        engine, limited = WAYS[way]
        size = self._size
        batches, peak_bytes = self._run(engine, WARM_UP + 2 * size.measured, size.limit_mib * MIB if limited else None)
        counted = batches[WARM_UP:]
        uniform, zipf = ([size.rows / ms * 1000 for number, ms in counted if number % 2 == odd] for odd in (0, 1))
        told = f"uniform {median(uniform):,.0f}, Zipf {median(zipf):,.0f} rows/s, {peak_bytes / MIB:,.0f} MiB"
        print(f"{way:<20} {told}", flush=True)
        return Found(uniform, zipf, peak_bytes)

    def state_bytes(self, engine: str) -> int:
        """Of its files on the local disk or, Spark's, of the newest snapshots' in storage."""
        if engine == "holdfast":
            return sum(path.stat().st_size for path in (self._folder / engine / "holdfast-local").rglob("*.sst"))
        return sum(path.stat().st_size for path in (self._folder / engine / "checkpoint" / "state").rglob("*.sst"))

    def _run(self, engine: str, batches: int, limit_bytes: int | None) -> tuple[list[tuple[int, int]], int]:
        size = self._size
        numbers = [f"--{name}={value}" for name, value in asdict(size).items()]
        command = [sys.executable, "-m", "benchmarks.stream.pressure", f"--child={engine}", f"--batches={batches}"]
        command += [f"--folder={self._folder / engine}", *(one.replace("_", "-") for one in numbers)]
        ran = run_within(command, ROOT, limit_bytes)
        lines = [line for line in ran.said.splitlines() if line.startswith("MS ")]
        if ran.code or not lines:
            why = "the kernel killed for want of memory" if ran.killed else f"exit code {ran.code}"
            raise RuntimeError(f"{engine} within {size.limit_mib} MiB: {why}\n{ran.said[-2000:]}")
        found: list[tuple[int, int]] = [(number, ms) for number, ms in json.loads(lines[0].removeprefix("MS "))]
        return found, ran.anonymous_peak_bytes


def measure(folder: Path, size: Size, rounds: int) -> None:
    """All ways in turns."""
    queries = Queries(folder, size)
    found = turns(list(WAYS), rounds, queries.once)
    state_bytes = queries.state_bytes("holdfast")
    limit = f"{size.limit_mib:,} MiB for JVM, workers and page cache"
    for drawn in ("uniform", "zipf"):
        rates = {way: [rate for one in starts for rate in getattr(one, drawn)] for way, starts in found.items()}
        rivals = {rival: rates[rival] for rival in RIVALS}
        against(f"pressure.{drawn}.vs", rates["holdfast"], rivals, faster=max, best=at_least(1))
        ratio(f"pressure.{drawn}.vs_unlimited", in_turns(rates["holdfast"], rates["holdfast, no limit"]), note=limit)
        middle(f"pressure.{drawn}.rows_per_s", rates["holdfast"], how=IN_TURNS)
    figure("pressure.state_of_limit", state_bytes / (size.limit_mib * MIB), at_least(1), f"{state_bytes / 1e9:.2f} GB")
    said = "the JVM's heap, and what the guide says of two tasks' workers"
    figure("pressure.promised_mib", promised_bytes() / MIB, note=said)
    ours = [one.anonymous_bytes / promised_bytes() for one in found["holdfast"]]
    middle("pressure.anonymous_of_promise", ours, at_most(1), "anonymous memory of all processes at its peak", IN_TURNS)
    for name, way in (("", "holdfast"), *((f"{rival}_", rival) for rival in RIVALS)):
        peaks = [one.anonymous_bytes / MIB for one in found[way]]
        middle(f"pressure.{name}anonymous_mib", peaks, note="the peak of all processes together", how=IN_TURNS)


def promised_bytes() -> int:
    """What docs/guide/operators.md, Memory, allows two tasks, each with a worker for its slot and one that packs, and
    the heap of the JVM. Nothing of it for the interpreters, or for what the JVM has beside its heap.
    """
    settings = Settings.from_mapping({**MEMORY, "spark.holdfast.checkpoint.dir": "unused"})
    arrow_bytes = 4 * 32 * MIB
    slot = 2 * settings.batch_memory_max_bytes + settings.spool_memory_max_bytes + settings.cache_memory_max_bytes
    return HEAP_MIB * MIB + 2 * (slot + arrow_bytes) + 2 * (3 * settings.pack_memory_max_bytes + arrow_bytes)


def main() -> None:
    """34M keys of 96 bytes in 3 GiB."""
    parser = arguments(__doc__, rows=500_000, keys=34_000_000, measured=4, rounds=2, limit_mib=3072)
    parser.add_argument("--filled", type=Path, help="a folder that keeps filled checkpoints, where it is")
    parser.add_argument("--child", choices=list(ENGINES), help="used by the benchmark itself")
    parser.add_argument("--batches", type=int, help="used by the benchmark itself")
    given = parser.parse_args()
    if given.short:
        given.rows, given.keys, given.measured, given.rounds, given.limit_mib = 20_000, 100_000, 1, 1, 2048
    size = Size(given.rows, given.keys, given.measured, given.limit_mib)
    if given.child:
        run_engine(given.folder, given.child, size, given.batches)
        return
    with recorded(given) as folder:
        measure(given.filled or folder, size, given.rounds)


if __name__ == "__main__":
    main()
