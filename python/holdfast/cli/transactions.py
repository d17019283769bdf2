"""``holdfast transactions list | show | commit | abort``: the transactions of exactly-once output, by hand.

What changes something says what it would do, and does it with ``--yes`` only. docs/guide/transactions.md says when.
Exit codes: 0 done, or it could be done; 1 not done; 2 wrong usage.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest
from holdfast.kafka.client_config import client_config
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactional_ids import TransactionalId, pattern_of, prefix_of
from holdfast.kafka.transactions import ONGOING, OPEN_STATES, Answer, Prepared, Transaction, Transactions, topics_of
from holdfast.units import format_duration

PATIENCE_MS = 30_000.0
# As long as the new, empty transaction that fences a name may be open; every broker allows it.
_FENCE_TIMEOUT_MS = 60_000

Command = Callable[..., None]


def _cluster(command: Command) -> Command:
    """Options that all commands take; the command gets ``known``, the cluster's transactions, instead."""

    @functools.wraps(command)
    def connected(
        bootstrap_servers: str, options: Sequence[str], command_config: Path | None, **arguments: object
    ) -> None:
        texts = _texts_of(command_config) if command_config else {}
        texts |= _texts_of_options(options) | {"kafka.bootstrap.servers": bootstrap_servers}
        with said_on_failure():
            try:
                known = Transactions(client_config(texts, {}), PATIENCE_MS)
            except InvalidRequest as error:
                raise click.UsageError(str(error)) from None
        command(known=known, **arguments)

    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in (
        json_option(),
        click.option("--command-config", type=file, help="A file with settings, X=Y a line: for passwords."),
        click.option("--option", "options", multiple=True, metavar="kafka.X=Y", help="For librdkafka; repeatable."),
        click.option("--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="One or more brokers."),
    ):
        connected = option(connected)
    return connected


def _texts_of(file: Path) -> dict[str, str]:
    """Settings as Kafka's own tools take them in a file: a name and a value a line, without ``kafka.`` in front."""
    texts = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        name, sign, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not sign:
            raise click.UsageError(f"{file}, line {number}: expected X=Y, or # and a comment")
        texts["kafka." + name.strip().lower().removeprefix("kafka.")] = value.strip()
    return texts


def _texts_of_options(options: Sequence[str]) -> dict[str, str]:
    texts = {}
    for option in options:
        name, sign, value = option.partition("=")
        if not sign or not name.lower().startswith("kafka."):
            raise click.UsageError(f"--option {name}: expected kafka.X=Y")
        texts[name.lower()] = value
    return texts


_yes = click.option("--yes", is_flag=True, help="Do it. Without, only say what would be done.")
_query = click.option("--query", metavar="ID", help="Of this query only.")
_sink = click.option("--sink", metavar="NAME", help="Of this sink only.")


@click.group()
def transactions() -> None:
    """Transactions of exactly-once output to Kafka.

    Exit code 0: done, or, without --yes, it could be done. 1: not done. 2: wrong usage.
    """


@transactions.command("list")
@_query
@_sink
@click.option("--all", "all_states", is_flag=True, help="Ended ones too.")
@_cluster
def list_transactions(
    known: Transactions,
    as_json: bool,
    query: str | None,
    sink: str | None,
    all_states: bool,
) -> None:
    """Those that are open: id, state, age, timeout, what they write to."""
    with said_on_failure():
        names = known.listing(pattern_of(query, sink), () if all_states else OPEN_STATES, prefix_of(query))
        found = [one for one in known.describe([name for name, _ in names]) if one is not None]
    now_ms = SystemClock().now_ms()
    if as_json:
        click.echo(json.dumps([_as_data(one, now_ms) for one in found], indent=2))
        return
    for one in found:
        age = f", open for {_age(one, now_ms)} of {format_duration(one.timeout_ms)}" if one.started_ms >= 0 else ""
        click.echo(f"{one.transactional_id}  {one.state}{age}{_places(one)}")
    click.echo(f"{len(found)} transaction{'' if len(found) == 1 else 's'}{'' if all_states else ' open'}")


@transactions.command()
@click.argument("transactional_id")
@_cluster
def show(known: Transactions, as_json: bool, transactional_id: str) -> None:
    """All that the coordinator knows of one. Exit code 1 when it knows nothing."""
    with said_on_failure():
        one = known.describe([transactional_id])[0]
    if one is None:
        _give_up(f"Kafka does not know {transactional_id}: it never was, or it has expired", as_json)
    data = _as_data(one, SystemClock().now_ms())
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    for name, value in data.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        click.echo(f"{name:<18}{'-' if shown in (None, '') else shown}")


@transactions.command()
@click.argument("transactional_id")
@click.option("--producer-id", type=click.IntRange(0), help="As the commit record has it. Default: what is open now.")
@click.option("--producer-epoch", type=click.IntRange(0, 32767), help="The same.")
@_yes
@_cluster
def commit(
    known: Transactions,
    as_json: bool,
    transactional_id: str,
    producer_id: int | None,
    producer_epoch: int | None,
    yes: bool,
) -> None:
    """Make the rows of an open transaction visible.

    Only for one that a commit record names and whose query cannot be started: the next start does it by itself. Rows
    of one that no record names are produced again, and would be there twice.
    """
    if (producer_id is None) != (producer_epoch is None):
        raise click.UsageError("--producer-id and --producer-epoch are given together, or neither is")
    with said_on_failure():
        one = known.describe([transactional_id])[0]
        if producer_id is None or producer_epoch is None:
            wanted = _open_one(one, transactional_id, as_json).prepared
        else:
            wanted = Prepared(transactional_id, producer_id, producer_epoch)
        if not yes:
            if one is None or one.state != ONGOING or one.prepared != wanted:
                _give_up(f"{transactional_id} is not open for that producer{_now(one)}", as_json)
            _would("commit", [one], as_json)
            return
        [answer] = known.told_of_takeovers([wanted], known.end([wanted], commit=True))
        if answer is Answer.DONE:
            Markers(known).wait_for([wanted], topics_of([one]), None)
    if answer is not Answer.DONE:
        _give_up(f"{transactional_id} was not committed: {_WHY[answer]}{_now(one)}", as_json, answer=answer.value)
    _did("commit", [transactional_id], as_json)


@transactions.command()
@click.argument("transactional_ids", nargs=-1)
@_query
@_sink
@_yes
@_cluster
def abort(
    known: Transactions,
    as_json: bool,
    transactional_ids: Sequence[str],
    query: str | None,
    sink: str | None,
    yes: bool,
) -> None:
    """Abort open transactions, and stop whoever still writes in them.

    By their ids, or all of a query. Their rows will never be visible;
    a query that has recorded them produces them again.
    """
    if bool(transactional_ids) == (query is not None):
        raise click.UsageError("expected transactional ids, or --query, one of them")
    if sink is not None and query is None:
        raise click.UsageError("--sink goes with --query")
    with said_on_failure():
        if query is not None:
            transactional_ids = [
                name for name, _ in known.listing(pattern_of(query, sink), (ONGOING,), prefix_of(query))
            ]
        described = known.describe(transactional_ids)
        found = [_open_one(one, name, as_json) for name, one in zip(transactional_ids, described)]
        if not yes:
            _would("abort", found, as_json)
            return
        known.fence(transactional_ids, _FENCE_TIMEOUT_MS)
        Markers(known).sweep(transactional_ids, topics_of(found))
    _did("abort", transactional_ids, as_json)


_WHY = {
    Answer.OPPOSITE: "it was aborted",
    Answer.FENCED: "its producer was superseded, or the broker timed it out and aborted it",
    Answer.UNKNOWN: "the coordinator does not know it, or knows it of another producer",
}
_PAST = {"commit": "committed", "abort": "aborted"}


def _as_data(one: Transaction, now_ms: int) -> dict[str, Any]:
    data = asdict(one)
    data["partitions"] = [f"{topic}-{number}" for topic, number in one.partitions]
    data["age_ms"] = now_ms - one.started_ms if one.started_ms >= 0 else None
    ours = TransactionalId.parse(one.transactional_id)
    data |= {"query": ours.query_id if ours else None, "sink": ours.sink if ours else None}
    return data


def _age(one: Transaction, now_ms: int) -> str:
    return format_duration(max(0, now_ms - one.started_ms) // 1000 * 1000)


def _places(one: Transaction) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in one.partitions[:8])
    return f", in {shown}{', …' if len(one.partitions) > 8 else ''}" if shown else ""


def _now(one: Transaction | None) -> str:
    return f"; it is {one.state} now, of producer {one.producer_id}, epoch {one.producer_epoch}" if one else ""


def _open_one(one: Transaction | None, name: str, as_json: bool) -> Transaction:
    if one is None or one.state != ONGOING:
        _give_up(f"{name} is not open: it is {one.state if one else 'not known'}", as_json)
    return one


def _would(verb: str, found: Sequence[Transaction], as_json: bool) -> None:
    if as_json:
        now_ms = SystemClock().now_ms()
        click.echo(json.dumps({"would": verb, "transactions": [_as_data(one, now_ms) for one in found]}, indent=2))
        return
    for one in found:
        click.echo(f"would {verb} {one.transactional_id}{_places(one)}")
    click.echo(f"{len(found)} transaction{'' if len(found) == 1 else 's'}; nothing was changed: add --yes to {verb}")


def _did(verb: str, names: Sequence[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({_PAST[verb]: list(names)}, indent=2))
        return
    for name in names:
        click.echo(f"{_PAST[verb]} {name}")
    if not names:
        click.echo(f"0 transactions {_PAST[verb]}")


def _give_up(message: str, as_json: bool, **more: str) -> NoReturn:
    if as_json:
        failed: Mapping[str, str] = {"error": message, **more}
        click.echo(json.dumps(failed, indent=2))
        raise SystemExit(1)
    raise click.ClickException(message)
