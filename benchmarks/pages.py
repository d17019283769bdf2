"""The pages that are made from records: the table in README.md, between two marks, and docs/figures.md.

`make figures` writes them; tests/tidy/test_figures.py says when they do not agree with the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import IN_TURNS, ONE_AFTER_THE_OTHER, ROOT, Figure
from benchmarks.records import OTHERS_QUIET_MAX, Record, newest, read_all

BEGIN = "<!-- figures: `make figures` writes from here -->"
END = "<!-- figures: to here -->"
README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "figures.md"
NOT_RECORDED = "not recorded"
_HOW = {IN_TURNS: "in turns", ONE_AFTER_THE_OTHER: "one run, one after the other", None: "alone"}
_GRID_SAYS = """\
All sizes of the running sum, rows/s ÷ Spark SQL's (in memory or on RocksDB, tuned, whichever is better); below 1 Spark
wins, whose map side leaves one row a key and task to shuffle (`make bench BENCH=keyed_sum ARGS="--only grid"`):"""
_PAGE_SAYS = """\
Made by `make figures` from the records in `benchmarks/recorded`, which `make bench BENCH=… ARGS=--record` writes:
change nothing here. What each figure compares and how it can lie: [benchmarks/README.md](../benchmarks/README.md).
Ratios travel to other machines, absolute figures do not. ° stands where other processes and other virtual machines
together had more than a twentieth of the machine, \\* where changes were not committed."""
GRID_ROWS, GRID_KEYS = (100_000, 1_000_000, 20_000_000), (20_000, 200_000, 20_000_000)


@dataclass(frozen=True)
class Row:
    """A row of the README's table: what was measured, the figures' names, the arguments that measure them."""

    text: str
    names: Sequence[str]
    arguments: str = ""

    @property
    def command(self) -> str:
        """What measures it again."""
        bench = self.names[0].split(".", 1)[0]
        return f"`make bench BENCH={bench}" + (f' ARGS="{self.arguments}"`' if self.arguments else "`")


ROWS = (
    Row(
        "running sum, 1M rows a batch, 200k keys, rows/s ÷ the best of what Spark has",
        ["keyed_sum.vs_best"],
        "--only main",
    ),
    Row(
        "the same ÷ Spark SQL: RocksDB as it comes, RocksDB tuned, in memory",
        ["keyed_sum.vs_spark_sql", "keyed_sum.vs_spark_sql_tuned", "keyed_sum.vs_spark_sql_in_memory"],
        "--only main",
    ),
    Row("the same ÷ transformWithState in Scala", ["keyed_sum.vs_scala_transform_with_state"], "--only main"),
    Row(
        "the same ÷ applyInPandasWithState: a dict a partition, a group a key",
        ["keyed_sum.vs_apply_by_partition", "keyed_sum.vs_apply_in_pandas"],
    ),
    Row(
        "the same ÷ transformWithState in Python: rows, pandas",
        ["keyed_sum.vs_transform_with_state", "keyed_sum.vs_transform_with_state_in_pandas"],
        "--only slow",
    ),
    Row(
        "nearly all keys distinct, over 5M stored, ÷ the best of what Spark has",
        ["keyed_sum.many_keys_vs_best"],
        "--only many-keys",
    ),
    Row(
        "what state costs over the empty pipe, part of its processor time: rocksdb, hashmap",
        ["keyed_sum.state_cost", "keyed_sum.state_cost_hashmap"],
        "--only main",
    ),
    Row(
        "200 batches of 300k rows over 600k keys, folds, uploads, Spark's maintenance inside, ÷ the best of Spark",
        ["long_run.uniform.vs_best"],
    ),
    Row("the same, keys as Zipf has them", ["long_run.zipf.vs_best"], "--keys-drawn zipf"),
    Row("read-modify-write ÷ bare RocksDB, cold", ["core_ops.vs_rocksdb"]),
    Row("the same on hot keys, rows/s on one core", ["core_ops.hot_rows_per_s"]),
    Row("a slot's batch of 100 rows over 1M keys, ms: p50, p99", ["small_batch.p50_ms", "small_batch.p99_ms"]),
    Row("the same as a whole query, time ÷ the best of what Spark has", ["small_batch.query_vs_best"]),
    Row(
        "the same ÷ applyInPandasWithState; ÷ Spark SQL's aggregation",
        ["small_batch.query_vs_apply_in_pandas", "small_batch.query_vs_spark_sql"],
    ),
    Row("rate at 10M stored keys ÷ at 100k", ["growth.10m_vs_100k"]),
    Row(
        "the same batches ÷ Spark SQL, RocksDB tuned: over 100k stored keys, over 10M",
        ["growth.100k_vs_spark_sql_tuned", "growth.10m_vs_spark_sql_tuned"],
    ),
    Row(
        "bytes uploaded ÷ bytes changed, 5 GB of state: between snapshots, over a cycle",
        ["upload.delta_ratio", "upload.cycle_ratio"],
    ),
    Row(
        "bytes uploaded by a whole query ÷ changed: ours, Spark's changelogs, Spark's tables (Flink's way)",
        ["upload.query_ratio", "upload.spark_query_ratio", "upload.spark_by_tables_query_ratio"],
        "--only peers",
    ),
    Row(
        "a state larger than the memory, rows/s ÷ the best of Spark's RocksDB: keys uniform, as Zipf has them",
        ["pressure.uniform.vs_best", "pressure.zipf.vs_best"],
    ),
    Row("the same ÷ ours with all memory", ["pressure.uniform.vs_unlimited", "pressure.zipf.vs_unlimited"]),
    Row("memory of all processes at its peak ÷ what the settings allow", ["pressure.anonymous_of_promise"]),
    Row(
        "a row from Kafka to Kafka at 25, 50, 75, 90 % of capacity, p99 in ms",
        [f"load.{part}.p99_ms" for part in (25, 50, 75, 90)],
    ),
    Row(
        "the same ÷ Spark SQL, RocksDB tuned",
        [f"load.{part}.p99_vs_spark_sql_tuned" for part in (25, 50, 75, 90)],
    ),
    Row(
        "the same ÷ Spark SQL, in memory",
        [f"load.{part}.p99_vs_spark_sql_in_memory" for part in (25, 50, 75, 90)],
    ),
    Row("1 GB of state opened again, s: warm, cold", ["recovery.warm_s", "recovery.cold_s"]),
    Row("the same with nothing in the page cache", ["recovery.warm_uncached_s", "recovery.cold_uncached_s"]),
    Row("a query started again without local files, time ÷ Spark's RocksDB provider's", ["recovery.vs_spark"]),
    Row("the same, s; of these the opening of its state", ["recovery.restart_s", "recovery.opening_s"]),
    Row("state that another number of slots begins with, s a GB", ["rescale.seconds_per_gb"]),
    Row(
        "a savepoint made; begun with: MB of Parquet a second of processor time",
        ["savepoint.create_mb_per_s", "savepoint.restore_mb_per_s"],
    ),
    Row("a savepoint read, rows a second of processor time", ["savepoint.read_rows_per_s"]),
    Row(
        "a native savepoint, time ÷ an upload of what the newest snapshot brought",
        ["savepoint.native_create"],
    ),
    Row(
        "a checkpoint read, rows a second of processor time; s until the first rows",
        ["read.rows_per_s", "read.bring_s"],
    ),
    Row("one key of a checkpoint looked up, ms", ["read.lookup_ms"]),
    Row(
        "state in a bucket: PUTs a slot and batch; LISTs a batch: between folds, with folds",
        ["storage.puts_per_slot", "storage.lists_per_batch", "storage.lists_per_batch_folding"],
    ),
    Row("Kafka source, 100-byte messages, rows/s", ["kafka_source.rows_per_s"]),
    Row(
        "the same ÷ a consumer process a core: tuned, as it comes",
        ["kafka_source.vs_tuned_client", "kafka_source.vs_bare_client"],
    ),
    Row("the same ÷ Spark's own connector", ["kafka_source.vs_spark_connector"]),
    Row(
        "kill -9 from Kafka to Kafka: kills, pairs of step and who dies left out, rows lost, rows twice",
        ["exactly_once.kills", "exactly_once.pairs_missing", "exactly_once.lost", "exactly_once.twice"],
    ),
    Row("exactly-once ÷ at-least-once into Kafka, 100k rows a batch", ["eos.vs_alo"]),
    Row("the same ÷ foreachBatch with a producer in each task; ÷ mode none", ["eos.vs_foreach_batch", "eos.vs_plain"]),
    Row("the same ÷ without [witnesses](docs/guide/kafka_sink.md)", ["eos.vs_unwitnessed"]),
    Row(
        "commit of a batch, ms: alone p50, p99; in the query p50, p99",
        ["eos.commit_p50_ms", "eos.commit_p99_ms", "eos.commit_in_query_p50_ms", "eos.commit_in_query_p99_ms"],
    ),
    Row(
        "from when a row is due to when it is visible, small batches, ms: p50, p99; at-least-once p50, p99",
        ["eos.e2e_p50_ms", "eos.e2e_p99_ms", "eos.e2e_alo_p50_ms", "eos.e2e_alo_p99_ms"],
    ),
    Row("a sum with a time to live ÷ without; bytes on disk ÷ bytes alive", ["ttl.cost", "ttl.disk_ratio"]),
    Row("10M timers, none due: a small batch ÷ without", ["timers.idle_cost"]),
    Row(
        "timers fired a second and core: each with a lookup; alone; with a lookup, in two workers by turns",
        ["timers.fired_per_s", "timers.fired_alone_per_s", "timers.fired_by_turns_per_s"],
    ),
    Row(
        "values of evolved types ÷ of types that never changed: read before; nothing old left; that out of the base",
        ["evolution.hot_cost", "evolution.declared_hot_cost", "evolution.declared_read_cost"],
    ),
    Row("the same, values of earlier types read for the first time", ["evolution.first_read_cost"]),
    Row("peak memory of a worker ÷ its budget", ["memory.of_budget"], "--only budget"),
    Row("the same of one batch ÷ of one with a tenth of its rows", ["memory.large_batch"], "--only large-batch"),
)


def readable(value: float) -> str:
    """Three digits; thousands and millions as k and M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * unit:
            return f"{_digits(value / unit)}{letter}"
    return _digits(value)


