"""Key and row bytes as version 1 wrote them. The files beside this one are never written again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import _core

HERE = Path(__file__).parent


def golden(name: str) -> tuple[pa.Array, pa.Array]:
    with pa.OSFile(str(HERE / name), "rb") as file, pa.ipc.open_file(file) as reader:
        batch = reader.get_batch(0)
    return batch["value"], batch["bytes"]


@pytest.mark.parametrize(("name", "null_keys"), [("key_v1.arrow", False), ("key_nullable_v1.arrow", True)])
def test_keys_of_version_1(name: str, null_keys: bool) -> None:
    keys, encoded = golden(name)
    codec = _core.KeyCodec(keys.type, null_keys=null_keys)
    assert pa.array(codec.encode(keys)).equals(encoded)
    assert pa.array(codec.decode(encoded)).equals(keys)


def test_rows_of_version_1() -> None:
    values, rows = golden("row_v1.arrow")
    codec = _core.RowCodec(values.type)
    assert pa.array(codec.encode(values)).equals(rows)
    assert pa.array(codec.decode(rows)).equals(values)
