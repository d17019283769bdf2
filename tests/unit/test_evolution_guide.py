"""docs/guide/evolution.md: its snippets run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Harness

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "evolution.md"
ROWS = "user string, item string, price int"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    left: dict[str, Any] = {"__name__": "evolution_guide"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), left)
    return left


def test_the_page_runs_and_the_program_before_is_refused_afterwards(page: dict[str, Any]) -> None:
    with Harness(page["Basket"](), "user", ROWS, "user string") as h:
        h.process([{"user": "ada", "item": "tea", "price": 3}])
        h.restart(page["Shopper"]())
        with pytest.raises(hf.Incompatible, match="'coupons': was dropped in this checkpoint, for good"):
            h.restart(page["Basket"]())


def test_what_the_page_says_is_refused_in_one_step_is(page: dict[str, Any]) -> None:
    one = hf.ValueState(pa.string())
    for lines in (
        {"last_item": hf.renamed_from("last", hf.ValueState(pa.string())), "last": one},
        {
            "last": hf.renamed_from("spent", hf.ValueState(pa.string())),
            "spent": hf.renamed_from("last", hf.ValueState(pa.string())),
        },
    ):
        with pytest.raises(hf.InvalidRequest, match="which is declared too; one state goes on from one"):
            Harness(type("Wrong", (page["Basket"],), lines)(), "user", ROWS, "user string")
