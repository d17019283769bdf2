"""State that Spark's own operators keep becomes that of a query of Holdfast, which goes on as if it always had been."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_rescale import expected, some, told, totals
from tests.processors import RunningTotal
from tests.spark_sessions import lose_local_folder
from tests.spark_totals import by_spark
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_query_of_apply_in_pandas_with_state_goes_on(
    streams: Callable[[str], FileStream], spark: SparkSession, tmp_path: Path
) -> None:
    """Over a restart without the savepoint and without local files."""
    batches = some(15, 6)
    old, new = streams("old"), streams("new")
    old.write(*batches[:3])
    found = told(old.run(by_spark))
    state = spark.read.format("statestore").load(str(old.checkpoint))
    table = state.selectExpr("key.user", "value.groupState.total AS value")
    given = hf.OperatorTables("totals", {"total": table}, processor=RunningTotal, key="user string", max_parallelism=32)
    made = hf.Savepoint.write(tmp_path / "saved", given)
    users = {row["user"] for batch in batches[:3] for row in batch.to_pylist()}
    assert made.read("totals", "total").read_all().num_rows == len(users)
    new.write(batches[3])
    found += told(new.run(totals(3, restore=hf.Restore(savepoint=tmp_path / "saved"))))
    shutil.rmtree(tmp_path / "saved")
    lose_local_folder(tmp_path)
    new.write(*batches[4:])
    found += told(new.run(totals(3)))
    assert found == expected(batches)
