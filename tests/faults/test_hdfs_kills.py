"""kill -9 of workers and of everything while state, commit records, output and Spark's checkpoint are in HDFS: each row
once, all the same. The NameNode and the proxy before it live on; the proxy loses answers and refuses now and then.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.fault_proxy import Asked, fault_proxy
from tests.faults.test_timer_kills import KILLS, SHORT, STEPS, prove
from tests.hdfs_server import HdfsServer

pytestmark = pytest.mark.spark

_LOOK_S = 0.1


@pytest.mark.slow  # what is HDFS's own, the contract proves; kills in storage that is elsewhere, test_s3_kills.py
@pytest.mark.timeout(1800)
def test_kills_with_everything_in_hdfs_leave_no_difference(tmp_path: Path, hdfs: HdfsServer) -> None:
    _prove(tmp_path, hdfs, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_with_everything_in_hdfs_leave_no_difference(tmp_path: Path, hdfs: HdfsServer) -> None:
    of_workers = [(step, "worker") for step in STEPS if not step.endswith("_record")]
    _prove(tmp_path, hdfs, [*of_workers, *((step, "group") for step in STEPS)] * KILLS)


class Mirror:
    """What the judge reads in HDFS, brought to this machine by a client that has nothing to do with ours."""

    def __init__(self, hdfs: HdfsServer, root: str, folder: Path) -> None:
        self._hdfs, self._root, self._folder = hdfs, root, folder

    def bring(self, place: str) -> None:
        """The files that stand in the folder itself, each once: none of them ever changes."""
        target = self._folder / place
        target.mkdir(parents=True, exist_ok=True)
        for one in self._listed(place):
            name = str(one["pathSuffix"])
            if one["type"] == "FILE" and not name.startswith(".") and not (target / name).exists():
                hidden = target / f".{name}"
                hidden.write_bytes(self._hdfs.ask("GET", f"{self._root}/{place}/{name}", "OPEN"))
                hidden.rename(target / name)

    def names(self, place: str = "") -> Iterator[str]:
        """Of all files below a folder."""
        for one in self._listed(place):
            name = f"{place}/{one['pathSuffix']}"
            if one["type"] == "FILE":
                yield name
            else:
                yield from self.names(name)

    def _listed(self, place: str) -> list[dict[str, object]]:
        try:
            return self._hdfs.listed(f"{self._root}/{place}".rstrip("/"))
        except HTTPError as error:
            if json.loads(error.read())["RemoteException"]["exception"] != "FileNotFoundException":
                raise
            return []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Spark's logs of offsets and commits are brought as they come, in the order in which they are written."""
        ended = threading.Event()
        failed: list[BaseException] = []

        def follow() -> None:
            try:
                while not ended.wait(_LOOK_S):
                    for log in ("commits", "offsets"):
                        self.bring(f"checkpoint/{log}")
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert not failed, failed


def _prove(folder: Path, hdfs: HdfsServer, pairs: list[tuple[str, str]]) -> None:
    (folder / "checkpoint").mkdir()
    (folder / "output").mkdir()
    root, number = hdfs.folder(), itertools.count(1)
    mirror = Mirror(hdfs, root, folder)

    def weather(asked: Asked) -> str:
        """One rename in ten is done and not answered, one request in thirty is refused."""
        at = next(number)
        return "lose" if asked.kind == "rename" and at % 10 == 0 else "refuse" if at % 30 == 0 else "pass"

    def fetch() -> None:
        mirror.bring("output")
        names = list(mirror.names())
        for what in (".arrow", "/sst/", "/runs/", "/records/", "/epochs/", "/batches/", "/commits/", "/offsets/"):
            assert any(what in name for name in names), f"nothing of {what} is in HDFS"

    with fault_proxy(hdfs.url) as proxy, mirror.following():
        proxy.rule = weather
        prove(folder, pairs, proxy.url, f"hdfs://{hdfs.address}{root}", fetch=fetch)
    assert not list((folder / "checkpoint").glob("holdfast/**")), "commit records are in a folder"
