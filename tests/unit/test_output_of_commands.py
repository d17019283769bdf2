"""What commands write, where it cannot be written: an exit code of its own, for what was done is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.output import NOT_WRITTEN, OutputGroup

# Commands that write nothing, some, more than a buffer has, or to whoever is told of an error; and one that fails.
COMMANDS = """
import sys, click
from pathlib import Path
from holdfast.cli import main

@main.command()
@click.argument("lines", type=int)
@click.option("--err", is_flag=True)
def work(lines, err):
    Path("done").touch()
    click.echo("x" * 79 + chr(10) * (lines > 0) + ("x" * 79 + chr(10)) * (lines - 1), err=err)

@main.command()
def fail():
    raise click.ClickException("it is damaged")

main()
"""


def run(folder: Path, *words: str, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMANDS, *words]
    with open("/dev/full", "w") as full:
        return subprocess.run(command, cwd=folder, stdout=full, stderr=stderr or full, text=True, check=False)


@pytest.mark.parametrize("words", [["work", "1"], ["work", "10000"], ["--help"], ["work", "--help"]])
def test_output_that_cannot_be_written_is_told_in_a_line(tmp_path: Path, words: list[str]) -> None:
    """It was a traceback, and the exit code of a command that has failed."""
    told = run(tmp_path, *words)
    assert told.returncode == NOT_WRITTEN == 74
    assert told.stderr == "Error: what was done is done; the output cannot be written: No space left on device\n"
    assert (tmp_path / "done").exists() == ("--help" not in words)


@pytest.mark.parametrize(
    ("words", "code"), [(["work", "1"], 74), (["work", "1", "--err"], 74), (["fail"], 1), (["unknown"], 2)]
)
def test_where_nothing_can_be_written_the_exit_code_tells(tmp_path: Path, words: list[str], code: int) -> None:
    """As of a cron job whose log is full."""
    assert run(tmp_path, *words, stderr=0).returncode == code


def test_who_reads_no_further_is_no_full_disk(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    told = subprocess.run(
        [sys.executable, "-c", COMMANDS, "work", "1"], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (told.returncode, told.stderr) == (1, b"")


def test_an_error_of_another_file_is_not_taken_for_one_of_the_output() -> None:
    @click.group(cls=OutputGroup)
    def commands() -> None:
        pass

    @commands.command()
    def work() -> None:
        Path("/dev/full").write_text("x")

    found = CliRunner().invoke(commands, ["work"])
    assert isinstance(found.exception, OSError) and found.exit_code == 1
