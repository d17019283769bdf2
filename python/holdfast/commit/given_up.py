"""A batch whose output is visible, and which Spark gave up before it was committed.

Spark can repartition its own state in a checkpoint, in a batch of its own (docs/rfcs/0015). Told not to enforce
exactly-once sinks, it does so over a batch that is not committed, and what that has read is read again by the next one.
Where the batch was rolled back, offsets and all, the repartition even has its number. Spark's logs show both.
"""

from __future__ import annotations

from holdfast.errors import Incompatible
from holdfast.spark_files.logs import planned_batch, repartitions
from holdfast.storage import FileStore


def check_not_given_up(store: FileStore, batch_id: int) -> None:
    """Of the newest batch that has a commit record, before anything goes on behind it.

    Raises
    ------
    Incompatible
        Spark gave it up: its rows would be written twice.
    """
    said = f"output of batch {batch_id} is visible, by its record, and Spark has given that batch up: "
    again = (
        f"What it has read would be read and written again. Nothing was changed. To write it once more, under "
        f"identities of its own, run `holdfast fork {store.uri}`"
    )
    before, own, after = (planned_batch(store, batch_id + step) for step in (-1, 0, 1))
    if repartitions(before, own):
        raise Incompatible(
            f"{said}{store.uri} was rolled back, and its state repartitioned, in a batch of that number. {again}; or "
            f"put back a copy of the checkpoint in which Spark has committed the batch"
        )
    if own is None or after is None:
        return
    if repartitions(own, after) and own.timestamp_ms != after.timestamp_ms:
        raise Incompatible(
            f"{said}the state in {store.uri} was repartitioned with enforceExactlyOnceSink = False before the batch "
            f"was committed. {again}. Or take the repartition back: delete commits/{batch_id} and later, "
            f"offsets/{batch_id + 1} and later, each {batch_id + 2}.zip below state/, however deep (a join's lie "
            f"deeper), and in a local folder the hidden .crc file beside each; start the query as it was, until "
            f"Spark has committed batch {batch_id}; then repartition without that option (docs/guide/rescale.md)"
        )
