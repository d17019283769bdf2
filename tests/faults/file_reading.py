"""An independent reader of what a FileSink leaves: DuckDB over a plain listing of the folder, as
docs/formats/file_output.md promises it to a stranger. Names with an underscore in front are not output, as for Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb


def listed(folder: Path) -> list[str]:
    """The committed files: all Parquet files that stand in the folder itself."""
    return sorted(str(path) for path in folder.glob("*.parquet") if not path.name.startswith(("_", ".")))


def named(folder: Path) -> list[str]:
    """The files that manifests name, and the parts of batches that are not whole yet. Of one that is listed and not
    among these nobody can say that it was ever committed.
    """
    documents = [path for kind in ("batches", "parts") for path in folder.glob(f"_holdfast/*/*/{kind}/*.json")]
    return sorted({str(folder / name) for path in documents for _, name, *_ in json.loads(path.read_text())["files"]})


class FolderReader:
    """The rows of the committed files. A file never changes and never goes, so each look reads those that are new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._rows: list[dict[str, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        """All that is there by now, in no order that means anything."""
        files = listed(self._folder)
        gone = self._known.difference(files)
        assert not gone, f"committed files are gone: {sorted(gone)}"
        new = sorted(set(files) - self._known)
        if new:
            with duckdb.connect() as db:
                found = db.execute("SELECT * FROM read_parquet(?)", [new])
                names = [column[0] for column in found.description]
                self._rows += [dict(zip(names, row)) for row in found.fetchall()]
            self._known.update(new)
        return self._rows
