"""What an operator may begin with, other than nothing, as the driver is told it. docs/rfcs/0015"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import SparkSession

from holdfast.checkpoint import OperatorRecord
from holdfast.spark.plan import OperatorPlan


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
