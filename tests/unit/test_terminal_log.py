"""Settings for what Spark's JVM logs; tests/integration/test_terminal.py tries them."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

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


def test_what_is_no_file_is_refused_since_it_would_be_renamed(tmp_path: Path) -> None:
    for path in ("/dev/null", "/dev/zero", str(tmp_path)):
        with pytest.raises(hf.InvalidRequest, match="is no file; expected one, which is renamed"):
            hf.terminal_log(path)
    options = shlex.split(hf.terminal_log()["spark.driver.extraJavaOptions"])
    [configuration] = [Path(option.partition("=")[2]) for option in options]
    assert "appender.file" not in configuration.read_text(encoding="ascii"), "nothing is there to be renamed"


def test_a_link_stays_one_as_its_file_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(tmp_path / "real.log")
    assert f"={tmp_path}/real.log" in hf.terminal_log(tmp_path / "link.log")["spark.driver.extraJavaOptions"]


def test_the_terminal_gets_the_same_with_a_file_and_without(tmp_path: Path) -> None:
    def terminal(given: dict[str, Any]) -> list[str]:
        options = shlex.split(given["spark.driver.extraJavaOptions"])
        named = dict(option.removeprefix("-D").split("=", 1) for option in options)
        lines = Path(named["log4j2.configurationFile"]).read_text(encoding="ascii").splitlines()
        return [line for line in lines if ".terminal." in line or "level" in line]

    assert terminal(hf.terminal_log()) == terminal(hf.terminal_log(tmp_path / "log")) != []


@pytest.mark.spark
def test_a_log_that_grows_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    """450 MB of lines, by Spark's own log4j."""
    import pyspark

    lines, file = 45_000, tmp_path / "100%d of it.log"
    jars = Path(pyspark.__file__).parent / "jars"
    found = [str(jar) for part in ("api", "core") for jar in jars.glob(f"log4j-{part}-*.jar")]
    options = shlex.split(hf.terminal_log(file)["spark.driver.extraJavaOptions"])
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    program = Path(__file__).resolve().parents[1] / "java" / "FillLog.java"
    command = [str(java), *options, "-cp", ":".join(found), str(program), str(lines)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    kept = [file, *(file.with_name(f"{file.name}.{number}") for number in range(1, 5))]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in kept}
    assert all(path.stat().st_size < 65 << 20 for path in kept)
    numbers = [int(line.split()[5]) for path in reversed(kept) for line in path.read_text().splitlines()]
    assert numbers == list(range(lines - len(numbers), lines)), "the newest, in their order"
    assert len(numbers) > 4 * 6_000
