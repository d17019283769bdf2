"""What the demos show while a job runs, beside their bars: the largest carriers' latest figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def carrier_table(title: str, newest: Mapping[str, Mapping[str, Any]]) -> Table:
    """The newest row of each carrier, by carrier; the eight largest are shown."""
    table = Table(title=title, title_justify="left")
    for name in ("carrier", "flights", "mean delay", "standard deviation", "destinations"):
        table.add_column(name, justify="left" if name == "carrier" else "right")
    for carrier, row in sorted(newest.items(), key=lambda item: -item[1]["flights"])[:8]:
        spread = "" if row["stddev_delay"] is None else f"{row['stddev_delay']:.2f}"
        mean = "" if row["mean_delay"] is None else f"{row['mean_delay']:.2f}"
        table.add_row(carrier, f"{row['flights']:,}", mean, spread, str(row["destinations"]))
    return table