def _digits(value: float) -> str:
    """Three of them, never as a power of ten."""
    return (
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-3 or not value else f"{value:.6f}"
    )


def cell(found: tuple[Figure, Record] | None) -> str:
    """A figure as it stands in a table: value, spread, and what is to be said against it."""
    if found is None:
        return NOT_RECORDED
    figure, record = found
    text = readable(figure.value)
    if figure.measured.spread is not None:
        low, high = figure.measured.spread
        text += f" ({readable(low)} to {readable(high)})"
    if figure.goal is not None and not figure.goal.met(figure.value):
        text += ", **missed**"
    return text + ("" if record.quiet else "°") + ("" if record.clean else "*")


def readme_part(figures: Mapping[str, tuple[Figure, Record]]) -> str:
    """What stands between the marks of README.md."""
    lines = ["| | goal | measured (between quartiles) | compared | command |", "| --- | --- | --- | --- | --- |"]
    for row in ROWS:
        found = [figures.get(name) for name in row.names]
        if not any(found):
            continue  # docs/figures.md names it among what has not been recorded
        wanted = [str(one[0].goal) if one and one[0].goal else "–" for one in found]
        goals = "; ".join(wanted) if any(one != "–" for one in wanted) else ""
        how = dict.fromkeys(_HOW[one[0].measured.how] for one in found if one)
        values = "; ".join(map(cell, found))
        lines.append(f"| {row.text} | {goals} | {values} | {', '.join(how)} | {row.command} |")
    return "\n".join([*lines, "", _marks(figures), "", *_grid(figures)])


