"""``holdfast checkpoints gc``: what nothing needs any more in the state of a checkpoint, and its deletion.

Says what it would delete, and does it with ``--yes`` only. docs/guide/checkpoints.md says when. Exit codes: 0 done, or
it could be done; 1 not done, or not of all slots; 2 wrong usage.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.cli.rows import files_by_folder, size
from holdfast.inspect import Checkpoint, Garbage


@click.command()
@click.argument("checkpoint")
@click.option(
    "--state",
    "state_folder",
    metavar="FOLDER",
    help="Of spark.holdfast.checkpoint.dir. Default: looked for beside CHECKPOINT, a local folder.",
)
@click.option("--older-than", default="1 d", show_default=True, metavar="DURATION", help="Younger files stay.")
@click.option("--abandoned", metavar="RUN,...", help="Runs that were given up for good.")
@click.option("--yes", is_flag=True, help="Delete. Without, only say what would be deleted.")
@json_option("For machines: every file.")
def gc(
    checkpoint: str, state_folder: str | None, older_than: str, abandoned: str | None, yes: bool, as_json: bool
) -> None:
    """Find files of the state that no batch needs that Spark retains, and delete them with --yes.

    The query may run. What a retained batch names stays, and all of a slot of which a copy of CHECKPOINT may be alive.

    Exit code 0: done, or, without --yes, it could be done. 1: not done, or not of all slots. 2: wrong usage.
    """
    runs = [run for run in (abandoned or "").split(",") if run]
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        found = opened.gc(apply=yes, older_than=older_than, abandoned_runs=runs)
    if as_json:
        click.echo(json.dumps({**asdict(found), "bytes": found.bytes}, indent=2))
    else:
        _show(found)
    raise SystemExit(1 if found.kept else 0)


def _show(found: Garbage) -> None:
    if found.files:
        click.echo(files_by_folder(found.files))
    for folder, reason in found.kept.items():
        click.echo(f"{click.style('kept', fg='yellow')}  {folder}: {reason}", err=True)
    total = f"{len(found.files)} file{'' if len(found.files) == 1 else 's'}, {size(found.bytes)}"
    if found.deleted:
        half = f", and {found.half_written} half-written" if found.half_written else ""
        click.echo(f"{total} deleted{half}")
    else:
        click.echo(f"{total} would be deleted; nothing was changed: add --yes to delete")
