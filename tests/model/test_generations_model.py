"""Rescaled any number of times, against plain Python: every kind of state, of keys and of none, with a time to live;
any slots, stores and backends; attempts that fail at any operation of the store, other processes, lost local disks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.model.generations import World


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_what_was_rescaled_holds_what_it_would_have_held(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(4):
        for _ in range(world.draw.randint(1, 9)):
            world.batch()
        world.rescale(world.draw.randint(1, 8))
    for _ in range(8):
        world.batch()
