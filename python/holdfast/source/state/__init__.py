"""A state of a checkpoint as a table: ``spark.read.format("holdfast-state")`` after ``hf.register_sources(spark)``."""

from __future__ import annotations

from holdfast.source.state.source import FORMAT, StateDataSource

__all__ = ["FORMAT", "StateDataSource"]
