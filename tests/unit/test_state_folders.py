"""A state folder that has nothing of what Spark's checkpoint has versions of is told before a query starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark_files import CONF, SparkFiles, content, lz4_stream

import holdfast as hf
from holdfast.checkpoint import Handle, SnapshotRef
from holdfast.checkpoint.names import manifest_name
from holdfast.spark.declared_operators import Known
from holdfast.spark.state_folders import check_folders
from holdfast.spark_files.logs import CommittedBatch
from holdfast.storage import LocalFileStore

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"
LOST = Known(frozenset(), (("/state", "totals"),), True)
RENAMED = Known(frozenset(), (("/state", "sums"),), True)
ROCKSDB = {**CONF, "spark.sql.streaming.stateStore.providerClass": "org.apache.Rocks"}
OF_ANOTHER = '{"some": "state of a program of its own"}'


def text(operator: str = "totals", slot: int = 0) -> str:
    version = f"{9:032x}"
    snapshot = SnapshotRef(9, version, manifest_name(9, version, f"{1009:032x}"), 500, "0" * 16, 10_000)
    return Handle(operator, slot, version, None, 9, -1, snapshots=(snapshot,), origin=9).to_text()


@pytest.fixture
def spark(tmp_path: Path) -> SparkFiles:
    return SparkFiles(tmp_path / "checkpoint", QUERY)


def check(spark: SparkFiles, known: Known, spark_reader: Any = None) -> None:
    check_folders(LocalFileStore(str(spark.folder)), QUERY, known, spark_reader)


def test_a_folder_that_has_nothing_of_an_operator_with_versions_is_refused(spark: SparkFiles) -> None:
    spark.commit(0, [text()])
    spark.commit(1, [text()])
    says = "operator 'totals': Spark's state has versions of it, as of batch 1 in .*/checkpoint, and /state has nothing"
    with pytest.raises(hf.Incompatible, match=says):
        check(spark, LOST)


def test_another_name_of_an_operator_is_refused_with_the_one_that_it_had(spark: SparkFiles) -> None:
    spark.commit(0, [text()])
    says = r"'totals': .*declares no operator of that name, but 'sums', .*hf.Restore\(…\).operator\('totals'\)"
    with pytest.raises(hf.Incompatible, match=says):
        check(spark, RENAMED)


def test_state_that_only_spark_reads_is_read_by_spark(spark: SparkFiles) -> None:
    spark.commit(0, [OF_ANOTHER], conf=ROCKSDB)
    asked: list[tuple[int, int]] = []

    def read(batch: CommittedBatch, operator: int) -> list[str]:
        asked.append((batch.batch_id, operator))
        return [text()]

    check(spark, LOST)  # nobody can say
    with pytest.raises(hf.Incompatible, match="/state has nothing of it"):
        check(spark, LOST, read)
    assert asked == [(0, 0)]


def test_what_is_all_there_reads_nothing(spark: SparkFiles) -> None:
    """A program may have declared operators of other queries too."""
    spark.commit(0, [text()])
    (spark.folder / "state/0/0/1.delta").write_bytes(b"cannot be read")
    check(spark, Known(frozenset({"totals"}), (), True))
    check(spark, Known(frozenset({"totals"}), (("/state", "of another query"),), True))


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ([], LOST),
        ([OF_ANOTHER], LOST),
        ([text()], Known(frozenset(), LOST.unrecorded, False)),
        ([text()], Known(frozenset(), (), True)),
        # Another name was given once, and it began anew, before this was looked at: it has gone on since.
        ([text("totals"), text("sums")], Known(frozenset({"sums"}), (("/state", "other"),), True)),
    ],
    ids=["no rows yet", "another program's", "forgotten", "none declared", "renamed long ago"],
)
def test_what_may_be_right_is_not_refused(spark: SparkFiles, texts: list[str], known: Known) -> None:
    check(spark, LOST)  # nothing is committed
    spark.commit(0, texts)
    described = (spark.folder / "state/0/_metadata/metadata").read_text().replace('"operatorId": 0', '"operatorId": 1')
    spark.write("state/1/_metadata/metadata", described)  # another stateful operator, which has nothing yet
    spark.write("state/1/0/1.delta", lz4_stream(content([])))
    check(spark, known)


def test_what_cannot_be_read_is_left_to_spark(spark: SparkFiles) -> None:
    spark.commit(0, [text()])
    (spark.folder / "state/0/0/1.delta").write_bytes(b"cannot be read")
    check(spark, LOST)
