"""Settings for what Spark's JVM logs; tests/integration/test_terminal.py tries them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import holdfast as hf


def test_the_jvm_gets_a_configuration_that_is_there_and_the_path_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "it's all of it.log"
    options = shlex.split(hf.terminal_log(file)["spark.driver.extraJavaOptions"])
    named = dict(option.removeprefix("-D").split("=", 1) for option in options)
    assert named["holdfast.log.file"] == str(file)
    assert "alwaysWriteExceptions = false" in Path(named["log4j2.configurationFile"]).read_text(encoding="ascii")


def test_without_a_file_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "holdfast.log.file" not in hf.terminal_log()["spark.driver.extraJavaOptions"]
    assert f"={tmp_path}/here.log" in hf.terminal_log("here.log")["spark.driver.extraJavaOptions"]
    with pytest.raises(hf.InvalidRequest, match="'~'"):
        hf.terminal_log("~/spark.log")
