"""Checkpoints that earlier code wrote: tests/golden/older/<release>-<where it died>.tar.gz."""

from __future__ import annotations

import tarfile
from pathlib import Path

OLDER = sorted((Path(__file__).parent / "golden" / "older").glob("*.tar.gz"))


def name_of(archive: Path) -> str:
    """Release, and where it died."""
    return archive.name.removesuffix(".tar.gz")


def unpack(archive: Path, folder: Path) -> None:
    """With the times of the files, by which runs and strays are told. Pythons of distributions, such as 3.11.2, have no
    filters yet.
    """
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, filter="data")
        else:
            packed.extractall(folder)
