"""Savepoints as files: the manifest, the tables, how they are written and read. Format: docs/formats/savepoint.md.

Knows storage's interface and the core; neither checkpoints nor Spark, so that both can begin from a savepoint.
"""

from __future__ import annotations

from holdfast.savepoint.columns import StateColumns
from holdfast.savepoint.entries import entries_of
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedOperator, SavedState, StateTtl, TableFile
from holdfast.savepoint.reading import check_files, holds_none, local_table, read_manifest, read_state, verify_file
from holdfast.savepoint.writing import TableWriter, write_manifest

__all__ = [
    "MANIFEST",
    "Manifest",
    "SavedOperator",
    "SavedState",
    "StateColumns",
    "StateTtl",
    "TableFile",
    "TableWriter",
    "check_files",
    "entries_of",
    "holds_none",
    "local_table",
    "read_manifest",
    "read_state",
    "verify_file",
    "write_manifest",
]
