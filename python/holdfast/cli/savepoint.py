"""``holdfast savepoint create | show | verify | read | convert | dispose``: the state of a query, owned by a user.

docs/guide/checkpoints.md says when. Exit codes: 0 done, and nothing is wrong; 1 damaged, or not done; 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, get_args

import click

from holdfast.cli.checkpoints import give, limit_option, target_option, where_option
from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.cli.rows import aligned, condition, files_by_folder, instant, size
from holdfast.inspect import Savepoint
from holdfast.inspect.savepoint import Format
from holdfast.inspect.savepoint_maker import Progress

_as_json = json_option()


@click.group()
def savepoint() -> None:
    """A query's whole state at one batch, with a manifest: tables, or files of the checkpoint. See the guide, page
    checkpoints.

    Exit code 0: done, and nothing is wrong. 1: something is damaged, or it was not done. 2: wrong usage.
    """


@savepoint.command()
@click.option("--checkpoint", required=True, help="The query's checkpoint folder; the query may run.")
@click.option("--to", "target", required=True, help="A folder that does not exist, or is empty.")
@click.option("--batch", "batch_id", type=int, help="At the end of this batch. Default: the newest that is committed.")
@click.option(
    "--state",
    "state_folder",
    metavar="FOLDER",
    help="Of spark.holdfast.checkpoint.dir. Default: looked for beside the checkpoint, a local folder.",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(get_args(Format)),
    default="canonical",
    show_default=True,
    help="Tables in Parquet; or files of the checkpoint, shared where that can be, which takes no time.",
)
@_as_json
def create(
    checkpoint: str, target: str, batch_id: int | None, state_folder: str | None, format: Format, as_json: bool
) -> None:
    """Make a savepoint of a query's last committed batch."""
    with said_on_failure(), _counter("files" if format == "native" else "rows", as_json) as progress:
        made = Savepoint.create(
            checkpoint=checkpoint, to=target, batch_id=batch_id, state=state_folder, format=format, progress=progress
        )
    _show(made, as_json)


@savepoint.command()
@click.argument("folder")
@click.option("--to", "target", required=True, help="A folder that does not exist, or is empty.")
@_as_json
def convert(folder: str, target: str, as_json: bool) -> None:
    """Make a savepoint of the other format of that in FOLDER: canonical of native, native of canonical."""
    with said_on_failure():
        opened = Savepoint(folder)
        with _counter("rows" if opened.format == "native" else "files", as_json) as progress:
            made = opened.convert(target, progress=progress)
    _show(made, as_json)


@savepoint.command()
@click.argument("folder")
@click.option("--yes", is_flag=True, help="Delete. Without, only say what would be deleted.")
@_as_json
def dispose(folder: str, yes: bool, as_json: bool) -> None:
    """Delete the savepoint in FOLDER with --yes: what its manifest names, and nothing else.

    A query that began with it needs it until each operator has had rows in a committed batch.
    """
    with said_on_failure():
        found = Savepoint.dispose(folder, apply=yes)
    if as_json:
        click.echo(json.dumps({**asdict(found), "bytes": found.bytes}, indent=2))
        return
    click.echo(files_by_folder(found.files))
    for name in found.others:
        click.echo(f"{click.style('kept', fg='yellow')}  {name}: not of the savepoint", err=True)
    total = f"{len(found.files)} file{'' if len(found.files) == 1 else 's'}, {size(found.bytes)}"
    if found.deleted:
        click.echo(f"{total} deleted")
    else:
        click.echo(f"{total} would be deleted; nothing was changed: add --yes to delete")


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
@where_option
@limit_option
@target_option
@_as_json
def read(
    folder: str,
    operator: str,
    state: str,
    where: tuple[str, ...],
    limit: int | None,
    target: str | None,
    as_json: bool,
) -> None:
    """The rows of STATE of OPERATOR, with --json an object a line."""
    with said_on_failure():
        opened = Savepoint(folder)
        wanted = condition(opened.read(operator, state).schema, where)
        give(opened.read(operator, state, filter=wanted), limit, target, as_json)


@contextmanager
def _counter(what: str, as_json: bool) -> Iterator[Progress]:
    """Says how far it is, to a person."""
    shown = not as_json and sys.stderr.isatty()

    def progress(count: int) -> None:
        if shown:
            click.echo(f"\r{count} {what}", nl=False, err=True)

    yield progress
    if shown:
        click.echo("\r\033[K", nl=False, err=True)


def _show(opened: Savepoint, as_json: bool) -> None:
    manifest, native = opened.manifest, opened.format == "native"
    states: list[dict[str, Any]] = [
        {
            "operator": operator.name,
            "state": state.name,
            "kind": state.kind,
            **({} if native else {"rows": state.rows, "bytes": sum(file.size_bytes for file in state.files)}),
        }
        for operator in manifest.operators
        for state in operator.states
    ]
    if as_json:
        told = {
            "format": opened.format,
            "query": manifest.query_id,
            "batch": manifest.batch_id,
            "watermark_ms": manifest.watermark_ms,
            "created_ms": manifest.created_ms,
            **({"files": opened.files, "bytes": opened.bytes} if native else {}),
            "states": states,
        }
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"query {manifest.query_id}, batch {manifest.batch_id}, made {instant(manifest.created_ms)}")
    if native:  # states share files
        click.echo(f"native, {opened.files} files, {size(opened.bytes)}")
        click.echo(aligned(["operator", "state", "kind"], [list(state.values()) for state in states]))
        return
    rows = [[*list(state.values())[:4], size(state["bytes"])] for state in states]
    click.echo(aligned(["operator", "state", "kind", "rows", "size"], rows))