def _marks(figures: Mapping[str, tuple[Figure, Record]]) -> str:
    cells = " ".join(cell(one) for one in figures.values())
    said = [
        _machines(figures),
        f"° others (processes and other virtual machines together) had more than {OTHERS_QUIET_MAX:.0%} of the machine."
        if "°" in cells
        else "",
        "\\* measured on changes that were not committed." if "*" in cells.replace("**missed**", "") else "",
        "Commit, versions, machine and load of each, and what is not recorded yet: [docs/figures.md](docs/figures.md).",
    ]
    return " ".join(filter(None, said))


def grid_name(rows: int, keys: int) -> str:
    """The figure of one size: Holdfast ÷ Spark SQL."""
    return f"keyed_sum.vs_spark_sql.{rows // 1000}k_rows_{keys // 1000}k_keys"


def _grid(figures: Mapping[str, tuple[Figure, Record]]) -> list[str]:
    """All sizes, those where Spark wins too; nothing before the first is recorded."""
    if not any(grid_name(rows, keys) in figures for rows in GRID_ROWS for keys in GRID_KEYS):
        return []
    head = " | ".join(f"{readable(keys)} keys" for keys in GRID_KEYS)
    lines = [
        _GRID_SAYS,
        "",
        f"| rows a batch | {head} |",
        f"| --- |{' --- |' * len(GRID_KEYS)}",
    ]
    for rows in GRID_ROWS:
        cells = " | ".join(cell(figures.get(grid_name(rows, keys))) for keys in GRID_KEYS)
        lines.append(f"| {readable(rows)} | {cells} |")
    return lines


