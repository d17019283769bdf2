"""``holdfast checkpoints list | show | verify | read | diff``: what a query's checkpoint holds. Changes nothing.

docs/guide/checkpoints.md says when. Exit codes: 0 done, and nothing is wrong; 1 damaged, or not done; 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.cli.new_file import new_file
from holdfast.cli.rows import aligned, condition, instant, show_table, size
from holdfast.errors import Unavailable
from holdfast.inspect import Checkpoint, Version
from holdfast.savepoint.columns import as_parquet, parquet_schema

Command = TypeVar("Command", bound=Callable[..., Any])

_checkpoint = click.argument("checkpoint")
_as_json = json_option()
_state_folder = click.option(
    "--state",
    "state_folder",
    metavar="FOLDER",
    help="Of spark.holdfast.checkpoint.dir. Default: looked for beside CHECKPOINT, a local folder.",
)
limit_option = click.option(
    "--limit", type=click.IntRange(1), help="Rows that are shown: 20 by default, all of them with --json."
)
where_option = click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only rows of this value (bytes in base64, as they are shown); several: all hold.",
)
target_option = click.option(
    "--to", "target", type=click.Path(dir_okay=False), help="All rows into this new Parquet file."
)


@click.group()
def checkpoints() -> None:
    """What a query's checkpoint holds: list, verify, read it, while the query runs or not. Nothing is changed but by
    gc and repair, with --yes.

    CHECKPOINT is the folder that was given as checkpoint=. A version is named by the batch whose end it is.

    Exit code 0: done, and nothing is wrong. 1: something is damaged, or it was not done. 2: wrong usage.
    """


@checkpoints.command("list")
@_checkpoint
@_state_folder
@_as_json
def list_versions(checkpoint: str, state_folder: str | None, as_json: bool) -> None:
    """The batches that are committed and retained.

    Exit code 0: all can be read, as far as Spark's own files tell. 1: some cannot.
    """
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        found = opened.versions()
    if as_json:
        click.echo(json.dumps({"query": opened.query_id, "versions": [asdict(version) for version in found]}, indent=2))
    else:
        _show_versions(found)
    raise SystemExit(1 if any(version.problem for version in found) else 0)


def _show_versions(found: tuple[Version, ...]) -> None:
    rows = []
    for version in found:
        slots = sum(figures["slots"] for figures in version.operators.values())
        total = sum(figures["bytes"] for figures in version.operators.values())
        watermark, note = instant(version.watermark_ms), "cannot be read" if version.problem else ""
        rows.append([version.batch_id, instant(version.timestamp_ms), watermark, slots, size(total), note])
    click.echo(aligned(["batch", "time", "watermark", "slots", "size", ""], rows))
    problems = {version.problem for version in found if version.problem}
    for problem in sorted(problems):
        click.echo(problem, err=True)


@checkpoints.command()
@_checkpoint
@_state_folder
@_as_json
def show(checkpoint: str, state_folder: str | None, as_json: bool) -> None:
    """The operators and their states, as they were recorded."""
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        found = opened.operators()
    if as_json:
        told = {"query": opened.query_id, "state": opened.state_uri, "operators": [asdict(one) for one in found]}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"query {opened.query_id}, state in {opened.state_uri}")
    for operator in found:
        key = ", ".join(f"{name} {kind}" for name, kind in operator.key_columns.items())
        click.echo(f"\n{operator.name}: key {key}; {operator.slots} slots, {operator.max_parallelism} key groups")
        rows = [
            [state.name, state.kind, state.function or "", ", ".join(f"{n} {t}" for n, t in state.types.items())]
            for state in operator.states
        ]
        click.echo(aligned(["state", "kind", "function", "types"], rows))


@checkpoints.command()
@_checkpoint
@_state_folder
@_as_json
def verify(checkpoint: str, state_folder: str | None, as_json: bool) -> None:
    """Read every byte that a retained batch needs, and compare every checksum.

    Exit code 0: all is whole. 1: something is damaged; said is what, and which batches are readable all the same.
    """
    shown = not as_json and sys.stderr.isatty()

    def progress(files: int, read: int) -> None:
        if shown and files % 50 == 0:
            click.echo(f"\r{files} files, {size(read)}", nl=False, err=True)

    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        found = opened.verify(progress=progress)
    if shown:
        click.echo("\r\033[K", nl=False, err=True)
    if as_json:
        click.echo(json.dumps({**asdict(found), "whole": found.whole}, indent=2))
    else:
        for damage in found.damaged:
            click.echo(f"{click.style('damaged', fg='red')}  {damage.name}\n         {damage.problem}")
        for batch_id, problems in found.lost.items():
            click.echo(f"{click.style('lost', fg='red')}     batch {batch_id}: {'; '.join(problems)}")
        if found.unretained:
            count, newest = len(found.unretained), found.unretained[-1]
            click.echo(f"{count} batches, up to batch {newest}, are no longer retained by Holdfast, as it was told")
        batches = f"{len(found.readable)} of {len(found.readable) + len(found.lost)} batches can be restored"
        click.echo(f"{found.files} files, {size(found.bytes)} read: {len(found.damaged)} damaged, {batches}")
    raise SystemExit(0 if found.whole else 1)


@checkpoints.command()
@_checkpoint
@click.argument("operator")
@click.argument("state")
@click.option("--batch", "batch_id", type=int, help="The version at the end of this batch. Default: the newest.")
@click.option("--columns", metavar="A,B", help="Only these.")
@where_option
@limit_option
@target_option
@_state_folder
@_as_json
def read(
    checkpoint: str,
    operator: str,
    state: str,
    batch_id: int | None,
    columns: str | None,
    where: tuple[str, ...],
    limit: int | None,
    target: str | None,
    state_folder: str | None,
    as_json: bool,
) -> None:
    """The rows of STATE of OPERATOR, with --json an object a line."""
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        schema = opened.read(operator, state, batch_id=batch_id).schema
        wanted = columns.split(",") if columns else None
        rows = opened.read(operator, state, batch_id=batch_id, columns=wanted, filter=condition(schema, where))
        give(rows, limit, target, as_json)


@checkpoints.command()
@_checkpoint
@click.argument("operator")
@click.argument("state")
@click.argument("old", type=int)
@click.argument("new", type=int, required=False)
@limit_option
@target_option
@_state_folder
@_as_json
def diff(
    checkpoint: str,
    operator: str,
    state: str,
    old: int,
    new: int | None,
    limit: int | None,
    target: str | None,
    state_folder: str | None,
    as_json: bool,
) -> None:
    """The rows of STATE that batches after OLD added, changed or removed, up to NEW (default: the newest)."""
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        give(opened.diff(operator, state, old, new), limit, target, as_json)


def give(rows: pa.RecordBatchReader, limit: int | None, target: str | None, as_json: bool) -> None:
    """Rows to the terminal, or all of them into a new Parquet file, which is there once it has them all."""
    if target is None:
        show_table(rows, limit, as_json)
        return
    count = 0
    schema = parquet_schema(rows.schema)
    try:
        with new_file(target) as path, pq.ParquetWriter(path, schema) as writer:
            for batch in rows:
                writer.write_batch(as_parquet(batch, schema))
                count += batch.num_rows
    except OSError as error:
        raise Unavailable(f"{target} cannot be written: {error.strerror or error}") from error
    click.echo(json.dumps({"rows": count, "file": target}) if as_json else f"{count} rows in {target}")
