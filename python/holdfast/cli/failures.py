"""How commands fail: what a user can act on is a message, not a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from holdfast.errors import HoldfastError


@contextmanager
def said_on_failure() -> Iterator[None]:
    """An error of Holdfast's becomes a message and exit code 1."""
    try:
        yield
    except HoldfastError as error:
        raise click.ClickException(str(error)) from None
