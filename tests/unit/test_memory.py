"""What a process takes with one large value, over many small batches, with an open base; each in one of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.memory_programs import MIB, measured

from holdfast.checkpoint import CheckpointSettings
from holdfast.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_one_large_value_is_there_four_times_at_most_while_it_is_written_and_folded(
    backend: str, tmp_path: Path
) -> None:
    """The caller's array, the overlay, and two of: the row, the delta, its compressed bytes, a block of the base.

    It was there five times: the fold held the delta's array until the base was written, and copied the value once more
    where there was no base yet.
    """
    assert measured("large_value", backend, 200, tmp_path)["written"] < 4.4


@pytest.mark.slow
def test_large_values_of_a_base_are_read_one_at_a_time_by_hashmap(tmp_path: Path) -> None:
    """A slot that opened copied up to 64 of them before it put the first one where it belongs."""
    count = 8
    above = measured("large_values_at_once", "hashmap", count, 32, tmp_path)["above"]
    assert (
        above < count + count + 4
    )  # those of the base, which is mapped, those that are kept, what one takes on its way


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_memory_flattens_over_thousands_of_small_batches(backend: str, tmp_path: Path) -> None:
    """As many keys are alive at any time. What had expired over a base stayed in the overlay: 12 KiB a batch."""
    found = measured("small_batches", backend, 2000, tmp_path)
    for whose, limit in (("overlay", 2 * MIB), ("process", 6 * MIB)):
        second, last = max(found[whose][5:10]), max(found[whose][15:])
        assert last - second < limit, (whose, found[whose])


@pytest.mark.long
def test_an_open_base_takes_its_block_cache_and_one_and_a_half_bytes_a_key(tmp_path: Path) -> None:
    """As docs/guide/operators.md says, beside memory.cache.max."""
    takes = {}
    for cache_mib in (2, 16):
        folder = tmp_path / str(cache_mib)
        folder.mkdir()
        takes[cache_mib] = measured("open_base", 1_500_000, cache_mib, folder)
        assert takes[cache_mib]["a key"] < 2, takes
        assert takes[cache_mib]["read"] < (cache_mib + 3) * MIB, takes
    assert takes[16]["read"] > 8 * MIB, f"it is not the setting that limits it: {takes}"


def test_setting_rfc_and_core_say_the_same_of_the_block_cache() -> None:
    """RFC 2 said 8 MiB, and the setting 32."""
    assert Settings().rocksdb_block_cache_bytes == CheckpointSettings().rocksdb_block_cache_bytes == 8 * MIB
    rfc = (ROOT / "docs/rfcs/0002-rocksdb-options.md").read_text(encoding="utf-8")
    assert re.search(r"\| block cache \| 8 MiB a base, as `spark\.holdfast\.rocksdb\.blockCache` says", rfc)
    core = (ROOT / "cpp/include/holdfast/rocksdb_base.h").read_text(encoding="utf-8")
    assert "size_t block_cache_bytes = 8 << 20;" in core
