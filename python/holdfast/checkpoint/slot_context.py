"""What every part of one slot's checkpoints is given:
whose slot, where its files are, by which settings, clock and names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast._core import Store
from holdfast.checkpoint.background_work import BackgroundWork
from holdfast.checkpoint.host import Host
from holdfast.checkpoint.names import slot_prefix
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import key_groups_of
from holdfast.checkpoint.settings import CheckpointSettings
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.value_schemas import core_schemas
from holdfast.clock import Clock, Ids
from holdfast.storage import FileStore, open_file_store


@dataclass(frozen=True)
class SlotContext:
    """Constant for the life of a slot in a process."""

    record: OperatorRecord
    slot: int
    file_store: FileStore
    prefix: str
    folder: SlotFolder
    host: Host
    settings: CheckpointSettings
    clock: Clock
    ids: Ids
    logger: logging.Logger
    background_work: BackgroundWork
    #: Opens the store of an origin.
    open_store: Callable[[str], FileStore] = open_file_store

    @property
    def operator(self) -> str:
        return self.record.name

    @property
    def key_groups(self) -> tuple[int, int]:
        """The slot's first key group, and the first after it."""
        return key_groups_of(self.slot, self.record.slots, self.record.max_parallelism)

    def store_at(self, uri: str) -> FileStore:
        """The store of that URI, which may be the slot's own."""
        return self.file_store if uri == self.file_store.uri else self.open_store(uri)

    @property
    def or_elsewhere(self) -> str:
        """What else is said of a file that is not in the store: a folder may be another one on each machine."""
        if self.file_store.local_path("x") is None:
            return ""
        return (
            f"; or {self.file_store.uri} on host {self.host.name!r} is not the folder that it was written to (a disk "
            f"of one machine, where driver and executors must reach one folder)"
        )

    def stored(self, name: str) -> str:
        """The name in the store of a file of this slot."""
        return f"{slot_prefix(self.prefix, self.slot)}/{name}"

    def new_store(self) -> Store:
        """An empty Store for this slot's key groups, which reads values of all schemas that its states ever had."""
        first, end = self.key_groups
        store = Store(
            self.record.key_schema,
            max_parallelism=self.record.max_parallelism,
            first_key_group=first,
            end_key_group=end,
            null_keys=self.record.null_keys,
            complete=self.settings.complete,
        )
        for state in (*self.record.states, *self.record.dropped):
            schemas = core_schemas(state)
            if schemas is not None:
                store.set_schemas(state.id, schemas)
        return store
