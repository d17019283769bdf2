"""Spark's own files of a query's checkpoint, its logs and its state, as far as they are read without Spark.

Formats of Spark's, docs/formats/spark_state.md. Nothing here is written; what is deleted: stale_snapshots.py.
"""
