"""Rescaled any number of times, against plain Python: every kind of state, of keys and of none, with a time to live;
any slots, stores and backends; wider values; forks; attempts that fail at any operation; other processes, lost disks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.model.generations import STATES, Generation, World
from tests.native_savepoints import rows_of


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_what_was_rescaled_holds_what_it_would_have_held(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(4):
        for _ in range(world.draw.randint(1, 9)):
            world.batch()
        world.rescale(world.draw.randint(1, 8))
    for _ in range(8):
        world.batch()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))])
def test_forks_go_on_by_themselves_through_generations(tmp_path: Path, seed: int) -> None:
    """Each against a plain Python of its own: neither sees, nor loses by, what the other does."""
    worlds = [World(tmp_path, seed)]
    draw = worlds[0].draw
    for step in range(6):
        for world in worlds:
            for _ in range(draw.randint(1, 6)):
                world.batch()
            if draw.random() < 0.5:
                world.rescale(draw.randint(1, 8))
        if step in (1, 3):
            worlds.append(draw.choice(worlds).fork())
    assert len({repr(sorted(world.oracle.sums.items())) for world in worlds}) == 3


@pytest.mark.long
def test_a_conversion_leaves_each_slot_what_it_had(tmp_path: Path) -> None:
    """Lists of no key too, of which a new generation deals out: a conversion begins none."""
    world = World(tmp_path, 0)
    world.generation = Generation(world, 1, 3, world.new_store("store"), "rocksdb")
    for _ in range(12):
        world.batch()
    made = {format: world.savepoint(world.generation, tmp_path / format, format) for format in ("canonical", "native")}
    for first in list(made.values()):
        second = first.convert(tmp_path / f"{first.format}-to-other")
        made |= {
            f"{first.format} there": second,
            f"{first.format} and back": second.convert(tmp_path / first.format[:3]),
        }
    found = {
        way: rows_of({one.name: of.read("all", one.name).read_all() for one in STATES}) for way, of in made.items()
    }
    assert all(rows == found["canonical"] for rows in found.values())
    slots = {row.split("'slot': ")[1].split(",")[0] for row in found["canonical"]["union"]}
    assert len(slots) == 3 and all(found["canonical"].values())
