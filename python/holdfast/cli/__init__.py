"""The command line: ``holdfast <command>``, one file a command.

Exit codes: 0 done, 1 not done or not well, 2 wrong usage; 74 done, and the output could not be written; 143 ended by
SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import click

import holdfast
from holdfast.cli.broker import broker
from holdfast.cli.checkpoints import checkpoints
from holdfast.cli.doctor import doctor
from holdfast.cli.encoding import escape_what_cannot_be_written
from holdfast.cli.ending import end_when_told
from holdfast.cli.fork import fork
from holdfast.cli.gc import gc
from holdfast.cli.output import OutputGroup
from holdfast.cli.repair import repair
from holdfast.cli.restore import restore
from holdfast.cli.savepoint import savepoint
from holdfast.cli.transactions import transactions


@click.group(cls=OutputGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Keyed state and exactly-once that hold fast under PySpark Structured Streaming."""
    end_when_told(context)
    escape_what_cannot_be_written()


checkpoints.add_command(gc)
checkpoints.add_command(repair)

main.add_command(broker)
main.add_command(checkpoints)
main.add_command(doctor)
main.add_command(fork)
main.add_command(restore)
main.add_command(savepoint)
main.add_command(transactions)
