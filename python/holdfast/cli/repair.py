"""``holdfast checkpoints repair``: puts damaged files of a checkpoint's state back, byte for byte, from where they are.

Says what it would do, and does it with ``--yes`` only. docs/guide/checkpoints.md says when. Exit codes: 0 all is whole,
or, without ``--yes``, all that is damaged can be mended; 1 not all; 2 wrong usage.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.inspect import Checkpoint, Repairs


@click.command()
@click.argument("checkpoint")
@click.option(
    "--state",
    "state_folder",
    metavar="FOLDER",
    help="Of spark.holdfast.checkpoint.dir. Default: looked for beside CHECKPOINT, a local folder.",
)
@click.option("--backup", metavar="FOLDER", help="A copy of that folder, of any age.")
@click.option(
    "--local-dir", "local_dirs", multiple=True, metavar="FOLDER", help="Of spark.holdfast.local.dir; may be repeated."
)
@click.option("--yes", is_flag=True, help="Mend. Without, only say what can be mended.")
@json_option()
def repair(
    checkpoint: str,
    state_folder: str | None,
    backup: str | None,
    local_dirs: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Find the bytes of files that are damaged or missing, and put them back with --yes.

    Nothing takes effect that is not exactly what was written. Damaged files are moved aside, not deleted.

    Exit code 0: all is whole, or, without --yes, can be. 1: not all. 2: wrong usage.
    """
    with said_on_failure(), Checkpoint(checkpoint, state=state_folder) as opened:
        found = opened.repair(apply=yes, backup=backup, local_dirs=local_dirs)
    if as_json:
        click.echo(json.dumps({**asdict(found), "whole": found.verification.whole}, indent=2))
    else:
        _show(found, yes)
    mendable = all(file.source is not None for file in found.files)
    named = {file.name for file in found.files}
    others = [damage for damage in found.verification.damaged if damage.name not in named]
    raise SystemExit(0 if (found.verification.whole if yes else mendable and not others) else 1)


def _show(found: Repairs, yes: bool) -> None:
    for file in found.files:
        if file.mended:
            aside = f"; what was there is {file.aside}" if file.aside else ""
            click.echo(f"{click.style('mended', fg='green')}   {file.name}\n         from {file.source}{aside}")
        elif file.source is not None:
            click.echo(f"{click.style('mendable', fg='yellow')} {file.name}\n         from {file.source}")
        else:
            click.echo(f"{click.style('lost', fg='red')}     {file.problem}\n         its bytes were found nowhere")
    named = {file.name for file in found.files}
    for damage in found.verification.damaged:
        if damage.name not in named:
            click.echo(f"{click.style('damaged', fg='red')}  {damage.name}\n         {damage.problem}")
    readable, lost = found.verification.readable, found.verification.lost
    click.echo(f"{len(readable)} of {len(readable) + len(lost)} batches can be restored", nl=False)
    click.echo(f", the newest is batch {readable[-1]}" if lost and readable else "")
    if not yes and any(file.source is not None for file in found.files):
        click.echo("nothing was changed: add --yes to mend")
