"""The local folder of a slot: whose it is, who works in it, and what the disk refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from holdfast.checkpoint import host as host_module
from holdfast.checkpoint.host import Host, claim_local_dir, local_errors
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.clock import new_id
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.sealed import seal

HERE = Host("a", "machine", "boot-1")


@pytest.fixture
def folder(tmp_path):
    return SlotFolder(str(tmp_path), "s3://bucket/x", "query/op", 7, new_id)


# --- HOST ------------------------------------------------------------------------------------------------------------


def test_this_host_is_somebody():
    host = Host.this()
    assert host.name and host.boot_id
    assert host.owns(Host.this())


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ({}, True),
        ({"boot_id": "boot-2"}, True),  # after a reboot
        ({"name": "b"}, True),  # renamed, or another container on the same kernel
        ({"name": "b", "boot_id": "boot-2"}, False),
        ({"machine_id": "other", "boot_id": "boot-2"}, False),
        ({"boot_id": "", "name": "b"}, False),
    ],
)
def test_a_local_folder_belongs_to_one_machine(tmp_path, other, is_same):
    claim_local_dir(str(tmp_path), HERE)
    second = replace(HERE, **other)
    if is_same:
        claim_local_dir(str(tmp_path), second)
        claim_local_dir(str(tmp_path), second)
    else:
        with pytest.raises(InvalidRequest, match=r"shared by two hosts.*spark\.holdfast\.local\.dir"):
            claim_local_dir(str(tmp_path), second)
        claim_local_dir(str(tmp_path), HERE)


def test_a_renamed_pod_takes_its_volume_over_once_nobody_is_there(tmp_path):
    """The claim was the host's name: after a restart under another name the volume was refused for ever."""
    script = (
        "import sys, time\n"
        "from holdfast.checkpoint.host import Host, claim_local_dir\n"
        f"claim_local_dir({str(tmp_path)!r}, Host('pod-1', '', 'boot-1'))\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "there\n"
    renamed = Host("pod-2", "", "boot-2")
    with pytest.raises(InvalidRequest, match=rf"'pod-1' is gone for good.*delete the file {tmp_path}/HOST"):
        claim_local_dir(str(tmp_path), renamed)
    child.kill()
    child.wait()
    child.stdout.close()
    claim_local_dir(str(tmp_path), renamed)
    with pytest.raises(InvalidRequest, match="'pod-2' uses it"):
        claim_local_dir(str(tmp_path), Host("pod-1", "", "boot-1"))


def test_workers_that_start_at_once_take_over_together(tmp_path):
    """Who looked while another one was taking over was told that two hosts share the folder."""
    program = (
        "import sys\n"
        "from holdfast.checkpoint.host import Host, claim_local_dir\n"
        "sys.stdin.readline()\n"
        f"claim_local_dir({str(tmp_path)!r}, Host('pod-2', '', 'boot-2'))\n"
        "print('mine', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    processes: list[Any] = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    left = seal("holdfast.host", 1, {"name": "pod-1", "machine_id": "", "boot_id": "boot-1"})
    (tmp_path / "HOST").write_text(left)
    (tmp_path / "HOST.lock").touch()
    for process in processes:
        process.stdin.write("now\n")
        process.stdin.flush()
    assert [process.stdout.readline() for process in processes] == ["mine\n"] * 3
    for process in processes:
        process.communicate("enough\n")


def test_where_locks_say_nothing_of_other_machines_the_way_out_is_named(tmp_path, monkeypatch):
    claim_local_dir(str(tmp_path), HERE)
    host_module._held.clear()  # nobody holds it any more, as far as this machine can tell
    monkeypatch.setattr(host_module, "_file_system", lambda _: "nfs4")
    other = Host("b", "m", "x")
    with pytest.raises(InvalidRequest, match=f"delete the file {tmp_path}/HOST"):
        claim_local_dir(str(tmp_path), other)
    (tmp_path / "HOST").unlink()
    claim_local_dir(str(tmp_path), other)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"format":"holdfast.host"}'])
def test_a_torn_host_file_is_written_anew(tmp_path, content):
    claim_local_dir(str(tmp_path), HERE)
    (tmp_path / "HOST").write_bytes(content)
    claim_local_dir(str(tmp_path), HERE)
    with pytest.raises(InvalidRequest):
        claim_local_dir(str(tmp_path), Host("b", "m", "x"))


def test_a_local_folder_that_is_a_file_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        with pytest.raises(Unavailable, match=r"cannot be used: .*spark\.holdfast\.local\.dir"):
            claim_local_dir(path, HERE)


def test_a_local_folder_that_may_not_be_written_says_so(unprivileged):
    claim_local_dir(str(unprivileged), HERE)
    unprivileged.chmod(0o500)
    with pytest.raises(Unavailable, match=r"Permission denied.*spark\.holdfast\.local\.dir"):
        claim_local_dir(str(unprivileged), HERE)


def test_what_the_disk_refuses_names_the_path_the_free_bytes_and_the_setting(tmp_path):
    with (
        pytest.raises(Unavailable, match=rf"{tmp_path}.*No space.*\d+ bytes are free.*spark\.holdfast\.local\.dir"),
        local_errors(str(tmp_path / "x" / "y")),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(Corrupt), local_errors(str(tmp_path)):
        raise Corrupt("not the disk's")


# --- work folders -----------------------------------------------------------------------------------------------------


def test_folders_of_two_stores_or_operators_are_apart(tmp_path):
    paths = {
        SlotFolder(str(tmp_path), uri, prefix, slot, new_id).path
        for uri in ("s3://a", "s3://b")
        for prefix in ("q/x", "q/y")
        for slot in (1, 2)
    }
    assert len(paths) == 8


def test_work_that_is_closed_leaves_nothing(folder):
    with folder.new_work() as work:
        open(work.child("file"), "w").close()
        assert folder.clear_abandoned() == 0, "its owner is at work"
    assert sorted(os.listdir(folder.path)) == ["bases", "deltas"]


def test_published_work_stays_and_the_second_of_a_version_loses(folder):
    for content in ("first", "second"):
        with folder.new_work() as work:
            with open(work.child("file"), "w") as file:
                file.write(content)
            path = folder.publish(work.path, 3, "a" * 32)
    with open(os.path.join(path, "file")) as file:
        assert file.read() == "first"
    assert folder.base_names() == [f"{3:012d}-{'a' * 32}"]
    folder.discard(path)
    assert folder.base_names() == []
    folder.discard(path)


def test_work_of_a_killed_process_is_cleared_and_that_of_a_living_one_is_not(folder, tmp_path):
    script = (
        "import sys, time\n"
        "from holdfast.checkpoint.slot_folder import SlotFolder\n"
        "from holdfast.clock import new_id\n"
        f"work = SlotFolder({str(tmp_path)!r}, 's3://bucket/x', 'query/op', 7, new_id).new_work()\n"
        "print(work.path, flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    path = child.stdout.readline().strip()
    assert os.path.isdir(path)
    assert folder.clear_abandoned() == 0
    child.kill()
    child.wait()
    child.stdout.close()
    assert folder.clear_abandoned() == 1
    assert not os.path.exists(path) and not os.path.exists(path + ".lock")


def test_one_at_a_time_maintains_a_slot(folder):
    with folder.maintenance_lock() as first:
        assert first
        with folder.maintenance_lock() as second:
            assert not second
    with folder.maintenance_lock() as third:
        assert third


def test_a_process_that_clears_away_does_not_take_a_folder_in_the_making(folder):
    """Many make work folders while others clear away: every folder is its maker's until closed."""
    import threading

    stop = time.monotonic() + 1.0
    failures = []

    def make():
        while time.monotonic() < stop:
            with folder.new_work() as work:
                open(work.child("file"), "w").close()
                if not os.path.exists(work.child("file")):
                    failures.append(work.path)

    def clear():
        while time.monotonic() < stop:
            folder.clear_abandoned()

    threads = [threading.Thread(target=target) for target in (make, make, clear, clear)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(os.listdir(folder.path)) == ["bases", "deltas"]
