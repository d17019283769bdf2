"""The folders that operators keep their state in, compared with what Spark's checkpoint has versions of, before a query
starts: they are two folders, and one may be deleted, not mounted or named anew without the other.

A slot of which Spark has a version finds that out by itself. One of which it has none begins with nothing, as it does
in a new query; and with another number of slots, or another name, Spark has none of any. So what Spark has committed is
read here: by us where its default provider keeps it, by Spark otherwise. Only where an operator that was declared has
no record of the query, and Spark has more stateful operators than there are records: other starts read nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast.checkpoint import StoredHandle
from holdfast.errors import Corrupt, Incompatible
from holdfast.spark.declared_operators import Known
from holdfast.spark_files.logs import CommittedBatch, committed_batch, committed_batches
from holdfast.spark_files.state import HANDLE_FORMAT, SparkReader, SparkState, unreadable
from holdfast.storage import FileStore

_LOGGER = logging.getLogger("holdfast.spark")


def check_folders(checkpoint: FileStore, query_id: str, known: Known, spark_reader: SparkReader | None) -> None:
    """Whether the state of each operator that Spark has versions of is where this program says.

    Where Spark's state cannot be read, or not all that was declared is remembered, nothing is refused.

    Parameters
    ----------
    known
        What the folders have of the query.
    spark_reader
        Reads state that is not kept by Spark's default provider; None: that is left.

    Raises
    ------
    Incompatible
        There is nothing of an operator where this program says, or it is not declared any more.
    Unavailable
        The checkpoint does not answer.
    """
    if not known.is_all or not known.unrecorded:
        return
    try:
        batches = committed_batches(checkpoint)
        if not batches:
            return
        state, batch = SparkState(checkpoint), committed_batch(checkpoint, batches[-1])
        if len(state.operators()) <= len(known.recorded):
            return
        begun = list(_begun(state, batch, spark_reader))
    except (Corrupt, Incompatible) as error:  # which Spark will say, if it is so
        _LOGGER.info("whether the state of %s is where this program says is not known: %s", checkpoint.uri, error)
        return
    for names in begun:
        if names and not names & known.recorded:
            raise _nothing_there(sorted(names), f"batch {batch.batch_id} in {checkpoint.uri}", query_id, known)


def _begun(state: SparkState, batch: CommittedBatch, spark_reader: SparkReader | None) -> Iterator[set[str]]:
    """Of each of Spark's stateful operators, the names under which it has versions: more than one where it was given
    another name once, and began anew.
    """
    reason = unreadable(batch.conf)
    if reason is not None and spark_reader is None:
        _LOGGER.info("whether the operators' state is where this program says is not known: %s", reason)
        return
    for operator in state.operators():
        texts = state.texts_after(operator, batch, spark_reader)
        yield {StoredHandle.from_text(text).operator for text in texts if HANDLE_FORMAT in text.encode()}


def _nothing_there(names: list[str], where: str, query_id: str, known: Known) -> Incompatible:
    folders = sorted(folder for folder, name in known.unrecorded if name in names)
    name = next((name for name in names if any(name == other for _, other in known.unrecorded)), names[0])
    said = f"operator {name!r}: Spark's state has versions of it, as of {where}, and "
    if folders:
        return Incompatible(
            f"{said}{' and '.join(folders)} has nothing of it (query {query_id}): that is another folder than it had, "
            f"or it was deleted, or is not mounted. Nothing was changed. Put it back, or name the one that it had "
            f"(spark.holdfast.checkpoint.dir); or begin with a new checkpoint: with this one the operator would "
            f"begin with nothing"
        )
    declared = ", ".join(sorted({repr(other) for _, other in known.unrecorded}))
    return Incompatible(
        f"{said}this query declares no operator of that name, but {declared}, of which there is nothing: a name is "
        f"for an operator's whole life. Nothing was changed. Give it the name that it had; or begin with a new "
        f"checkpoint, with restore=hf.Restore(…).operator({name!r}) (docs/guide/rescale.md): with this one the "
        f"operator would begin with nothing"
    )
