"""``holdfast broker start | stop``: a real Kafka broker on this machine, for trying things out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from holdfast.cli.encoding import json_option
from holdfast.cli.failures import said_on_failure
from holdfast.folders import temporary_folder
from holdfast.testing.kafka_broker import KafkaBroker, read_running, stop_running

_DEFAULT_PORT = 9092

_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of its data and log. Default: one in the temporary folder, kept from start to start.",
)
_as_json = json_option()


@click.group()
def broker() -> None:
    """A real Apache Kafka broker on loopback, for tests and demos.

    Needs Java 17, and Maven the first time. Not for production.
    """


@broker.command()
@click.option("--port", type=click.IntRange(1, 65535), default=_DEFAULT_PORT, show_default=True, help="On 127.0.0.1.")
@click.option(
    "--version",
    metavar="RELEASE",
    help="Of Kafka, as 3.9 or 4.0.1. Default: what HOLDFAST_KAFKA_VERSION says, else the newest that is known.",
)
@_data
@_as_json
def start(port: int, version: str | None, data: Path | None, as_json: bool) -> None:
    """Start a broker that goes on after this command. Its data is kept."""
    with said_on_failure():
        folder = data or _default_data()
        running = KafkaBroker(folder, version=version, port=port, detached=True).start()
    found = {
        "bootstrap_servers": running.bootstrap_servers,
        "pid": running.pid,
        "data": str(running.data),
        "log": str(running.log_file),
        "version": running.version,
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"Kafka {running.version} is ready at {running.bootstrap_servers}, process {running.pid}")
    click.echo(f"data  {running.data}\nlog   {running.log_file}")
    click.echo(f"stop  holdfast broker stop{f' --data {folder}' if data else ''}")


@broker.command()
@_data
@_as_json
def stop(data: Path | None, as_json: bool) -> None:
    """Stop the broker that runs on a folder. Exit code 1 when there is none."""
    with said_on_failure():
        folder = data or _default_data()
        running = read_running(folder)
        stopped = stop_running(folder)
    if as_json:
        pid = running["pid"] if running else None
        click.echo(json.dumps({"stopped": stopped, "pid": pid, "data": str(folder)}, indent=2))
    elif stopped and running:
        click.echo(f"Process {running['pid']} is stopped; its data is in {folder}")
    else:
        click.echo(f"No broker runs on {folder}", err=True)
    raise SystemExit(0 if stopped else 1)


def _default_data() -> Path:
    return Path(temporary_folder("TMPDIR, or --data,"), f"holdfast-broker-{os.getuid()}")
