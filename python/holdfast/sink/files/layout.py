"""Names below a FileSink's folder. Format: docs/formats/file_output.md.

What is committed lies in the folder itself; all else in folders whose names begin with ``_``, which Spark and pyarrow
leave out of a listing, and under names of other kinds: who asks for ``**/*.parquet``, as DuckDB does of a folder, finds
what is committed only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from holdfast.commit.sink import SinkTask

STAGING = "_staging"
LOG = "_holdfast"
README = f"{LOG}/README.txt"
#: Of Spark's own sink of files, which a folder of ours must not have.
SPARK_LOG = "_spark_metadata"
#: What comes after all names of published files, which begin with a digit, and before the folders of a sink.
PUBLISHED_END = ":"
_STAGED = re.compile(r"(\d{12,})-\d{5,}-(\d{6,})-\d+-\d+\.(?:staged|parquet)")  # .parquet: earlier versions
_PUBLISHED = re.compile(r"\d{12,}-\d{5,}-")
_BATCH = re.compile(r"(\d{12,})\.json")
_FENCE = re.compile(r"(\d{6,})-(\d{6,})")


@dataclass(frozen=True)
class Layout:
    """The names of one sink of one query."""

    query_id: str
    sink: str

    @property
    def _own(self) -> str:
        return f"{quote(self.query_id, safe='')}/{quote(self.sink, safe='')}"

    @property
    def staging(self) -> str:
        return f"{STAGING}/{self._own}/"

    @property
    def fences(self) -> str:
        return f"{LOG}/{self._own}/fences/"

    def staged(self, task: SinkTask) -> str:
        """Unique to the attempt."""
        return (
            f"{self.staging}{task.batch_id:012d}-{task.partition:05d}-{task.scope.epoch:06d}-{task.attempt}-"
            f"{task.task_attempt_id}.staged"
        )

    def published(self, batch_id: int, partition: int) -> str:
        """The same for all attempts: of two that are published, one would be a mistake."""
        return f"{batch_id:012d}-{partition:05d}-{self._suffix}"

    def after_published(self, batch_id: int) -> str:
        """What comes after all names of a batch's files and before those of later batches."""
        return f"{batch_id:012d}."

    def is_published(self, name: str) -> bool:
        """Whether a name below the folder is one of `published`."""
        return _PUBLISHED.fullmatch(name.removesuffix(self._suffix)) is not None and name.endswith(self._suffix)

    @property
    def _suffix(self) -> str:
        return f"{quote(self.query_id, safe='')}-{quote(self.sink, safe='')}.parquet"

    @property
    def manifests(self) -> str:
        return f"{LOG}/{self._own}/batches/"

    def manifest(self, batch_id: int) -> str:
        return f"{self.manifests}{batch_id:012d}.json"

    def part(self, batch_id: int, number: int) -> str:
        """Published files of a batch of which others were lost: it is not whole yet."""
        return f"{LOG}/{self._own}/parts/{batch_id:012d}-{number:04d}.json"

    def fence(self, epoch: int, number: int) -> str:
        return f"{self.fences}{epoch:06d}-{number:06d}"


def epoch_of_staged(name: str) -> int | None:
    """The epoch whose driver's task staged a file; None for a name of another kind."""
    match = _STAGED.fullmatch(name.rpartition("/")[2])
    return int(match.group(2)) if match else None


def parse_fence(name: str) -> tuple[int, int] | None:
    match = _FENCE.fullmatch(name.rpartition("/")[2])
    return (int(match.group(1)), int(match.group(2))) if match else None


def batch_of_manifest(name: str) -> int:
    """Of a name that `is_manifest` knows."""
    return int(name.rpartition("/")[2].removesuffix(".json"))


def batch_of_published(name: str) -> int:
    """Of a name that `Layout.is_published` knows."""
    return int(name.partition("-")[0])


def is_manifest(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return folder.endswith("/batches") and _BATCH.fullmatch(file) is not None
