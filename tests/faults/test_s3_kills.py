"""kill -9 of workers and of everything while state, commit records and output are in a bucket: each row once, all the
same. The server and the proxy before it live on, as a cloud does; the proxy loses answers and refuses now and then.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.fs
import pytest
from tests.fault_proxy import Asked, fault_proxy
from tests.faults.test_timer_kills import KILLS, SHORT, STEPS, prove
from tests.s3_server import CREDENTIALS, S3Server

pytestmark = pytest.mark.spark


@pytest.mark.timeout(1800)
def test_kills_with_everything_in_a_bucket_leave_no_difference(tmp_path: Path, s3: S3Server) -> None:
    _prove(tmp_path, s3, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_with_everything_in_a_bucket_leave_no_difference(tmp_path: Path, s3: S3Server) -> None:
    of_workers = [(step, "worker") for step in STEPS if not step.endswith("_record")]
    _prove(tmp_path, s3, [*of_workers, *((step, "group") for step in STEPS)] * KILLS)


def _prove(folder: Path, s3: S3Server, pairs: list[tuple[str, str]]) -> None:
    (folder / "checkpoint").mkdir()
    (folder / "output").mkdir()
    bucket, number = s3.bucket(), itertools.count(1)

    def weather(asked: Asked) -> str:
        """One write in twenty is done and not answered, one request in thirty is refused."""
        at = next(number)
        return "lose" if asked.kind == "put" and at % 20 == 0 else "refuse" if at % 30 == 0 else "pass"

    def fetch() -> None:
        """By a client that has nothing to do with ours."""
        key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
        place = s3.url.removeprefix("http://")
        files = pyarrow.fs.S3FileSystem(access_key=key, secret_key=secret, endpoint_override=place, scheme="http")
        found = files.get_file_info(pyarrow.fs.FileSelector(f"{bucket}/output"))
        for file in found:
            if file.is_file:
                with files.open_input_stream(file.path) as stream:
                    (folder / "output" / file.base_name).write_bytes(stream.read())
        names = [file.path for file in files.get_file_info(pyarrow.fs.FileSelector(bucket, recursive=True))]
        for what in (".arrow", "/sst/", "/runs/", "/records/", "/epochs/", "/batches/"):
            assert any(what in name for name in names), f"nothing of {what} is in the bucket"

    with fault_proxy(s3.url) as proxy:
        proxy.rule = weather
        prove(folder, pairs, proxy.url, f"s3://{bucket}", fetch=fetch)
    assert not list((folder / "checkpoint").glob("holdfast/**")), "commit records are in a folder"
