"""``holdfast savepoint create | show | verify | read``: the state of a query as tables that a user owns.

docs/guide/checkpoints.md says when. Exit codes: 0 done, and nothing is wrong; 1 damaged, or not done; 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from holdfast.cli.checkpoints import give
from holdfast.cli.failures import said_on_failure
from holdfast.cli.rows import aligned, condition, instant, size
from holdfast.inspect import Savepoint

_as_json = click.option("--json", "as_json", is_flag=True, help="For machines.")


@click.group()
def savepoint() -> None:
    """A query's whole state at one batch, as Parquet files with a manifest. See the guide, page checkpoints.

    Exit code 0: done, and nothing is wrong. 1: something is damaged, or it was not done. 2: wrong usage.
    """


@savepoint.command()
@click.option("--checkpoint", required=True, help="The query's checkpoint folder; the query may run.")
@click.option("--to", "target", required=True, help="A folder that does not exist, or is empty.")
@click.option("--batch", "batch_id", type=int, help="At the end of this batch. Default: the newest that is committed.")
@click.option(
    "--state", "state_folder", metavar="FOLDER", help="Of spark.holdfast.checkpoint.dir. Default: looked for."
)
@_as_json
def create(checkpoint: str, target: str, batch_id: int | None, state_folder: str | None, as_json: bool) -> None:
    """Make a savepoint of a query's last committed batch."""
    shown = not as_json and sys.stderr.isatty()

    def progress(rows: int) -> None:
        if shown:
            click.echo(f"\r{rows} rows", nl=False, err=True)

    with said_on_failure():
        made = Savepoint.create(
            checkpoint=checkpoint, to=target, batch_id=batch_id, state=state_folder, progress=progress
        )
    if shown:
        click.echo("\r\033[K", nl=False, err=True)
    _show(made, as_json)


@savepoint.command()
@click.argument("folder")
@_as_json
def show(folder: str, as_json: bool) -> None:
    """What the savepoint in FOLDER holds."""
    with said_on_failure():
        opened = Savepoint(folder)
    _show(opened, as_json)


@savepoint.command()
@click.argument("folder")
@_as_json
def verify(folder: str, as_json: bool) -> None:
    """Read every byte of the savepoint in FOLDER, and compare every checksum. Exit code 1: something is damaged."""
    with said_on_failure():
        damaged = Savepoint(folder).verify()
    if as_json:
        click.echo(json.dumps({"damaged": list(damaged)}, indent=2))
    else:
        click.echo("\n".join(damaged) if damaged else "all is whole")
    raise SystemExit(1 if damaged else 0)


@savepoint.command()
@click.argument("folder")
@click.argument("operator")
@click.argument("state")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows of this value; several: all hold.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows that are shown.")
@_as_json
def read(folder: str, operator: str, state: str, where: tuple[str, ...], limit: int, as_json: bool) -> None:
    """The rows of STATE of OPERATOR, with --json an object a line."""
    with said_on_failure():
        opened = Savepoint(folder)
        wanted = condition(opened.read(operator, state).schema, where)
        give(opened.read(operator, state, filter=wanted), limit, None, as_json)


def _show(opened: Savepoint, as_json: bool) -> None:
    manifest = opened.manifest
    states: list[dict[str, Any]] = [
        {
            "operator": operator.name,
            "state": state.name,
            "kind": state.kind,
            "rows": state.rows,
            "bytes": sum(file.size_bytes for file in state.files),
        }
        for operator in manifest.operators
        for state in operator.states
    ]
    if as_json:
        told = {
            "query": manifest.query_id,
            "batch": manifest.batch_id,
            "watermark_ms": manifest.watermark_ms,
            "created_ms": manifest.created_ms,
            "states": states,
        }
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"query {manifest.query_id}, batch {manifest.batch_id}, made {instant(manifest.created_ms)}")
    rows = [[*list(state.values())[:4], size(state["bytes"])] for state in states]
    click.echo(aligned(["operator", "state", "kind", "rows", "size"], rows))
