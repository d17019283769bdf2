"""What a table has for each key, where it must have one row for each: a key that was read twice is a difference, which
a dictionary alone would hide.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def by_key(table: pa.Table, key: str = "user", value: str = "value") -> dict[Any, Any]:
    """The values by key; no key may be there twice."""
    rows = list(zip(table[key].to_pylist(), table[value].to_pylist()))
    found = dict(rows)
    assert len(found) == len(rows), f"keys are there more than once: {sorted(rows, key=repr)}"
    return found
