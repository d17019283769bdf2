"""Spark's own state of a query, where its default provider keeps it: the handles, read without Spark.

HDFSBackedStateStoreProvider has a folder for each operator and partition, with ``<version>.delta``: what a batch
changed, and now and then ``<version>.snapshot``: all. A file is a compressed stream of (length of key, key, length of
value or -1, value), big-endian, and -1 at the end; keys and values are Spark's UnsafeRow, little-endian. The version
after batch N is N + 1, and each partition has each version, changed or not.

A snapshot may be stale: of an attempt at its batch that another one followed, which wrote the delta anew, but not the
snapshot (docs/rfcs/0020). So one that contradicts the delta of its own version is no way to any version.

What the reader does not know for sure (another provider, encoding or codec) it refuses: then Spark reads
(`holdfast.spark.state_reader`). A handle is sealed, so what was read is a handle as it was written, or none.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Corrupt, Incompatible
from holdfast.spark_files.logs import CommittedBatch
from holdfast.spark_files.lz4_blocks import decompress
from holdfast.storage import FileStore

_CONF = "spark.sql.streaming.stateStore."
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
#: What the conf of a batch must say, and what it says where nothing is there.
_KNOWN: dict[str, tuple[str, str]] = {
    "providerClass": (_PROVIDER, _PROVIDER),
    "compression.codec": ("lz4", "lz4"),
    "encodingFormat": ("unsaferow", "unsaferow"),
    "rowChecksum.enabled": ("false", "false"),
}
_OPERATOR = "applyInPandasWithState"
#: In each value that is a handle, in any version of its format.
HANDLE_FORMAT = b'"format":"holdfast.handle"'
_FILE = re.compile(r"state/(\d+)/(\d+)/(\d+)\.(delta|snapshot)")
_OF_OPERATOR = re.compile(r"state/(\d+)/")
_OF_PARTITION = re.compile(r"state/(\d+)/(\d+)/")
_DESCRIBED = re.compile(r"state/(\d+)/_metadata/(?:.+/)?[^./][^/]*")
_METADATA = re.compile(r"state/(\d+)/_metadata/metadata")
_ROWS_BYTES_MAX = 1 << 30

#: What is told where files of Spark's are missing that each batch needs.
CUT_OFF = (
    "Files of Spark's checkpoint are missing, as of a copy that was cut off: copy it again, or restore it from a backup"
)

#: Of a batch and the number of a stateful operator: the texts of all states. Spark's own reader.
SparkReader = Callable[[CommittedBatch, int], list[str]]

Rows = dict[bytes, bytes]
Changes = list[tuple[bytes, bytes | None]]  #: value None: the key is gone


@dataclass(frozen=True)
class SparkOperator:
    """A stateful operator of the query, as Spark numbers them. ``partitions`` None: not told by this Spark."""

    number: int
    name: str
    partitions: int | None

    def partition_numbers(self, otherwise: int) -> range:
        """There are ``otherwise`` where Spark does not say it of the operator."""
        return range(otherwise if self.partitions is None else self.partitions)


def unreadable(conf: Mapping[str, Any]) -> str | None:
    """Why state that was written by this conf is not read here; None: it is."""
    for key, (known, otherwise) in _KNOWN.items():
        found = str(conf.get(_CONF + key, otherwise))
        if found != known:
            return f"{_CONF}{key} is {found}"
    return None


def contradicts(snapshot: Changes, delta: Changes) -> bool:
    """Whether a snapshot is not of the attempt that wrote the delta of its version: each attempt of Holdfast's gives
    the slots that it had other versions.
    """
    rows = dict(snapshot)
    return any(rows.get(key) != value for key, value in dict(delta).items())


def parsed(data: bytes, where: str) -> Changes:
    """The content of a file; Corrupt where it is none."""
    return list(_parse(decompress(data, where, _ROWS_BYTES_MAX), where))


class SparkState:
    """The state store files of a checkpoint. Owner: one thread."""

    def __init__(self, store: FileStore, files: Set[str] | None = None) -> None:
        """``files``: names of all files in ``state/``; by default they are listed."""
        self._store = store
        self._files = {file.name for file in store.list("state/")} if files is None else files
        self._rows: dict[tuple[int, int, int], Rows] = {}

    def operators(self) -> list[SparkOperator]:
        """Those whose state may be handles; by number."""
        found: dict[int, SparkOperator] = {}
        for name in self._files:
            if match := _FILE.fullmatch(name):
                found.setdefault(int(match.group(1)), SparkOperator(int(match.group(1)), _OPERATOR, None))
        for name in sorted(self._files):
            if match := _METADATA.fullmatch(name):
                found[int(match.group(1))] = self._described(name, int(match.group(1)))
        return [found[number] for number in sorted(found) if found[number].name == _OPERATOR]

    @property
    def numbers(self) -> Set[int]:
        """Of all stateful operators of which there is anything."""
        return {int(match.group(1)) for name in self._files if (match := _OF_OPERATOR.match(name))}

    def lacking(self, operator: SparkOperator, partitions: int) -> int | None:
        """The first partition of an operator of which there is nothing. Spark writes each with every batch, and reads
        those that it finds. ``partitions`` as in :meth:`texts`.
        """
        files = (_OF_PARTITION.match(name) for name in self._files)
        found = {int(match[2]) for match in files if match and int(match[1]) == operator.number}
        return next((number for number in operator.partition_numbers(partitions) if number not in found), None)

    def unknown(self, *, readable: bool) -> Set[int]:
        """Those of which nothing tells what they are: Spark's description of them is not there, nor, where their state
        can be read here, a file of it.
        """
        known = (_DESCRIBED, _FILE) if readable else (_DESCRIBED,)
        matches = (pattern.fullmatch(name) for name in self._files for pattern in known)
        return self.numbers - {int(match.group(1)) for match in matches if match}

    def texts(self, operator: SparkOperator, version: int, partitions: int) -> Iterator[str]:
        """The handles' texts that the operator has at a version, in all its partitions.

        Parameters
        ----------
        partitions
            How many there are, where Spark does not say it of the operator.

        Raises
        ------
        Corrupt
            A file that leads to the version is missing or damaged.
        Incompatible
            The state is not laid out as that of applyInPandasWithState.
        """
        for partition in operator.partition_numbers(partitions):
            for value in self.rows(operator.number, partition, version).values():
                text = _handle_text(value, f"state/{operator.number}/{partition} in {self._store.uri}")
                if text is not None:
                    yield text

    def texts_after(
        self, operator: SparkOperator, batch: CommittedBatch, spark_reader: SparkReader | None
    ) -> list[str]:
        """Those after a batch: read here where its conf is known, otherwise by Spark. Raises as :meth:`texts`."""
        if unreadable(batch.conf) is None:
            return list(self.texts(operator, batch.batch_id + 1, batch.partitions))
        assert spark_reader is not None, "who has none asks whether it is readable"
        return spark_reader(batch, operator.number)

    def rows(self, operator: int, partition: int, version: int) -> Rows:
        """All rows of a partition at a version. Raises as :meth:`texts`."""
        chain: list[int] = []
        rows: Rows = {}
        for at in range(version, 0, -1):
            known = self._rows.get((operator, partition, at))
            if known is not None:
                rows = known
                break
            snapshot = self._sound_snapshot(f"state/{operator}/{partition}/{at}")
            if snapshot is not None:
                rows = self._rows[operator, partition, at] = snapshot
                break
            chain.append(at)
        for at in reversed(chain):
            rows = dict(rows)
            for key, value in self._changes(f"state/{operator}/{partition}/{at}.delta"):
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            self._rows[operator, partition, at] = rows
        return rows

    def _sound_snapshot(self, version: str) -> Rows | None:
        """None: there is none, or it is stale."""
        names = f"{version}.snapshot", f"{version}.delta"
        if names[0] not in self._files:
            return None
        rows = self._changes(names[0])
        if names[1] in self._files and contradicts(rows, self._changes(names[1])):
            return None
        return {key: value for key, value in rows if value is not None}

    def _changes(self, name: str) -> Changes:
        where = f"{name} in {self._store.uri}"
        data = self._store.get(name)
        if data is None:
            raise Corrupt(
                f"{where} is missing: Spark's own state of the batch cannot be had. If a query runs on the checkpoint, "
                f"it may have cleaned away what it no longer retains: read a newer batch. Otherwise: {CUT_OFF}"
            )
        return parsed(data, where)

    def _described(self, name: str, number: int) -> SparkOperator:
        data = self._store.get(name) or b""
        try:
            version, _, text = data.decode().partition("\n")
            document = json.loads(text)
            known = document["operatorInfo"]
            if version not in ("v1", "v2") or int(known["operatorId"]) != number:
                raise ValueError(f"version {version!r}, operator {known['operatorId']!r}")
            if known["operatorName"] != _OPERATOR:
                return SparkOperator(number, str(known["operatorName"]), None)  # a join has stores of other names
            (store,) = [one for one in document["stateStoreInfo"] if one["storeName"] == "default"]
            return SparkOperator(number, _OPERATOR, int(store["numPartitions"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{name} in {self._store.uri} is not what Spark says of an operator: {error!r}") from error


def _parse(content: bytes, where: str) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0

    def length() -> int:
        nonlocal at
        if len(content) - at < 4:
            raise Corrupt(f"{where} is damaged: it ends before its end is said")
        (found,) = struct.unpack_from(">i", content, at)
        at += 4
        return int(found)

    def taken(count: int) -> bytes:
        nonlocal at
        if not 0 <= count <= len(content) - at:
            raise Corrupt(f"{where} is damaged: expected {count} bytes at {at}, {len(content) - at} are left")
        at += count
        return content[at - count : at]

    while (key_bytes := length()) != -1:
        key = taken(key_bytes)
        value_bytes = length()
        yield key, None if value_bytes == -1 else taken(value_bytes)


def _handle_text(value: bytes, where: str) -> str | None:
    """The text in ``struct<groupState: struct<handle: string>, …>``; None: the group has no state."""
    row = _field(value, 0, where)
    text = None if row is None else _field(row, 0, where)
    if text is None:
        return None
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Incompatible(f"{where}: expected a handle, found what is no text ({error})") from error


def _field(row: bytes, number: int, where: str) -> bytes | None:
    """A field of variable length of an UnsafeRow of fewer than 65 fields: a word of null bits, a word a field."""
    if len(row) < 8 * (number + 2) or len(row) % 8:
        raise Incompatible(f"{where}: expected a row with a handle, found one of {len(row)} bytes")
    nulls, place = struct.unpack_from("<Q", row)[0], struct.unpack_from("<Q", row, 8 * (number + 1))[0]
    if nulls >> number & 1:
        return None
    offset, size = place >> 32, place & 0xFFFFFFFF
    if offset < 8 * (number + 2) or offset + size > len(row):
        raise Incompatible(f"{where}: expected a row with a handle, found one whose field lies outside it")
    return row[offset : offset + size]
