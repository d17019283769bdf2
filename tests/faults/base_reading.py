"""Reads RocksDB folders by RocksDB's own C API, out of the jar that pyspark ships. Nothing of Holdfast is loaded here.

    python base_reading.py FOLDER=OUT …

Writes all entries of each FOLDER into the Arrow file OUT: key and value, as they are stored.
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa

_POINTER, _SIZE = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
_ERROR = ctypes.POINTER(ctypes.c_char_p)
#: Functions of rocksdb/c.h: what they give, what they take.
_SIGNATURES = {
    "rocksdb_options_create": (_POINTER, []),
    "rocksdb_open_for_read_only": (_POINTER, [_POINTER, ctypes.c_char_p, ctypes.c_ubyte, _ERROR]),
    "rocksdb_readoptions_create": (_POINTER, []),
    "rocksdb_create_iterator": (_POINTER, [_POINTER, _POINTER]),
    "rocksdb_iter_seek_to_first": (None, [_POINTER]),
    "rocksdb_iter_valid": (ctypes.c_ubyte, [_POINTER]),
    "rocksdb_iter_next": (None, [_POINTER]),
    "rocksdb_iter_key": (_POINTER, [_POINTER, _SIZE]),
    "rocksdb_iter_value": (_POINTER, [_POINTER, _SIZE]),
    "rocksdb_iter_get_error": (None, [_POINTER, _ERROR]),
    "rocksdb_iter_destroy": (None, [_POINTER]),
    "rocksdb_close": (None, [_POINTER]),
}


def library(folder: Path) -> ctypes.CDLL:
    """RocksDB, unpacked into a folder."""
    spark = importlib.util.find_spec("pyspark")  # its folder alone: to load it takes longer than to read
    assert spark is not None and spark.origin is not None
    (jar,) = (Path(spark.origin).parent / "jars").glob("rocksdbjni-*.jar")
    name = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}[platform.machine()]
    with zipfile.ZipFile(jar) as packed:
        loaded = ctypes.CDLL(packed.extract(name, folder))
    for function, (gives, takes) in _SIGNATURES.items():
        getattr(loaded, function).restype = gives
        getattr(loaded, function).argtypes = takes
    return loaded


def entries(rocksdb: ctypes.CDLL, folder: str) -> pa.RecordBatch:
    """All keys and values, in order."""
    error = ctypes.c_char_p()
    opened = rocksdb.rocksdb_open_for_read_only(
        rocksdb.rocksdb_options_create(), folder.encode(), 0, ctypes.byref(error)
    )
    if error.value:
        raise SystemExit(f"{folder}: {error.value.decode()}")
    keys, values, length = [], [], ctypes.c_size_t()
    cursor = rocksdb.rocksdb_create_iterator(opened, rocksdb.rocksdb_readoptions_create())
    rocksdb.rocksdb_iter_seek_to_first(cursor)
    while rocksdb.rocksdb_iter_valid(cursor):
        at = rocksdb.rocksdb_iter_key(cursor, ctypes.byref(length))
        keys.append(ctypes.string_at(at, length.value))
        at = rocksdb.rocksdb_iter_value(cursor, ctypes.byref(length))
        values.append(ctypes.string_at(at, length.value))
        rocksdb.rocksdb_iter_next(cursor)
    rocksdb.rocksdb_iter_get_error(cursor, ctypes.byref(error))
    if error.value:
        raise SystemExit(f"{folder}: {error.value.decode()}")
    rocksdb.rocksdb_iter_destroy(cursor)
    rocksdb.rocksdb_close(opened)
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"])


def main(*wanted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rocksdb = library(Path(folder))
        for one in wanted:
            source, _, target = one.partition("=")
            found = entries(rocksdb, source)
            with pa.OSFile(target, "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
                writer.write_batch(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
