"""Figures, defaults and names that pages of the guide state are those of the code: of Kafka, and files in storage."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef
from holdfast.checkpoint.lineage import next_handle
from holdfast.checkpoint.maintenance import is_snapshot_due
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.retention import reason_to_delete, view_of
from holdfast.checkpoint.settings import CheckpointSettings
from holdfast.commit import retries, sweeps
from holdfast.kafka import client, renewed, security, transactional_ids, wire
from holdfast.kafka.security import Carried
from holdfast.sink.kafka import fitness, options, sink, transactional_writer, witness_topic
from holdfast.source.kafka import consumers, doubt, reading, stalls
from holdfast.source.kafka.cluster import ANSWER_WITHIN_MS
from holdfast.source.kafka.options import KNOWN_OPTIONS, SourceOptions
from holdfast.storage import StoredFile
from holdfast.units import format_duration

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
SOURCE: dict[str, Any] = {field.name: field.default for field in fields(SourceOptions)}

#: (page, what it says); with the constants that it must agree with.
STATED = [
    ("kafka_source.md", f"for each {reading.BATCH_ROWS:,} rows, or {reading.BATCH_BYTES >> 20} MiB"),
    ("kafka_source.md", "a worker process keeps at most eight" if consumers.IDLE_CONSUMERS_MAX == 8 else "?"),
    ("kafka_source.md", "for ten seconds" if doubt.DOUBT_MS == 10_000 else "?"),
    ("kafka_source.md", "every five seconds" if stalls.LOOK_EVERY_MS == 5_000 else "?"),
    ("kafka_source.md", "longer than half a minute" if stalls.WARN_AFTER_MS == 30_000 else "?"),
    ("kafka_source.md", "again every five minutes" if stalls.WARN_EVERY_MS == 300_000 else "?"),
    ("kafka_source.md", f"| `kafkaConsumer.pollTimeoutMs` | `{SOURCE['poll_timeout_ms']}` |"),
    ("kafka_source.md", f"`{SOURCE['fetch_retries']}`, `{SOURCE['fetch_retry_ms']}` | questions of the driver"),
    ("kafka_source.md", f"it waits up to {format_duration(int(ANSWER_WITHIN_MS))} for brokers"),
    ("kafka_source.md", f"no wait, `{format_duration(SOURCE['max_trigger_delay_ms'])}`"),
    ("kafka_source.md", f"`{SOURCE['group_id_prefix']}-<random id>`"),
    ("kafka_sink.md", f"`message.timeout.ms={options.MESSAGE_TIMEOUT_MS}`"),
    ("kafka_sink.md", f"`transaction.timeout.ms={options.TRANSACTION_TIMEOUT_MS}`"),
    ("kafka_sink.md", f"`linger.ms={options._DEFAULTS['linger.ms']}`"),
    ("kafka_sink.md", f"`queue.buffering.max.kbytes={options._DEFAULTS['queue.buffering.max.kbytes']}`"),
    ("kafka_sink.md", f"`partitioner={options._DEFAULTS['partitioner']}`"),
    ("security.md", f"asks again for {renewed._TRIES * renewed._PAUSE_S:g} s"),
    ("timeouts.md", f"| the start of a transaction | {transactional_writer.INITIALISE_WITHIN_S:g} s |"),
    ("timeouts.md", f"one request of the driver that ends transactions | {wire._REQUEST_MS // 1000} s |"),
    ("timeouts.md", f"after {sink.PATIENCE_MS / 1000:g} s it counts as one failure"),
    ("timeouts.md", f"| {format_duration(int(ANSWER_WITHIN_MS))}; what is refused"),
    ("timeouts.md", f"nobody answers for {client.QUESTION_MS // 1000} s"),
    ("timeouts.md", f"100 ms, to {retries._BACKOFF_MS_MAX // 1000} s)"),
    ("timeouts.md", f"in pauses of up to {sweeps.PAUSE_MAX_MS / 1000:g} s"),
    ("timeouts.md", f"witness topic) | {fitness.ANSWER_WITHIN_MS / 1000:g} s |"),
    ("transactions.md", "sixteen epochs (modulo)" if transactional_ids.EPOCH_RING == 16 else "?"),
    ("transactions.md", f"`{transactional_ids.driver_id('<query id>', '<sink>')}`"),
    ("transactions.md", f"`{transactional_ids.TransactionalId('<query id>', '<sink>', 0, 0, 0, 0)}`"
     .replace("e0-0-0-0", "e<epoch>-<partition>-<parity>-<attempt>")),
    ("transactions.md", f"--partitions {witness_topic.PARTITIONS} --replication-factor {witness_topic.REPLICAS}"),
    *[("transactions.md", f"--config {name}={value}") for name, value in witness_topic._CONFIG.items()],
]  # fmt: skip


@pytest.mark.parametrize(("page", "stated"), STATED)
def test_what_a_page_states_is_so(page: str, stated: str) -> None:
    text = (GUIDE / page).read_text(encoding="utf-8")
    assert stated in " ".join(text.split()), f"{page} does not say: {stated}"


def _rows(page: str) -> list[str]:
    """The first cells of all rows of its tables."""
    return re.findall(r"^\| ([^|]+) \|", (GUIDE / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_page_of_the_source_has_every_option_and_no_other() -> None:
    named = {name for row in _rows("kafka_source.md") for name in re.findall(r"`([a-z]\w*(?:\.\w+)?)`", row)}
    own = {name for name in named if not name.startswith("kafka.")} - {"key", "value", "topic", "partition", "offset"}
    own -= {"timestamp", "timestampType", "headers", "read_committed", "read_uncommitted"}  # columns, levels
    assert own == set(KNOWN_OPTIONS)


def test_the_page_of_the_sink_has_every_parameter_and_its_default() -> None:
    page = (GUIDE / "kafka_sink.md").read_text(encoding="utf-8")
    parameters = inspect.signature(hf.KafkaSink).parameters
    named = {name for row in _rows("kafka_sink.md") for name in re.findall(r"`(\w+)`", row)}
    assert set(parameters) - {"bootstrap_servers"} <= named
    for name in ("key", "value", "mode", "name", "witness_topic", "when_undecided"):
        assert f'| `{name}` | `"{parameters[name].default}"` |' in page


def test_the_page_on_security_names_what_is_refused() -> None:
    """Groups of properties that the second client does not know, by a word of the page for each."""
    page = (GUIDE / "security.md").read_text(encoding="utf-8")
    words = {"keystore": "PKCS#12", "engine": "OpenSSL engines", "providers": "providers", "curves": "lists of curves",
             "sigalgs": "signatures", "keytab": "keytab", "principal": "keytab", "assertion": "assertions",
             "verify_cb": "ssl.ca.location"}  # fmt: skip
    refused = [name for name, carried in security.SECURITY.items() if not isinstance(carried, Carried)]
    unnamed = [name for name in refused if not any(part in name and word in page for part, word in words.items())]
    assert len(refused) > 15
    assert not unnamed


def _files_of_a_slot(batches: int, retained_batches: int) -> list[int]:
    """How many deltas a slot has in storage after each of so many small batches."""
    settings, stored, counts = CheckpointSettings(), set[str](), []
    parent: Handle | None = None
    ready: SnapshotRef | None = None
    for number in range(1, batches + 1):
        version = f"{number:032x}"
        first = Handle("totals", 0, version, parent.version_id if parent else "", number, number - 1)
        delta = DeltaRef(number, version, 1000, f"{number:016x}")
        handle = next_handle(parent, first, delta, ready, retained_batches)
        stored.add(delta_name(number, version))
        if ready is not None:  # what `Retention` does then
            view = view_of(handle, parent, 0, settings.stray_grace_ms, None)
            stored = {name for name in stored if reason_to_delete(StoredFile(name, 1000, 0), view) is None}
        is_due = ready is None and is_snapshot_due(handle, settings)
        ready = SnapshotRef(number, version, f"snapshot/{number}", 100, delta.checksum, 10_000) if is_due else None
        parent = handle
        counts.append(len(stored))
    return counts


def test_the_page_on_storage_says_how_many_files_a_slot_keeps() -> None:
    counts = _files_of_a_slot(1500, 100)[700:]
    least, most, every = min(counts), max(counts), CheckpointSettings().snapshot_deltas_max
    page = " ".join((GUIDE / "storage.md").read_text(encoding="utf-8").split())
    assert f"every {every} batches (`snapshot.deltas.max`)" in page
    assert f"`retainedBatches` of 100 are {least} to {most} files for each slot" in page
    assert f"{8 * least:,} to {8 * most:,} for 8 slots" in page
