"""``format("holdfast-kafka")``: the data source that Spark looks up by name."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.errors import InvalidRequest
from holdfast.kafka.client import confluent_kafka
from holdfast.source.kafka.batch import KafkaBatchReader
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.stream import stream_reader

FORMAT = "holdfast-kafka"

# As in Spark's own Kafka source; `records.record_batch` makes the same in Arrow.
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


class KafkaDataSource(DataSource):
    """Reads Kafka topics, as batches or as a stream. docs/guide/kafka_source.md has the options."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Spark: the columns. The first that it asks for, at ``load()``: Unavailable without Kafka's client."""
        confluent_kafka()
        texts = {name.lower(): value for name, value in self.options.items()}
        include_headers = texts.get("includeheaders", "false").strip().lower() == "true"
        return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark: for ``spark.read``."""
        self._refuse_other(schema)
        return KafkaBatchReader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Spark: for ``spark.readStream``."""
        self._refuse_other(schema)
        return stream_reader(SourceOptions.parse(self.options, streaming=True))

    def _refuse_other(self, schema: StructType) -> None:
        fixed = self.schema()
        if schema != fixed:
            raise InvalidRequest(
                f"A Kafka source has fixed columns, {fixed.simpleString()}; found {schema.simpleString()}."
                " Remove schema(...), and cast key and value in the DataFrame"
            )


def register(spark: SparkSession) -> None:
    """Make ``format("holdfast-kafka")`` known to a session. Harmless when repeated.

    Parameters
    ----------
    spark
        The session.
    """
    spark.dataSource.register(KafkaDataSource)
