"""Whether a batch has the state of all operators of its query that begin with that of an earlier one.

One that no rows have reached has taken nothing over yet, and Spark has no version of it. What is made of such a batch
would leave it out, and whoever begins with that would have it begin with nothing.
"""

from __future__ import annotations

from holdfast.checkpoint.generation import not_begun
from holdfast.errors import Incompatible
from holdfast.inspect.committed import CommittedState
from holdfast.storage import FileStore


def check_all_begun(committed: CommittedState, state: FileStore, query_id: str, call: str) -> None:
    """Of the operators in a batch.

    Parameters
    ----------
    state
        The store of the operators' state.
    call
        For the message.

    Raises
    ------
    Incompatible
        Spark has an operator without state, and there is one that has not begun: says which.
    """
    if not committed.without_state:
        return
    waiting = not_begun(state, query_id, committed.handles)
    if waiting:
        raise Incompatible(
            f"{call}: batch {committed.batch.batch_id} has nothing yet of operator {', '.join(map(repr, waiting))} "
            f"of query {query_id}, which begins with the state of an earlier query, and has taken over none of it: no "
            f"rows have reached it. It would be left out. Start the query, until a batch with rows of it is committed"
        )
