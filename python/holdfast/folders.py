"""Folders that a machine has for whoever asks: for temporary files, and for what is a user's own. A container may have
neither: its root cannot be written, and its user is a number without a home.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import Unavailable


def temporary_folder(instead: str = "TMPDIR") -> str:
    """Where temporary files go. ``instead``: what else may be set.

    Raises
    ------
    Unavailable
        No folder for them can be written.
    """
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise Unavailable(
            f"no folder for temporary files can be written ({error.strerror or error}): set {instead} to one that this "
            f"user can write, on a disk"
        ) from error


def expanded(text: str, setting: str) -> Path:
    """The folder or file that a setting names, ``~`` being the user's home.

    Raises
    ------
    Unavailable
        It begins with a home that is not known.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise Unavailable(f"{setting} is {text!r}, and no such home folder is known here: set it to an absolute path")
    return Path(path).absolute()


def home_folder(environment: Mapping[str, str]) -> Path | None:
    """The user's own; None where neither HOME nor the list of users says which."""
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    return home if home.is_absolute() else None
