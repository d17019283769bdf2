"""FileSink: Parquet files, of which each batch becomes visible once and whole."""

from __future__ import annotations

from holdfast.sink.files.reading import CommittedFile
from holdfast.sink.files.sink import FileSink

__all__ = ["CommittedFile", "FileSink"]
