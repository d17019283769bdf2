"""Whether each operator stands once in a query. Runs on the driver, before the query starts.

A DataFrame that is used twice (``totals.union(totals)``, a join with itself) has its operator twice in Spark's plan:
two states in Spark's checkpoint, of one operator and over one state folder.
"""

from __future__ import annotations

from collections import Counter

from holdfast.errors import InvalidRequest


def check_stand_once(operators: list[tuple[str, str]], call: str) -> None:
    """InvalidRequest where one of :func:`operators_within` a query stands twice in it. ``call``: for the message."""
    twice = sorted({name for (name, _), count in Counter(operators).items() if count > 1})
    if twice:
        raise InvalidRequest(
            f"{call}: operator {twice[0]!r} stands twice in the query: a DataFrame with it is used twice, as in "
            f"totals.union(totals). Each use would run it, over one state. Call hf.keyed for each, with a name of its "
            f"own; or, for two outputs of one operator, use side outputs or select within foreachBatch "
            f"(docs/guide/operators.md)"
        )