def figures_page(records: Sequence[Record]) -> str:
    """docs/figures.md: every record, whole."""
    lines = [
        "# Figures",
        "",
        _PAGE_SAYS,
        "",
    ]
    lines += _missed(newest(list(records)))
    lines += _missing({figure.name for record in records for figure in record.figures})
    for record in sorted(records, key=lambda one: one.name):
        lines += _section(record)
    return "\n".join(lines)


def _missing(recorded: set[str]) -> list[str]:
    """Which figures of the README's table, and whether all of its sizes, no run has been kept of."""
    rows = []
    for row in ROWS:
        names = [f"`{name}`" for name in row.names if name not in recorded]
        if names:
            rows.append(f"- {', '.join(names)}: {row.command}")
    if not all(grid_name(many, keys) in recorded for many in GRID_ROWS for keys in GRID_KEYS):
        rows.append('- the running sum at all sizes: `make bench BENCH=keyed_sum ARGS="--only grid"`')
    return ["Not recorded yet:", "", *rows, ""] if rows else []


def _missed(figures: Mapping[str, tuple[Figure, Record]]) -> list[str]:
    """Those that do not reach their goals."""
    rows = []
    for name, (figure, record) in sorted(figures.items()):
        if figure.goal is not None and not figure.goal.met(figure.value):
            rows.append(f"- `{name}`: {cell((figure, record)).replace(', **missed**', '')}, wanted {figure.goal}")
    where = "[where the time goes](../benchmarks/README.md#a-goal-that-is-missed)"
    return [f"Goals that are missed; {where}:", "", *rows, ""] if rows else []


def _machines(figures: Mapping[str, tuple[Figure, Record]]) -> str:
    """On which the figures were measured."""
    found = {f"{one.machine['processor']}, {one.machine['cores']} cores" for _, one in figures.values()}
    return f"Measured on {' and '.join(sorted(found))}: which one, the page below says of each."


def _section(record: Record) -> list[str]:
    load, machine = record.load, record.machine
    gib = int(machine["memory_bytes"]) / (1 << 30)
    shares = f"other processes had {load['others']:.1%} of the machine, other virtual machines {load['stolen']:.1%}"
    commit = f"`{record.commit[:12]}`" + ("" if record.clean else ", with changes that were not committed")
    arguments = ", ".join(f"{name} {value}" for name, value in record.arguments.items())
    lines = [
        f"## {record.name}",
        "",
        f"- {record.begun}, {record.seconds:.0f} s, commit {commit}; {arguments or 'no arguments'}",
        f"- {machine['processor']}, {machine['cores']} cores, {gib:.0f} GiB, {machine['system']}",
        f"- {', '.join(f'{name} {version}' for name, version in sorted(record.versions.items()))}",
        f"- load {load['before']} before, {load['after']} after; {shares}",
        "",
        "| figure | goal | value (between quartiles) | n | compared | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for figure in record.figures:
        n = ", ".join(f"{name} {series.n}" for name, series in figure.measured.series.items()) or "once"
        cells = (
            f"`{figure.name}`",
            figure.goal or "",
            cell((figure, record)),
            n,
            _HOW[figure.measured.how],
            figure.note,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def pages(records: Sequence[Record]) -> dict[Path, str]:
    """The whole text of each page, as the records want it.

    Raises
    ------
    ValueError
        README.md has not both marks.
    """
    readme = README.read_text(encoding="utf-8")
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README}: expected the lines {BEGIN!r} and {END!r}, between which the table stands")
    part = readme_part(newest(list(records)))
    return {README: f"{before}{BEGIN}\n\n{part}\n\n{END}{after}", FIGURES: figures_page(records)}


def main() -> None:
    """Writes the pages."""
    for path, text in pages(read_all()).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
