"""What a slot's first version is made of, wherever that comes from. docs/rfcs/0015"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.checkpoint.carried_expiry import Expiry


@dataclass(frozen=True)
class TakenOver:
    """Of one slot.

    Attributes
    ----------
    expiry
        Of the version that the entries become.
    entries
        As a delta's: of the slot's key groups, and its share of what belongs to no key. To be read once.
    described
        Where they come from, for people.
    way_out
        What to do where that is damaged.
    """

    expiry: Expiry
    entries: Generator[pa.RecordBatch, None, None]
    described: str
    way_out: str
