"""Commands in a container without a folder for temporary files, or whose user has no home."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.doctor import Verdict, examine


@pytest.mark.long
def test_a_check_that_cannot_look_is_a_finding_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_home: None
) -> None:
    monkeypatch.setenv("HOLDFAST_ROCKSDB_LIBRARY", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.name: finding for finding in examine(str(tmp_path))}
    assert found["Maven"].verdict == Verdict.WARNING
    assert "no home folder: set HOLDFAST_CACHE_DIR" in found["Maven"].found
    assert len(found) == 17
    monkeypatch.setattr(platform, "libc_ver", lambda: None)
    found = {finding.name: finding for finding in examine(str(tmp_path))}
    assert found["system"].verdict == Verdict.MISSING
    assert "could not be looked for: TypeError" in found["system"].found
    assert len(found) == 17


def test_without_a_folder_for_temporary_files_what_to_set_is_told(no_temporary_folder: None) -> None:
    found = {finding.name: finding for finding in examine(environment={"PATH": "/nonexistent"})}
    assert found["local folder"].verdict == Verdict.MISSING
    assert "set TMPDIR, or spark.holdfast.local.dir, to one that this user can write" in found["local folder"].found
    stopped = CliRunner().invoke(main, ["broker", "stop"])
    assert stopped.exit_code == 1
    assert "set TMPDIR, or --data, to one" in stopped.output


@pytest.mark.parametrize("command", [["broker", "start", "--port", "19999"], ["broker", "stop"]])
def test_a_broker_of_a_user_without_a_home_is_refused_in_words(
    no_home: None, tmp_path: Path, command: list[str]
) -> None:
    ran = CliRunner().invoke(main, [*command, "--data", str(tmp_path)])
    assert ran.exit_code == 1
    assert isinstance(ran.exception, SystemExit), repr(ran.exception)
    assert ("set HOLDFAST_CACHE_DIR" if "start" in command else "No broker runs") in ran.output
