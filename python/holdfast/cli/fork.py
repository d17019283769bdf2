"""``holdfast fork CHECKPOINT``: an identity of its own for a checkpoint that was copied on purpose.

Says what it would do, and does it with ``--yes`` only. docs/guide/exactly_once.md says when. Exit codes: 0 done, or it
could be done; 1 not done; 2 wrong usage.
"""

from __future__ import annotations

import json

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.commit.timeline import fork_checkpoint, spark_query_id, timeline_of
from holdfast.storage import open_checkpoint


@click.command()
@click.argument("checkpoint")
@click.option("--yes", is_flag=True, help="Do it. Without, only say what would be done.")
@json_option()
def fork(checkpoint: str, yes: bool, as_json: bool) -> None:
    """Give a copied or restored CHECKPOINT an identity of its own.

    A query that starts from a copy of a checkpoint is refused once the original has gone on. After this it goes on from
    the copy: it writes everything after the last batch that Spark has committed there once more, beside what is visible
    already. A driver that still runs on this very folder is fenced.

    Exit code 0: done, or, without --yes, it could be done. 1: not done. 2: wrong usage.
    """
    with said_on_failure():
        store = open_checkpoint(checkpoint)
        query_id = spark_query_id(store)
        found = {"checkpoint": store.uri, "query": query_id, "identity": timeline_of(store, query_id)}
        if yes:
            found["forked"] = fork_checkpoint(checkpoint).timeline
    if as_json:
        click.echo(json.dumps(found if yes else {"would": "fork", **found}, indent=2))
    elif yes:
        click.echo(f"forked {found['checkpoint']}: query {query_id} goes on as {found['forked']}")
    else:
        click.echo(f"would fork {found['checkpoint']} of query {query_id}, which goes by {found['identity']} now")
        click.echo("what comes after its last batch would be written once more; nothing was changed: add --yes to fork")
