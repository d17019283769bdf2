"""Bytes of a FileSink's manifest, version 1. Never written again: what a release wrote must be read for ever."""

from __future__ import annotations

from pathlib import Path

from holdfast.sink.files.reading import CommittedFile, Manifest

NAME = "000000000041-00003-0f0f0f0f-0000-4000-8000-000000000000-files.parquet"
MANIFEST = Manifest(
    "0f0f0f0f-0000-4000-8000-000000000000",
    "files",
    41,
    (CommittedFile(3, NAME, 5_000, 80_000, "00c0ffee00c0ffee"),),
)


def test_manifest() -> None:
    stored = (Path(__file__).parent / "files_v1.json").read_bytes()
    assert Manifest.from_text(stored, "golden") == MANIFEST
    assert MANIFEST.to_text().encode() == stored
