"""``holdfast restore plan``: what a query would begin with, before it begins. docs/guide/rescale.md

Exit codes: 0 the operators would begin; 1 one would not, or it cannot be said; 2 wrong usage.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure


@click.group()
def restore() -> None:
    """State that a query begins with: of an earlier query, or of a savepoint. See the guide, page rescale."""


@restore.command()
@click.option("--checkpoint", help="The earlier query's checkpoint folder.")
@click.option("--savepoint", help="A savepoint's folder, instead.")
@click.option("--batch", "batch_id", type=int, help="Of the checkpoint. Default: the newest that is committed.")
@click.option(
    "--state",
    "state_dir",
    metavar="FOLDER",
    help="Of spark.holdfast.checkpoint.dir. Default: looked for beside the checkpoint, a local folder.",
)
@click.option("--operator", help="Its name there. Default: all operators.")
@click.option("--processor", metavar="MODULE:CLASS", help="That shall begin with the state; needs --operator.")
@click.option("--dropped", multiple=True, metavar="STATE", help="A state there that is left behind.")
@click.option("--renamed", multiple=True, metavar="OLD=NEW", help="A state that has another name now.")
@click.option("--added", multiple=True, metavar="STATE", help="A state that was not there and begins with nothing.")
@click.option("--slots", type=click.IntRange(1), help="That the operator shall have. Default: as many as it had.")
@json_option()
def plan(
    checkpoint: str | None,
    savepoint: str | None,
    batch_id: int | None,
    state_dir: str | None,
    operator: str | None,
    processor: str | None,
    dropped: tuple[str, ...],
    renamed: tuple[str, ...],
    added: tuple[str, ...],
    slots: int | None,
    as_json: bool,
) -> None:
    """A dry run: what would become of each state, and why it is refused, if it is. Nothing is changed."""
    if operator is None and (processor or dropped or renamed or added):
        raise click.UsageError("--processor, --dropped, --renamed and --added are of one operator: give --operator")
    names = dict(_pair(text) for text in renamed)
    found = _processor(processor) if processor else None
    from holdfast.inspect.restore import Restore  # loads pyspark, which no other command needs

    with said_on_failure():
        wanted = Restore(checkpoint, savepoint=savepoint, batch_id=batch_id, state_dir=state_dir)
        operators = (operator,) if operator is not None else wanted.operators() or (None,)  # of none plan() says why
        plans = [
            wanted.operator(name, dropped=dropped, renamed=names, added=added).plan(found, slots=slots)
            for name in operators
        ]
    if as_json:
        click.echo(json.dumps([json.loads(one.to_json()) for one in plans], indent=2))
    else:
        click.echo("\n\n".join(map(str, plans)))
    raise SystemExit(1 if any(one.refused for one in plans) else 0)


def _pair(text: str) -> tuple[str, str]:
    old, given, new = text.partition("=")
    if not (old and given and new):
        raise click.BadParameter(f"expected OLD=NEW, found {text!r}", param_hint="--renamed")
    return old, new


def _processor(text: str) -> Any:
    """The class that MODULE:CLASS names, in this folder or installed."""
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{text!r}: {error}; expected MODULE:CLASS", param_hint="--processor") from None
    finally:
        sys.path.remove(os.getcwd())
    from holdfast.state import Processor

    if not (isinstance(found, Processor) or (isinstance(found, type) and issubclass(found, Processor))):
        raise click.BadParameter(f"{text!r} is no BatchProcessor or KeyedProcessor", param_hint="--processor")
    return found
