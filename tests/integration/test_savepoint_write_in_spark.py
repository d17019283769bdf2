"""State that Spark's own operators keep becomes that of a query of Holdfast, which goes on as if it always had been."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.test_rescale import expected, some, told, totals
from tests.processors import RunningTotal
from tests.spark_baskets import KEY, OUTPUT, Basket, Bought, by_transform_with_state, said
from tests.spark_sessions import lose_local_folder
from tests.spark_totals import by_spark
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BOUGHT = pa.schema(
    [
        ("shop", pa.string()),
        ("number", pa.int32()),
        ("product", pa.string()),
        ("size", pa.int32()),
        ("amount", pa.int64()),
    ]
)
#: By state, its columns as Spark's table has them, as docs/guide/rescale.md says.
COLUMNS = {
    "total": ["value.total AS value"],
    "profile": ["value"],
    "items": ["list_element AS value"],
    "sold": ["user_map_key.product AS map_key", "user_map_value.amount AS value"],
    "recent": ["value.value.product AS value", "timestamp_millis(value.ttlExpirationMs) AS expiry"],
    "brief": ["list_element.value.product AS value", "timestamp_millis(list_element.ttlExpirationMs) AS expiry"],
    "prices": [
        "user_map_key AS map_key",
        "user_map_value.value.price AS value",
        "timestamp_millis(user_map_value.ttlExpirationMs) AS expiry",
    ],
}
Batches = list[dict[tuple[str | None, int], list[Bought]]]


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


class Seen(hf.KeyedProcessor):
    """Keeps times, and says nothing."""

    at = hf.ListState(pa.struct([("n", pa.int64()), ("times", pa.list_(pa.timestamp("us", "UTC")))]))

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        pass


def baskets(seed: int, batches: int) -> Batches:
    """Of each batch what each key bought: one row, since Spark gives the rows of a key in no order."""
    draw = random.Random(seed)
    shops, products = (None, "a", "b"), (None, "tea", "jam", "fig")
    return [
        {
            (draw.choice(shops), draw.randrange(4)): [(draw.choice(products), draw.randrange(3), draw.randrange(100))]
            for _ in range(6)
        }
        for _ in range(batches)
    ]


def expected_baskets(batches: Batches, begins_anew: int) -> list[list[tuple[Any, ...]]]:
    """What each key says in each batch, and each timer, which fires in the batch after the one that set it while Spark
    has it, and in the same from batch ``begins_anew`` on, where there is none; what is brief lives for a batch first.
    """
    held: dict[Any, Any] = defaultdict(
        lambda: {"total": 0, "visits": 0, "items": [], "sold": defaultdict(int), "brief": [], "prices": {}}
    )
    found = []
    for number, batch in enumerate(batches):
        if number <= begins_anew:
            for own in held.values():
                own["brief"] = []
        told_now = [(*key, "timer") for key in batches[number - 1]] if 0 < number <= begins_anew else []
        for key, bought in batch.items():
            own = held[key]
            for product, size, amount in bought:
                own["total"] += amount
                own["visits"] += 1
                own["items"].append((product, amount))
                own["sold"][product or "none"] += amount
                own["recent"] = product
                own["brief"].append(product)
                own["prices"][product or "none", size] = amount
            profile = (own["visits"], own["recent"])
            text = said(own["total"], profile, own["items"], own["sold"], own["recent"], own["brief"], own["prices"])
            told_now.append((*key, text))
        found.append(sorted(told_now, key=str))
    return found


def test_a_query_of_transform_with_state_goes_on(
    streams: Callable[[str], FileStream], spark: SparkSession, tmp_path: Path
) -> None:
    """Values, lists, maps and timers, with and without a time to live, of keys of two columns, one of which is null
    here and there. What had expired in Spark does not come back.
    """
    batches = baskets(7, 7)
    tables = [
        pa.Table.from_pylist(
            [dict(zip(BOUGHT.names, (*key, *row), strict=True)) for key, bought in batch.items() for row in bought],
            BOUGHT,
        )
        for batch in batches
    ]
    old, new = streams("old"), streams("new")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")  # else it runs for ever
    old.write(*tables[:4])
    found = old.run(by_transform_with_state)

    def table(state: str) -> Any:
        rows = spark.read.format("statestore").option("stateVarName", state).load(str(old.checkpoint))
        rows = rows.selectExpr("key.*", *COLUMNS[state])
        return rows.where("value IS NOT NULL") if state == "recent" else rows

    timers = spark.read.format("statestore").option("readRegisteredTimers", True).load(str(old.checkpoint))
    due = timers.selectExpr("key.*", "timestamp_millis(expiration_timestamp_ms) AS time")
    given = {**{state: table(state) for state in COLUMNS}, "timers": due}
    assert given["brief"].count()
    operator = hf.OperatorTables("baskets", given, processor=Basket, key=KEY, null_keys=True, max_parallelism=32)
    hf.Savepoint.write(tmp_path / "saved", operator)

    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    new.write(*tables[4:])
    options: dict[str, Any] = {
        "name": "baskets",
        "null_keys": True,
        "ticks": "never",
        "settings": {"maxParallelism": 32},
    }
    restore = hf.Restore(savepoint=tmp_path / "saved")
    found += new.run(hf.keyed(["shop", "number"], Basket(), OUTPUT, restore=restore, **options))
    rows = [sorted((tuple(row.values()) for row in one.to_pylist()), key=str) for one in found]
    assert rows == expected_baskets(batches, 4)


@pytest.mark.parametrize(("rows", "is_of_pandas"), [(0, False), (1000, False), (1000, True)])
def test_a_frame_of_spark_comes_in_its_order_with_its_timestamps(
    spark: SparkSession, tmp_path: Path, rows: int, is_of_pandas: bool
) -> None:
    """Of several partitions, batches and time zones; Spark's own stream knows no timestamp."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    at = "named_struct('n', id, 'times', array(timestamp_micros(id), NULL)) AS value"
    frame = spark.range(0, rows, numPartitions=3).selectExpr("'ada' AS user", at)
    table = frame.pandas_api() if is_of_pandas else frame
    given = hf.OperatorTables("seen", {"at": table}, processor=Seen, key="user string")
    made = hf.Savepoint.write(tmp_path / "saved", given).read("seen", "at").read_all()
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert made["value"].to_pylist() == [
        {"n": n, "times": [epoch + timedelta(microseconds=n), None]} for n in range(rows)
    ]
