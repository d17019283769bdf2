"""Makes the delta of a batch durable: a small one in one go, a large one piece by piece through a local file. So no
array outgrows Arrow's 2 GiB, and memory holds one piece at a time.

A crash leaves a stray file in storage or a work folder: nobody has been told of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from holdfast._core import Store
from holdfast.checkpoint.delta_file import (
    LARGE_BYTES,
    DeltaIdentity,
    DeltaWriter,
    encode_delta,
    give_back,
    ref_of,
    ref_of_file,
)
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import DeltaRef
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.slot_context import SlotContext

#: Above this, one piece goes through a file too: encoding it in memory takes twice its size.
IN_MEMORY_MAX_BYTES = LARGE_BYTES


def taken(store: Store) -> Iterator[pa.RecordBatch]:
    """What ``store`` changed since it was last asked, in pieces; at least one, which may be empty."""
    yield pa.record_batch(store.take_delta())
    while store.dirty_bytes:
        yield pa.record_batch(store.take_delta())


def store_delta(context: SlotContext, deltas: DeltaReader, store: Store, identity: DeltaIdentity) -> DeltaRef:
    """Takes what the batch changed and makes it durable.

    Raises
    ------
    Unavailable
        Storage, or the local disk, did not take it.
    """
    pieces = taken(store)
    first = next(pieces)
    name = context.stored(delta_name(identity.sequence, identity.version_id))
    if store.dirty_bytes or first.nbytes > IN_MEMORY_MAX_BYTES:
        pieces = chain([first], pieces)
        del first  # it is written and gone before the next is made
        return _store_file(context, deltas, identity, name, pieces)
    data = encode_delta(identity, [first], context.settings.delta_compression)
    ref = ref_of(identity, data)
    context.file_store.put(name, data)
    deltas.keep_copy(ref, memoryview(data))
    return ref


def _store_file(
    context: SlotContext, deltas: DeltaReader, identity: DeltaIdentity, name: str, pieces: Iterator[pa.RecordBatch]
) -> DeltaRef:
    with context.folder.new_work() as work:
        path = work.child("delta.arrow")
        with context.folder.errors(path):
            writer = DeltaWriter(path, identity, context.settings.delta_compression)
            for piece in pieces:
                writer.write(piece)
                size_bytes = piece.nbytes
                del piece
                give_back(size_bytes)
            writer.close()
            ref = ref_of_file(identity, path)
        context.file_store.put_file(name, path)
        deltas.keep_file(ref, path)
        return ref
