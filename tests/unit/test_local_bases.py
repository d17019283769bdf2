"""Bases on this machine come and go under a reader: other workers fold too."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, SlotDriver

from holdfast.checkpoint.slot_folder import SlotFolder


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_base_that_another_worker_has_just_removed_is_nothing_to_warn_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    driver = SlotDriver(tmp_path, settings=SMALL)
    worker, other = driver.process(), driver.process()
    driver.play_some(worker, 12)
    names = SlotFolder.base_names

    def then_gone(folder: SlotFolder) -> list[str]:
        found = names(folder)
        for name in found:
            path = Path(folder.bases, name)
            if is_damaged:
                path.joinpath("BASE.json").unlink(missing_ok=True)
            else:
                shutil.rmtree(path)
        return found

    assert driver.local("bases/*")
    monkeypatch.setattr(SlotFolder, "base_names", then_gone)
    with caplog.at_level(logging.WARNING):
        assert driver.check(other) == "restore"
    assert ("a local base is not used" in caplog.text) == is_damaged
