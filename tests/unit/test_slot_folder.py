"""The local folder of a slot: whose it is, who works in it, and what the disk refuses."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.test_declared_operators import QUERY, plan

from holdfast.checkpoint import host as host_module
from holdfast.checkpoint.host import READERS_SETTING, Host, check_room, claim_local_dir, local_errors
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.clock import new_id
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.sealed import seal
from holdfast.spark import worker

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


@pytest.mark.long
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


def test_a_default_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    """Anybody may make /tmp/holdfast-<uid>: what was put there was believed."""
    theirs = tmp_path / "holdfast-1000"
    theirs.mkdir()
    claim_local_dir(str(theirs), HERE, private=True)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(InvalidRequest, match=rf"holdfast-1000.* is of user {owner}.*spark\.holdfast\.local\.dir"):
        claim_local_dir(str(theirs), HERE, private=True)
    claim_local_dir(str(theirs), HERE)  # one that was set: whose it is was thought about


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of others")
@pytest.mark.parametrize("of_link, of_folder", [(1234, 0), (0, 1234), (0, 0)])
def test_a_default_folder_that_is_a_link_must_be_this_users_as_what_it_leads_to(tmp_path, of_link, of_folder):
    disk, link = tmp_path / "disk", tmp_path / "link"
    disk.mkdir()
    link.symlink_to(disk)
    os.chown(disk, of_folder, -1)
    os.chown(link, of_link, -1, follow_symlinks=False)
    if of_link or of_folder:
        with pytest.raises(InvalidRequest, match="is of user 1234, and this one is 0"):
            claim_local_dir(str(link), HERE, private=True)
        assert os.listdir(disk) == []
    else:
        claim_local_dir(str(link), HERE, private=True)


@pytest.mark.parametrize(("mode", "then"), [(0o777, 0o755), (0o775, 0o755), (0o770, 0o750), (0o700, 0o700)])
def test_nobody_else_may_write_in_the_default_folder(tmp_path, mode, then):
    folder = tmp_path / "local"
    folder.mkdir()
    folder.chmod(mode)
    claim_local_dir(str(folder), HERE)
    assert folder.stat().st_mode & 0o777 == mode, "one that was set is left as it is"
    claim_local_dir(str(folder), HERE, private=True)
    assert folder.stat().st_mode & 0o777 == then


def test_a_worker_asks_whose_the_default_folder_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    (tmp_path / f"holdfast-{user}").mkdir()
    one = plan(tmp_path / "state")
    live = worker.operator(one, worker.BatchIdentity(QUERY, str(uuid.uuid4()), 0, 0, 0, 0, None))
    with pytest.raises(InvalidRequest, match=f"holdfast-{user}, the local folder .*, is of user {user - 1}"):
        worker.slot_state(one, live, 0)


def test_a_default_folder_is_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        claim_local_dir(str(tmp_path / "local"), HERE, private=True)
    finally:
        os.umask(before)
    assert (tmp_path / "local").stat().st_mode & 0o777 == 0o700


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


@pytest.mark.parametrize(("given", "setting"), [((), "spark.holdfast.local.dir"), ((READERS_SETTING,), "TMPDIR")])
def test_a_folder_names_the_setting_that_says_where_it_is(tmp_path, given, setting):
    folder = SlotFolder(str(tmp_path), "s3://bucket/x", "query/op", 7, new_id, *given)
    shutil.rmtree(folder.path)
    with pytest.raises(Unavailable, match=f"or set {setting}.* to another local disk"):
        folder.new_work()
    folder.make()
    with pytest.raises(Unavailable, match=f"are needed.*or set {setting}.* to another local disk"):
        check_room(folder.path, 1 << 62, folder.setting)


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
