"""The arrows between the rooms: who may know whom. ARCHITECTURE.md draws them; this holds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.tidy.sources import PACKAGE, ROOT, cpp_code, files, imports, name, text

# Foreign libraries, and the only rooms of the package that may import them.
FOREIGN = {
    "pyspark": {"spark", "source", "sink"},
    "py4j": set(),
    "confluent_kafka": {"kafka", "source/kafka", "sink/kafka", "testing"},
    "kafka": {"kafka", "testing"},
    "pyarrow.fs": {"storage"},
    "obstore": {"storage"},
    "requests": {"storage"},
    "fsspec": set(),
    "datasketches": {"state"},
}

# All that is imported of kafka-python, most of it not meant for others: a new one is thought about, and so is each of
# its minor releases, below which pyproject.toml pins it.
KAFKA_PYTHON = {
    "kafka/requests.py": {
        "kafka.protocol.metadata.ApiVersionsRequest",
        "kafka.protocol.metadata.FindCoordinatorRequest",
        "kafka.protocol.metadata.MetadataRequest",
        "kafka.protocol.producer.transaction.EndTxnRequest",
        "kafka.protocol.producer.transaction.InitProducerIdRequest",
        "kafka.protocol.producer.transaction.WriteTxnMarkersRequest",
        "kafka.protocol.admin.transactions.DescribeProducersRequest",
        "kafka.protocol.admin.transactions.DescribeTransactionsRequest",
        "kafka.protocol.admin.transactions.ListTransactionsRequest",
        "kafka.protocol.consumer.FetchRequest",
        "kafka.protocol.consumer.ListOffsetsRequest",
        "kafka.errors.CorruptRecordError",
        "kafka.record.memory_records.MemoryRecords",
    },
    "kafka/wire.py": {
        "kafka.errors",
        "kafka.errors.SaslAuthenticationFailedError",
        "kafka.net.manager.KafkaConnectionManager",
        "kafka.net.sasl.oauth.AbstractTokenProvider",
        "kafka.net.selector.NetworkSelector",
    },
}

# The rooms of the package, and the rooms that each may import. Single files at the top are rooms of their own.
LEAVES = {"arrow", "errors", "clock", "units", "fault_points", "trials", "folders", "container"}
ROOMS = {
    "arrow": set(),
    "errors": set(),
    "clock": set(),
    "fault_points": set(),
    "trials": set(),
    "container": set(),
    "units": {"errors"},
    "folders": {"errors"},
    "sealed": {"errors", "_core"},
    "settings": {"errors", "units", "folders"},
    "rocksdb_library": {*LEAVES, "_core"},
    "storage": {*LEAVES},
    "state": {*LEAVES, "_core"},
    "processor": {*LEAVES, "_core", "state"},
    "kafka": {*LEAVES},
    "savepoint": {*LEAVES, "_core", "sealed", "storage"},
    "spark_files": {*LEAVES, "storage"},
    "commit": {*LEAVES, "sealed", "storage", "spark_files"},
    "checkpoint": {*LEAVES, "_core", "sealed", "storage", "savepoint", "rocksdb_library"},
    "spark": {
        *(*LEAVES, "_core", "settings", "storage", "commit", "checkpoint", "state", "processor", "rocksdb_library"),
        "spark_files",
    },
}
# Rooms at the top may import everything below them; nothing below imports them.
TOP = {"__init__", "__main__", "cli", "doctor", "inspect", "testing", "source", "sink"}

# The rooms of the core, and the rooms whose headers each may include. cpp/include/holdfast is open to all.
CPP_ROOMS = {
    "include": set(),
    "container": {"container"},
    "codec": {"codec"},
    "overlay": {"container", "codec", "overlay"},
    "state": {"container", "codec", "overlay", "state"},
    "rocksdb": {"container", "codec", "rocksdb"},
    "bindings": {"container", "codec", "overlay", "state", "rocksdb", "bindings"},
}


def _room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _is(module: str, library: str) -> bool:
    return module == library or module.startswith(library + ".")


@pytest.mark.parametrize("library", FOREIGN)
def test_a_foreign_library_is_known_to_its_rooms_only(library: str) -> None:
    strangers = [
        f"{name(path)}:{line} imports {module}"
        for path in files(".py", under="python/holdfast")
        if not any(path.is_relative_to(PACKAGE / room) for room in FOREIGN[library])
        for line, module in imports(path)
        if _is(module, library)
    ]
    assert not strangers, f"only {sorted(FOREIGN[library])} may import {library}: {strangers}"


def test_what_is_imported_of_kafka_python_is_known_by_name() -> None:
    found: dict[str, set[str]] = {}
    for path in files(".py", under="python/holdfast"):
        for _, module in imports(path):
            if _is(module, "kafka"):
                found.setdefault(str(path.relative_to(PACKAGE)), set()).add(module)
    strangers = {where: modules - KAFKA_PYTHON.get(where, set()) for where, modules in found.items()}
    assert not any(strangers.values()), f"imports of kafka-python that KAFKA_PYTHON does not name: {strangers}"
    assert found == KAFKA_PYTHON, "KAFKA_PYTHON names what nobody imports any more"
    pinned = re.findall(r"kafka-python(\S+?)\"", text(ROOT / "pyproject.toml"))
    assert pinned
    for bounds in pinned:
        assert re.fullmatch(r">=(\d+)\.(\d+)\.\d+,<\d+\.\d+", bounds), bounds
        least, most = re.findall(r"(\d+)\.(\d+)", bounds)
        assert (int(most[0]), int(most[1])) == (int(least[0]), int(least[1]) + 1), bounds


def test_rooms_import_downwards_only() -> None:
    upward = []
    for path in files(".py", under="python/holdfast"):
        room = _room(path)
        if room in TOP:
            continue
        assert room in ROOMS, f"{name(path)}: a new room; draw its arrows in {name(Path(__file__))} and ARCHITECTURE.md"
        for line, module in imports(path):
            if not _is(module, "holdfast"):
                continue
            target = module.split(".")[1]
            if target != room and target not in ROOMS[room]:
                upward.append(f"{name(path)}:{line} ({room}) imports {module}")
    assert not upward, "\n".join(upward)


def test_headers_are_included_downwards_only() -> None:
    upward = []
    for path in files(".cc", ".h", under="cpp"):
        room = path.relative_to(ROOT / "cpp").parts[0]
        assert room in CPP_ROOMS, f"{name(path)}: a new room; draw its arrows in {name(Path(__file__))}"
        for header in re.findall(r'^#include "([^"]+)"', text(path), re.MULTILINE):
            target = header.split("/")[0]
            if target != "holdfast" and target not in CPP_ROOMS[room]:
                upward.append(f"{name(path)} includes {header}")
    assert not upward, "\n".join(upward)


def test_rocksdb_is_known_to_its_room_only() -> None:
    strangers = []
    for path in files(".cc", ".h", under="cpp"):
        parts = path.relative_to(ROOT / "cpp").parts
        if parts[0] == "rocksdb":
            continue
        if re.search(r"\brocksdb_\w+\s*\(", cpp_code(path)):
            strangers.append(f"{name(path)} calls RocksDB")
        if "rocksdb_base.h" in text(path) and parts != ("bindings", "rocksdb.cc") and parts[0] != "include":
            strangers.append(f"{name(path)} includes rocksdb_base.h")
    assert not strangers, strangers


def test_python_is_known_to_the_bindings_only() -> None:
    strangers = [
        name(path)
        for path in files(".cc", ".h", under="cpp")
        if "pybind11" in cpp_code(path) and path.relative_to(ROOT / "cpp").parts[0] != "bindings"
    ]
    assert not strangers, strangers
