"""A query's checkpoint under the name by which Spark knows it."""

from __future__ import annotations

from holdfast.errors import InvalidRequest
from holdfast.storage import check_checkpoint_name, local_path, store_uri


def spark_path(checkpoint: str) -> str:
    """As Spark must be told it, so that both mean the same place whatever Hadoop's default is.

    Parameters
    ----------
    checkpoint
        As it was given: a folder, also of HDFS (``hdfs://…``), or a prefix in a bucket (``s3a://…``).
    """
    return checkpoint if "://" in store_uri(checkpoint) else f"file:{local_path(checkpoint)}"


def check_as_given(checkpoint: str) -> None:
    """Of a checkpoint that Spark is told as it was given: whether Spark makes of it the place that Holdfast looks at.

    Raises
    ------
    InvalidRequest
        See :func:`holdfast.storage.check_checkpoint_name`; or a path that begins with what is a scheme or a host for
        Hadoop.
    """
    check_checkpoint_name(checkpoint)
    path = local_folder(checkpoint)
    if path is None or checkpoint.startswith("file:"):
        return
    if checkpoint.startswith("//") or ":" in checkpoint.partition("/")[0]:
        taken_for = "a host" if checkpoint.startswith("/") else "a scheme"
        raise InvalidRequest(
            f"checkpoint {checkpoint!r} begins with what is {taken_for} for Spark: expected the whole path, {path!r}"
        )


def local_folder(checkpoint: str) -> str | None:
    """The folder of this machine that a checkpoint is; None: it is of another file system, whether known or not."""
    try:
        return local_path(checkpoint)
    except InvalidRequest:
        return None
