"""What became of a transaction, by what its coordinator says of its id now: the one place with arithmetic of epochs.

A producer's epoch X belongs to one transaction here: each has a producer of its own, and is ended by EndTxn version 3,
which leaves the epoch as it is. (`Transactions.fence_as_found` moves it as a time limit does.) So the state of the id,
and by how much its epoch has moved on from X, tell its fate.
What moves an epoch, in Kafka's own words (`TransactionMetadata`, `TransactionCoordinator`, 3.0 to 4.3):

- ``prepareIncrementProducerEpoch``: somebody initialises the id while nothing is open: Empty at one more.
- ``prepareFenceProducerEpoch``, then ``endTransaction``: a time limit, or somebody who initialises the id while it is
  open: PrepareAbort and CompleteAbort at one more; who initialises it goes on to Empty at two more.

The second one changes the epoch *in memory, before it is written down*. When the transaction log cannot be written
(fewer replicas in sync than ``transaction.state.log.min.isr``), the id stays Ongoing at X + 1 (its flag is
``hasFailedEpochFence``), and a coordinator that takes its place still knows it as Ongoing at X: nothing has been
decided. From the outside that looks like a transaction that somebody began who took the id over when ours had ended.
Only its partitions can tell.
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """States of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class Fate(enum.Enum):
    """What became of one transaction."""

    OPEN = "open"
    """As it was prepared."""
    UNDER_WAY = "under way"
    """Its end, or that of a later one, is being written down: ask again."""
    CONTESTED = "contested"
    """Open still, and the coordinator fails to fence it; or it has ended and somebody has begun another: ask again."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    ENDED = "ended"
    """It had ended, by request and not by a time limit, before somebody took the id: committed, if that was asked."""
    SUPERSEDED = "superseded"
    """Aborted by who took the id, and has begun another."""
    FORGOTTEN = "forgotten"
    """The coordinator cannot tell any more: it was aborted, or it had ended before and another one was aborted."""

    @property
    def is_decided(self) -> bool:
        """Whether it cannot change any more."""
        return self not in (Fate.OPEN, Fate.UNDER_WAY, Fate.CONTESTED)

    @property
    def is_over(self) -> bool:
        """Whether the coordinator has nothing left to do for the id. Until then, nobody may write a marker for it."""
        return self.is_decided and self is not Fate.SUPERSEDED


# By how much the epoch has moved: not at all, by one, by more.
_TABLE = {
    # Nothing was ever written at X itself. At X + 1: prepareIncrementProducerEpoch from a Complete state at X. At X + 2
    # and more: fenced while it was open. (Or initialised twice after its end, which only a witness can tell: so where
    # there is none nobody fences the name of what the next start asks for.)
    State.EMPTY: (Fate.FORGOTTEN, Fate.ENDED, Fate.ABORTED),
    # X + 1 as above. X + 2 and more: fenced while it was open, then begun anew.
    State.ONGOING: (Fate.OPEN, Fate.CONTESTED, Fate.SUPERSEDED),
    State.PREPARE_COMMIT: (Fate.UNDER_WAY, Fate.UNDER_WAY, Fate.UNDER_WAY),
    State.PREPARE_ABORT: (Fate.UNDER_WAY, Fate.UNDER_WAY, Fate.UNDER_WAY),
    State.PREPARE_EPOCH_FENCE: (Fate.UNDER_WAY, Fate.UNDER_WAY, Fate.UNDER_WAY),
    # A later one was committed, so this one had ended before.
    State.COMPLETE_COMMIT: (Fate.COMMITTED, Fate.ENDED, Fate.FORGOTTEN),
    # At X: asked for. At X + 1: a time limit, or a fence that has yet to go on to Empty. (Or another that took the id
    # when ours had ended, and asked for its own abort: no writer does, where there is no witness.) At X + 2: the time
    # limit of another that took the id when ours had ended; or the abort of another that took it while ours was open.
    State.COMPLETE_ABORT: (Fate.ABORTED, Fate.ABORTED, Fate.FORGOTTEN),
    # About to be forgotten.
    State.DEAD: (Fate.FORGOTTEN, Fate.FORGOTTEN, Fate.FORGOTTEN),
}


def fate(state: str, moved: int) -> Fate:
    """The fate of a transaction of epoch X, of which the coordinator knows the producer id.

    Parameters
    ----------
    state
        Of its transactional id, now.
    moved
        The epoch that it has now, less X. Below 0: the coordinator knows less than it has said before.
    """
    try:
        row = _TABLE[State(state)]
    except ValueError:
        return Fate.UNDER_WAY  # a state that Kafka may have one day: nothing is concluded from it
    return Fate.UNDER_WAY if moved < 0 else row[min(moved, 2)]
