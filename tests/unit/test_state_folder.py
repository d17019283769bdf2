"""Where the state of a checkpoint's query is looked for, and what is said where nobody can look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import InvalidRequest
from holdfast.inspect.state_folder import find_state_folder


def test_nobody_says_to_have_looked_for_state_in_a_bucket() -> None:
    """What was found in it and beside it was said, and to give ``state=``, which nobody can at a shell."""
    in_a_bucket: Any = SimpleNamespace(uri="s3://bucket/checkpoint", local_path=lambda name: None)
    with pytest.raises(InvalidRequest) as refused:
        find_state_folder(in_a_bucket, "0a1b", None, None)
    assert str(refused.value) == (
        "which folder has the state of s3://bucket/checkpoint? it is looked for in local folders only: give the folder "
        "of spark.holdfast.checkpoint.dir as state= (--state at a shell, option folder of a table in Spark)"
    )
