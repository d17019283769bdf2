"""The settings: their guide, their reading from Spark's configuration and from code, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoint import CheckpointSettings
from holdfast.errors import InvalidRequest
from holdfast.settings import PREFIX, Settings, guide
from holdfast.testing import Harness

ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_is_written_from_the_table() -> None:
    written = (ROOT / "docs" / "guide" / "settings.md").read_text()
    assert written == guide(), "run: python -m holdfast.settings > docs/guide/settings.md"


def test_every_setting_has_a_row_with_default_unit_and_effect() -> None:
    rows = [line.split(" | ") for line in guide().splitlines() if line.startswith(f"| `{PREFIX}")]
    assert len(rows) == len(fields(Settings))
    assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in rows)


def test_settings_come_from_the_configuration_and_code_wins() -> None:
    conf = {"spark.master": "local[2]", "spark.holdfast.slots": "8", "spark.holdfast.memory.batch.max": "64 MiB"}
    settings = Settings.from_mapping(
        conf, {"slots": 4, "stray.grace": "10 min", "spark.holdfast.state.backend": "hashmap"}
    )
    assert settings.slots == 4
    assert settings.batch_memory_max_bytes == 64 << 20
    assert settings.stray_grace_ms == 600_000
    assert settings.backend == "hashmap"
    assert settings.max_parallelism == 4096


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        InvalidRequest, match=r"spark\.holdfast\.maxparalelism.*nearest is 'spark\.holdfast\.maxParallelism'"
    ):
        Settings.from_mapping({"spark.holdfast.maxparalelism": "1"})
    with pytest.raises(InvalidRequest, match=r"'slotz' in settings= .*nearest is 'spark\.holdfast\.slots'"):
        Settings.from_mapping({}, {"slotz": 1})


def test_field_names_are_for_code_only() -> None:
    assert Settings.from_mapping({}, {"blob_max_bytes": "8 KiB"}).blob_max_bytes == 8192
    with pytest.raises(InvalidRequest, match="is not a setting"):
        Settings.from_mapping({"spark.holdfast.blob_max_bytes": "8 KiB"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("slots", "0", "whole number from 1 to 32768"),
        ("slots", "two", "whole number"),
        ("slots", True, "whole number"),
        ("slots", 2.5, "whole number"),
        ("maxParallelism", "32769", "whole number"),
        ("state.backend", "leveldb", "not one of rocksdb, hashmap"),
        ("memory.batch.max", "64 parsecs", "is not a size"),
        ("memory.batch.max", "1 KiB", "too small: expected at least 1 MiB"),
        ("stray.grace", "10", "is not a duration"),
        ("local.unused.max", "10 s", "is too short"),
        ("abandonedRuns", "", "are not ids of runs"),
        ("abandonedRuns", "x,y", "are not ids of runs"),
        ("snapshot.stateFraction", "-0.5", "is not a fraction"),
        ("snapshot.stateFraction", "half", "is not a fraction"),
        ("checkpoint.dir", "", "is not a path"),
        ("checkpoint.dir", 7, "is not a path"),
    ],
)
def test_a_wrong_value_is_refused_with_its_setting(key: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"spark\.holdfast\.{key} in settings=: .*{message}"):
        Settings.from_mapping({}, {key: value})


def test_a_folder_may_be_a_path_object() -> None:
    assert Settings.from_mapping({}, {"checkpoint.dir": Path("/data/state")}).checkpoint_dir == "/data/state"


def test_the_checkpoint_room_has_the_same_defaults() -> None:
    assert CheckpointSettings.of(Settings()) == CheckpointSettings()


class Silent(hf.BatchProcessor):
    """Nothing."""

    def process(self, batch: Any, ctx: hf.Context) -> None:
        pass


@pytest.mark.parametrize(
    "declare",
    [
        lambda settings: hf.keyed("user", Silent(), "user string", name="silent", settings=settings),
        lambda settings: Harness(Silent(), "user", "user string", "user string", settings=settings),
    ],
    ids=["keyed", "Harness"],
)
def test_a_wrong_setting_is_refused_at_the_call_that_has_it(declare: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^spark\.holdfast\.snapshot\.pause\.min in settings=: .*later"):
        declare({"snapshot.pause.min": "later"})
    with pytest.raises(InvalidRequest, match=r"^'snapshot\.pause' in settings= is not a setting of Holdfast\."):
        declare({"snapshot.pause": "1 min"})
    with pytest.raises(InvalidRequest, match="slots in settings=: None is not a whole number"):
        declare({"slots": None})
    for wrong in ({3: 4}, "slots=3", [("slots", 3)]):
        with pytest.raises(InvalidRequest, match="settings=: expected a mapping of names to values, found"):
            declare(wrong)
