"""Ways in turns: each round backwards to the one before, and one way held against each other and the best of them."""

from __future__ import annotations

import pytest
from benchmarks.figures import at_least, at_most, kept_figures
from benchmarks.turns import against, turns


def test_every_other_round_goes_backwards_and_nothing_is_mixed_up() -> None:
    asked: list[str] = []

    def once(way: str) -> str:
        asked.append(way)
        return f"{way}{len(asked)}"

    assert turns(["a", "b", "c"], 3, once) == {
        "a": ["a1", "a6", "a7"],
        "b": ["b2", "b5", "b8"],
        "c": ["c3", "c4", "c9"],
    }
    assert asked == list("abccbaabc")


@pytest.mark.parametrize(("faster", "goal", "best"), [(max, at_least(1), "quick"), (min, at_most(1), "slow")])
def test_the_best_rival_is_the_one_that_is_hardest_to_beat(faster: object, goal: object, best: str) -> None:
    rivals = {"slow": [1.0, 2.0, 3.0], "quick": [8.0, 20.0, 30.0], "uneven": [4.0, 5.0, 99.0]}
    with kept_figures() as figures:
        against("b.vs", [10.0, 10.0, 10.0], rivals, faster=faster, best=goal)  # type: ignore[arg-type]
    values = {one.name: one.value for one in figures}
    assert values == {"b.vs_slow": 5.0, "b.vs_quick": 0.5, "b.vs_uneven": 2.0, "b.vs_best": values[f"b.vs_{best}"]}
    assert figures[-1].goal == goal
    assert best in figures[-1].note
