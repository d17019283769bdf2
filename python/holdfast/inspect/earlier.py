"""What a query may begin with, as the driver reads it: an earlier query at one of its batches, or a savepoint. RFC 15.

Read once, so that all operators and sources of a query go on from one batch. Owner: one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from holdfast.checkpoint import (
    OperatorRecord,
    SavepointOrigin,
    StoredHandle,
    VersionsOrigin,
    operator_prefix,
    recorded_operator,
)
from holdfast.checkpoint.native_manifest import NativeManifest, claimed_manifest, opened_manifest
from holdfast.checkpoint.origin import Origin
from holdfast.checkpoint.saved_operator import record_of
from holdfast.errors import Incompatible, InvalidRequest
from holdfast.inspect import native_savepoint
from holdfast.inspect.begun import begun_operators
from holdfast.inspect.committed import Committed, CommittedState
from holdfast.inspect.not_begun import check_all_begun
from holdfast.inspect.settled import check_settled
from holdfast.inspect.spark_itself import SparkItself
from holdfast.inspect.state_folder import find_state_folder
from holdfast.savepoint import Manifest, check_files
from holdfast.storage import SAVEPOINT, FileStore, StorageOptions, open_checkpoint, open_file_store


class Earlier(ABC):
    """State that a query may begin with."""

    path: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"restore from {self.path}"

    @property
    @abstractmethod
    def batch(self) -> tuple[str | None, int | None]:
        """Query id, and the batch whose end it is; None of a savepoint that no query made."""

    @property
    @abstractmethod
    def operators(self) -> tuple[str, ...]:
        """Those that have state, in order."""

    @property
    @abstractmethod
    def sources(self) -> tuple[str | None, ...]:
        """The end of the batch in each source, as Spark wrote it."""

    @abstractmethod
    def check_files(self, operator: str) -> None:
        """Corrupt where a savepoint lacks a file of an operator, or has one of another size. The bytes are compared in
        the first batch: Savepoint.verify compares them before. Of a query Checkpoint.verify compares all.
        """

    def operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        """What is recorded of an operator, and its state as an origin.

        Parameters
        ----------
        where
            For messages.
        own_store
            Where the operator that begins keeps its own state; None: it is not known yet.

        Raises
        ------
        InvalidRequest
            There is no such operator.
        """
        if name not in self.operators:
            known = ", ".join(map(repr, self.operators)) or "none"
            raise InvalidRequest(
                f"{where}: there is no state of an operator {name!r} in it; there is some of: {known}. Name it: "
                "restore.operator(…)"
            )
        return self._operator(name, where, own_store)

    @abstractmethod
    def _operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        """As :meth:`operator`, of one that there is."""


class EarlierQuery(Earlier):
    """A query's checkpoint.

    Parameters
    ----------
    state_dir
        Where the query kept its state; None: where the operator that begins keeps its own.
    batch_id
        At the end of which batch; None: of the newest that is committed, if all output that is visible is of it and of
        those before.
    """

    def __init__(
        self, path: str, state_dir: str | None, batch_id: int | None, storage: StorageOptions, spark: Any
    ) -> None:
        self.path = path
        self._state_dir = state_dir
        self._batch_id = batch_id
        self._storage = storage
        self._committed = Committed(open_checkpoint(path, storage), SparkItself(path, spark).texts, self._begun)

    @cached_property
    def _state(self) -> CommittedState:
        state = self._committed.at(self._batch_id)
        if self._batch_id is None:
            check_settled(self._committed, state.batch.batch_id)
        return state

    @property
    def batch(self) -> tuple[str | None, int | None]:
        return self._committed.query_id, self._state.batch.batch_id

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(sorted(self._state.handles))

    @property
    def sources(self) -> tuple[str | None, ...]:
        return self._state.batch.sources

    def operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        """See :class:`Earlier`; also Corrupt where the checkpoint lacks an operator, as a copy that was cut off."""
        if name not in self.operators and own_store is not None and self._state_dir is None:
            # Where the state is, was not known before.
            self._committed.check_begun(begun_operators(own_store, self._committed.query_id))
        return super().operator(name, where, own_store)

    def _begun(self) -> Sequence[str]:
        """As far as it is known where the query kept its state."""
        try:
            store = self._store(None)
        except InvalidRequest:
            return ()
        return begun_operators(store, self._committed.query_id)

    def _operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        query_id = self._committed.query_id
        store = self._store(own_store)
        recorded = recorded_operator(store, operator_prefix(query_id, name))
        if recorded is None:
            raise InvalidRequest(
                f"{where}: {store.uri} has no state of query {query_id}, operator {name!r}. Say which folder was its "
                "spark.holdfast.checkpoint.dir: hf.Restore(…, state_dir=…)"
            )
        check_all_begun(self._state, store, query_id, where)
        state = self._committed.that_count(self._state, store, [name])
        batch_id = state.batch.batch_id
        handles = _by_slot(state.handles[name], recorded, f"{where}, batch {batch_id}, {store.uri}")
        end = state.as_of(recorded, store)
        return recorded, VersionsOrigin(
            store=store.uri,
            query_id=query_id,
            operator=name,
            batch_id=batch_id,
            handles=handles,
            operators=self.operators,
            time=end.time,
            lifetimes=end.lifetimes,
        )

    def check_files(self, operator: str) -> None:
        return

    def _store(self, own_store: FileStore | None) -> FileStore:
        if self._state_dir is not None:
            return open_file_store(self._state_dir, self._storage)
        if own_store is not None:
            return own_store
        told = "state_dir= (--state at a shell)"
        return find_state_folder(self._committed.store, self._committed.query_id, None, self._storage, told)


class EarlierSavepoint(Earlier):
    """A canonical savepoint."""

    def __init__(self, path: str, store: FileStore, manifest: Manifest, claim: bool) -> None:
        self.path = path
        self._store = store
        self._claim = claim
        self.manifest = manifest

    def check_files(self, operator: str) -> None:
        check_files(self._store, [self.manifest.operator(operator)])

    @property
    def batch(self) -> tuple[str | None, int | None]:
        return self.manifest.query_id, self.manifest.batch_id

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.manifest.operators)

    @property
    def sources(self) -> tuple[str | None, ...]:
        return self.manifest.sources

    def _operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        recorded = record_of(self.manifest.operator(name))
        return recorded, replace(saved_origin(self._store.uri, self.manifest, recorded), claim=self._claim)


class EarlierNativeSavepoint(Earlier):
    """A native savepoint: versions, as those of an earlier query, in a store of their own."""

    def __init__(self, path: str, store: FileStore, manifest: NativeManifest, claim: bool) -> None:
        self.path = path
        self._store = store
        self._claim = claim
        self._manifest = manifest

    def check_files(self, operator: str) -> None:
        native_savepoint.check_files(self._store, self._manifest, [self._manifest.operator(operator)])

    @property
    def batch(self) -> tuple[str | None, int | None]:
        return self._manifest.about.query_id, self._manifest.about.batch_id

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(operator.record.name for operator in self._manifest.operators)

    @property
    def sources(self) -> tuple[str | None, ...]:
        return self._manifest.about.sources

    def _operator(self, name: str, where: str, own_store: FileStore | None) -> tuple[OperatorRecord, Origin]:
        origin = replace(self._manifest.origin(name, self._store.uri), claim=self._claim)
        return self._manifest.operator(name).record, origin


def earlier_savepoint(path: str, storage: StorageOptions, claim: bool = False) -> Earlier:
    """The savepoint in a folder, of whichever format; raises as :func:`opened_manifest`. Of one that is to be claimed
    the manifest alone will do: a program that starts again says what it said at first, and its query has the rest.
    """
    store = open_file_store(path, storage, SAVEPOINT)
    manifest = claimed_manifest(store) if claim else None
    if manifest is None:
        manifest = opened_manifest(store)
    if isinstance(manifest, NativeManifest):
        return EarlierNativeSavepoint(path, store, manifest, claim)
    return EarlierSavepoint(path, store, manifest, claim)


def saved_origin(store: str, manifest: Manifest, recorded: OperatorRecord) -> SavepointOrigin:
    """An operator of a canonical savepoint as the origin of a generation. ``store``: URI of the savepoint's folder."""
    return SavepointOrigin(
        store=store,
        manifest=manifest.checksum,
        query_id=manifest.query_id,
        batch_id=manifest.batch_id,
        operator=recorded.name,
        operators=tuple(operator.name for operator in manifest.operators),
        states=tuple((state.name, state.id) for state in recorded.states),
    )


def _by_slot(found: dict[int, StoredHandle], recorded: OperatorRecord, where: str) -> tuple[StoredHandle | None, ...]:
    handles = tuple(found.get(slot) for slot in range(recorded.slots))
    unknown = sorted(set(found) - set(range(recorded.slots)))
    if unknown or (recorded.origin is not None and None in handles):
        raise Incompatible(
            f"{where} has versions of the slots {sorted(found)}; expected all of the {recorded.slots} that are "
            "recorded. Files of two checkpoints are mixed: restore both from one backup"
        )
    return handles
