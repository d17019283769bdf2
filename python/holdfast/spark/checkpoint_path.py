"""A query's checkpoint under the name by which Spark knows it."""

from __future__ import annotations

from holdfast.storage import local_path, store_uri


def spark_path(checkpoint: str) -> str:
    """As Spark must be told it, so that both mean the same place whatever Hadoop's default is.

    Parameters
    ----------
    checkpoint
        As it was given: a folder, also of HDFS (``hdfs://…``), or a prefix in a bucket (``s3a://…``).
    """
    return checkpoint if "://" in store_uri(checkpoint) else f"file:{local_path(checkpoint)}"
