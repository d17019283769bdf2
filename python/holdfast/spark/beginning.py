"""What an operator may begin with, other than nothing, as the driver is told it. docs/rfcs/0015"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import SparkSession

from holdfast.checkpoint import OperatorRecord
from holdfast.settings import Settings
from holdfast.spark.plan import OperatorPlan
from holdfast.storage import StorageOptions


class Beginning(ABC):
    """State that is there before an operator's first batch: :class:`holdfast.Restore`."""

    @abstractmethod
    def begin(self, session: SparkSession, plan: OperatorPlan) -> OperatorRecord:
        """What is declared, as the operator goes on from that state: with its origin, and the ids of its states.

        Raises
        ------
        InvalidRequest
            There is no such state.
        Incompatible
            The operator contradicts what is recorded of it.
        """


def storage_of(session: SparkSession | None) -> StorageOptions:
    """How buckets are reached, by a session's settings, or those of the one that is active; none is started for it."""
    found = session if session is not None else SparkSession.getActiveSession()
    return StorageOptions.of(Settings.from_mapping(dict(found.conf.getAll) if found is not None else {}))
