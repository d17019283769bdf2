"""Output that cannot be written, as into a file on a disk that is full: told as that, with an exit code of its own.
What the command did before is done, and whoever calls it must not take it for failed.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

#: As sysexits.h has it for an error of input or output.
NOT_WRITTEN = 74


class OutputGroup(click.Group):
    """All commands of a program: what any of them cannot write is told."""

    _exit_code = 1  # of an error that click is about to show

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click's, which writes what an error says."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if not _is_of_output(error):
                raise
            give_up(2)  # nobody can be told; the exit code is that of the error all the same
            raise SystemExit(self._exit_code) from None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click's, which writes the help."""
        with self._told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's."""
        with self._told():
            return super().invoke(ctx)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except click.ClickException as error:
            self._exit_code = error.exit_code
            raise
        except OSError as error:
            # Who reads no further, as `head`, is no error: click ends then.
            if error.errno == errno.EPIPE or not _is_of_output(error):
                raise
            give_up(1)
            try:
                why = error.strerror or error
                click.echo(f"Error: what was done is done; the output cannot be written: {why}", err=True)
            except OSError:
                give_up(2)  # it goes to the same disk
            raise SystemExit(NOT_WRITTEN) from None


def give_up(descriptor: int) -> None:
    """What is not yet written there is given up: the end of the program would wait for it, or fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _is_of_output(error: OSError) -> bool:
    """Whether it was raised where commands write: all that they say goes by `click.echo`."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code is click.echo.__code__
