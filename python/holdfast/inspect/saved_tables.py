"""The content of a canonical savepoint: tables in Parquet. Format: docs/formats/savepoint.md. Owner: one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast import savepoint
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.versions import Wanted
from holdfast.savepoint import Manifest
from holdfast.savepoint.manifest import table_folder, table_name
from holdfast.storage import FileStore


class SavedTables:
    """An opened one.

    Parameters
    ----------
    local_dir
        The caller's own temporary folder.
    """

    def __init__(self, store: FileStore, manifest: Manifest, local_dir: str) -> None:
        self.store = store
        self.manifest = manifest
        self._local_dir = local_dir

    def read(self, operator: str, state: str, wanted: Wanted) -> pa.RecordBatchReader:
        """As :meth:`holdfast.Savepoint.read`."""
        saved = self.manifest.operator(operator)
        found = saved.state(state)
        given = wanted.schema(state, found.columns.schema)
        columns, rows = wanted.columns, wanted.filter
        batches = savepoint.read_state(self.store, saved, found, self._local_dir, columns=columns, filter=rows)
        return pa.RecordBatchReader.from_batches(given, batches)

    def path(self, operator: str, state: str) -> str:
        """As :meth:`holdfast.Savepoint.path`."""
        if not self.manifest.operator(operator).state(state).files:
            raise InvalidRequest(
                f"state {state!r} of operator {operator!r} has no entries, so there are no files of it"
            )
        folder = table_folder(operator, state)
        return self.store.local_path(folder) or f"{self.store.uri}/{folder}"

    def check_files(self) -> None:
        """Raises as :func:`holdfast.savepoint.check_files`."""
        savepoint.check_files(self.store, self.manifest.operators)

    def damages(self) -> Iterator[str]:
        """Reads every byte; what is damaged, in words."""
        for operator in self.manifest.operators:
            for state in operator.states:
                for file in state.files:
                    name = table_name(operator.name, state.name, file.slot)
                    where = self.store.local_path(name) or f"{self.store.uri}/{name}"
                    where = f"{where} (state {state.name!r} of operator {operator.name!r}, slot {file.slot})"
                    try:
                        place = self.store, operator.name, state.name, file.slot, self._local_dir
                        with savepoint.local_table(*place) as path:
                            savepoint.verify_file(path, file, where)
                    except Corrupt as error:
                        yield str(error)

    def sizes(self) -> dict[str, int]:
        """Bytes by name, of all files but the manifest."""
        return {
            table_name(operator.name, state.name, file.slot): file.size_bytes
            for operator in self.manifest.operators
            for state in operator.states
            for file in state.files
        }
