"""What an operator gives before it is unpacked: for those who read it in a Python run of their own, and unpack there.

A Python run costs each task of a small batch more than its rows do (docs/rfcs/0018). What a user is given is the
unpacked DataFrame; by that very object the packed one is found here. Each step between (a select, a filter) makes
another DataFrame, of which nothing is known, and which is unpacked where it stands. Runs on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from holdfast.spark.output import Unpacking


@dataclass(frozen=True)
class PackedOutput:
    """An operator's packed rows, and how they are read."""

    frame: DataFrame
    unpacking: Unpacking


_by_unpacked: WeakKeyDictionary[DataFrame, PackedOutput] = WeakKeyDictionary()


def note_packed(unpacked: DataFrame, packed: PackedOutput) -> None:
    """Both are the output of one operator."""
    _by_unpacked[unpacked] = packed


def packed_output(df: DataFrame) -> PackedOutput | None:
    """Of a DataFrame that is an operator's output, just as the operator gave it; None of any other."""
    return _by_unpacked.get(df)
