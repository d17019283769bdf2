"""What a reader brings to this machine goes with it, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.test_checkpoint_reading import Recorded
from tests.unit.test_ending import hear_hang_ups

import holdfast as hf
from holdfast.errors import Unavailable
from holdfast.inspect import own_folder
from holdfast.inspect.own_folder import OwnFolder

# Below 64 KiB of it fit into a pipe that nobody reads.
ROWS = 20_000


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        pass


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("own") / "saved"
    rows = pa.table({"user": [f"u{number}" for number in range(ROWS)], "value": range(ROWS)})
    hf.Savepoint.write(folder, hf.OperatorTables("totals", {"total": rows}, processor=Total, key="user string"))
    return folder


@pytest.fixture
def reading(saved: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the midst of its rows, which nobody takes; its temporary files go to tmp_path."""
    code = "from holdfast.cli import main; main()"
    command = [sys.executable, "-c", code, "savepoint", "read", str(saved), "totals", "total", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, preexec_fn=hear_hang_ups) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"{")
        yield process
        process.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_leaves_nothing(
    reading: subprocess.Popen[bytes], tmp_path: Path, number: signal.Signals
) -> None:
    assert len(list(tmp_path.iterdir())) == 1
    reading.send_signal(number)
    assert reading.wait(60) == 128 + number
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_who_comes_next_removes_what_a_kill_left_and_nothing_that_is_in_use(
    reading: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    [left] = tmp_path.iterdir()
    with OwnFolder(tmp_path) as own:
        assert left.is_dir(), "its process is there"
        assert Path(own.path).is_dir()
    reading.kill()
    reading.wait(60)
    assert left.is_dir()
    (left / "below").mkdir()
    for name in ("holdfast-reader", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "holdfast-reader-link").symlink_to(tmp_path / "other")
    with OwnFolder(tmp_path) as own, OwnFolder(tmp_path) as other:
        assert not left.exists()
        assert Path(own.path).is_dir() and Path(other.path).is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"holdfast-reader", "other", "holdfast-reader-link"}


@pytest.mark.parametrize("name", ["holdfast-reader-service", "holdfast-reader-service_", "holdfast-reader-services-2"])
def test_a_folder_of_the_users_own_stays(name: str, tmp_path: Path) -> None:
    """Whatever the prefix, with all that was in it; the second is even one that a reader could have made."""
    own = tmp_path / name / "src" / "main.py"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with OwnFolder(tmp_path):
        assert own.read_text() == "mine"
    assert own.read_text() == "mine"


@pytest.mark.long
def test_a_name_that_no_reader_makes_stays_whatever_is_in_it(reading: subprocess.Popen[bytes], tmp_path: Path) -> None:
    [left] = tmp_path.iterdir()
    reading.kill()
    reading.wait(60)
    renamed = left.rename(tmp_path / "holdfast-reader-of-monday")
    with OwnFolder(tmp_path):
        assert list(renamed.iterdir())


def test_a_place_may_be_one_that_is_not_to_be_listed(unprivileged: Path) -> None:
    """A drop box, of mode 1733: every reader was refused."""
    unprivileged.chmod(0o1333)
    with OwnFolder(unprivileged) as own:
        (Path(own.path) / "state").write_text("brought")
    unprivileged.chmod(0o700)
    assert not list(unprivileged.iterdir())


def test_a_folder_in_use_whose_lock_could_not_be_had_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next reader took it for abandoned."""

    def refused(descriptor: int, operation: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refused)
        first = OwnFolder(tmp_path)
    with first:
        (Path(first.path) / "state").write_text("in use")
        with OwnFolder(tmp_path):
            assert (Path(first.path) / "state").read_text() == "in use"
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_kill_while_a_folder_is_removed_leaves_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch, reading: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    [left] = tmp_path.iterdir()
    reading.kill()
    reading.wait(60)
    for number in range(50):
        (left / f"{number}").mkdir()
        (left / f"{number}" / "file").touch()
    marker = left / "HOLDFAST-READER"
    marker.unlink()
    marker.touch()  # the newest: some file systems list it first
    rmdir, removed = os.rmdir, 0

    def killed(path: Any, **named: Any) -> None:
        nonlocal removed
        removed += 1
        if removed == 50:
            raise KeyboardInterrupt
        rmdir(path, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", killed)
        with pytest.raises(KeyboardInterrupt):
            OwnFolder(tmp_path)
    assert left.is_dir()
    with OwnFolder(tmp_path):
        assert not left.exists()


@pytest.mark.long
def test_where_locks_do_not_tell_nothing_is_removed(
    monkeypatch: pytest.MonkeyPatch, reading: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    [left] = tmp_path.iterdir()
    reading.kill()
    reading.wait(60)
    with monkeypatch.context() as patched:
        patched.setattr(own_folder, "locks_tell", lambda _: False)
        with OwnFolder(tmp_path):
            assert left.is_dir()
    with OwnFolder(tmp_path):
        assert not left.exists()


def test_a_folder_that_was_cleared_before_it_was_locked_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock, locked = fcntl.flock, []

    def cleared(descriptor: int, operation: int) -> None:
        lock(descriptor, operation)
        locked.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if len(locked) == 1:
            os.rmdir(locked[0])

    monkeypatch.setattr(fcntl, "flock", cleared)
    with OwnFolder(tmp_path) as own:
        assert own.path == locked[1] != locked[0]
        assert Path(own.path).is_dir()


def test_no_folder_for_temporary_files_is_said(saved: Path, no_temporary_folder: None) -> None:
    with pytest.raises(Unavailable, match="set TMPDIR to one"):
        hf.Savepoint(saved)
    with pytest.raises(Unavailable, match="set TMPDIR, or temporary= of hf.Checkpoint, to another"):
        OwnFolder("/nonexistent")


def test_a_temporary_folder_that_refuses_is_told_by_the_readers_setting(tmp_path: Path) -> None:
    Recorded(tmp_path, 2)
    (tmp_path / "temporary").mkdir()
    with hf.Checkpoint(tmp_path / "checkpoint", temporary=tmp_path / "temporary") as checkpoint:
        [own] = (tmp_path / "temporary").iterdir()
        shutil.rmtree(own)
        own.write_text("in the way")
        with pytest.raises(Unavailable, match=r"set TMPDIR, or temporary= of hf\.Checkpoint, to another") as told:
            checkpoint.read("sums", "total").read_all()
        assert "spark.holdfast" not in str(told.value)
        own.unlink()


_FORKING = """
import os, sys
from holdfast.inspect.own_folder import OwnFolder
own = OwnFolder(sys.argv[1])
open(os.path.join(own.path, "state"), "w").close()
child = os.fork()
if child == 0:
    if sys.argv[2] == "closes":
        own.close()
    if sys.argv[2] == "forgets":
        del own
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(os.listdir(own.path))
"""


@pytest.mark.parametrize("child", ["ends", "closes", "forgets"])
def test_the_end_of_a_forked_child_leaves_its_parents_folder(child: str, tmp_path: Path) -> None:
    """The parent went on to read from a folder that was gone."""
    told = subprocess.run(
        [sys.executable, "-c", _FORKING, str(tmp_path), child], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    assert "'state'" in told.stdout
    assert not list(tmp_path.iterdir()), "the parent removes it"
