"""A checkpoint folder as Spark's default provider leaves it, written without Spark: for tests that need no JVM.

What real Spark writes is compared in tests/integration/test_checkpoints_in_spark.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

from holdfast.spark_files.lz4_blocks import xxh32

CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
}


class SparkFiles:
    """Spark's side of a query with one stateful operator in one partition."""

    def __init__(self, folder: Path, query_id: str) -> None:
        self.folder = folder
        self.write("metadata", json.dumps({"id": query_id}))
        described = {
            "operatorInfo": {"operatorId": 0, "operatorName": "applyInPandasWithState"},
            "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}],
        }
        self.write("state/0/_metadata/metadata", "v1\n" + json.dumps(described))

    def commit(
        self,
        batch_id: int,
        handles: Iterable[str],
        *,
        watermark_ms: int = 0,
        snapshot: bool = False,
        conf: object = CONF,
        timestamp_ms: int | None = None,
        began_ms: int = 0,
    ) -> None:
        """A batch that ran, after which these are the texts that have changed; labels are their places. ``began_ms``:
        the watermark that it began with.
        """
        self.plan(batch_id, conf=conf, timestamp_ms=timestamp_ms, began_ms=began_ms)
        name = f"state/0/0/{batch_id + 1}.{'snapshot' if snapshot else 'delta'}"
        self.write(name, lz4_stream(content(handles)))
        self.write(f"commits/{batch_id}", "v1\n" + json.dumps({"nextBatchWatermarkMs": watermark_ms}))

    def plan(self, batch_id: int, *, conf: object = CONF, timestamp_ms: int | None = None, began_ms: int = 0) -> None:
        """A batch that has begun."""
        time_ms = 1_800_000_000_000 + batch_id if timestamp_ms is None else timestamp_ms
        planned = {"batchWatermarkMs": began_ms, "batchTimestampMs": time_ms, "conf": conf}
        self.write(f"offsets/{batch_id}", f'v1\n{json.dumps(planned)}\n{{"offset":{batch_id}}}\n-')

    def write(self, name: str, data: str | bytes) -> None:
        """A file below the checkpoint."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def content(handles: Iterable[str]) -> bytes:
    """Of a file of the state, in which these are the texts; labels are their places."""
    rows = [(struct.pack("<QQ", 0, label), state_row(text)) for label, text in enumerate(handles)]
    pairs = b"".join(struct.pack(">i", len(k)) + k + struct.pack(">i", len(v)) + v for k, v in rows)
    return pairs + struct.pack(">i", -1)


def state_row(text: str) -> bytes:
    """struct<groupState: struct<handle: string>, timeoutTimestamp: long> as an UnsafeRow."""
    content = text.encode()
    inner = struct.pack("<QQ", 0, 16 << 32 | len(content)) + content + bytes(-len(content) % 8)
    return struct.pack("<QQq", 0, 24 << 32 | len(inner), -1) + inner


def lz4_stream(data: bytes, block_bytes: int = 1 << 15) -> bytes:
    """Blocks that are stored, not compressed, and the empty one at the end."""
    pieces = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)]
    return b"".join(
        b"LZ4Block"
        + struct.pack("<BIII", 0x15, len(piece), len(piece), xxh32(piece) & 0x0FFFFFFF if piece else 0)
        + piece
        for piece in [*pieces, b""]
    )
