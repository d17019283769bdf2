"""A handle's text and its newest delta, put together: by who knows it, on a fresh machine, and where the delta lies."""

from __future__ import annotations

import base64
import random
import shutil
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver, flip, some_rows
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import DeltaRef, Handle, StoredHandle, delta_lineage
from holdfast.checkpoint.names import attempt_version_id, delta_name
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import checksum_of
from holdfast.storage import LocalFileStore

#: No fold and no snapshot: what is counted is of batches alone.
QUIET = replace(SMALL, fold_deltas_max=1000, snapshot_deltas_max=1000)


def through_texts(driver: SlotDriver, process: Process, batches: int, seed: int = 0) -> None:
    for number in range(batches):
        text = driver.handle.to_text() if driver.handle is not None else None
        parent = process.state.whole(StoredHandle.from_text(text)) if text is not None else None
        store = process.state.open(parent)
        assert store is not None
        driver.play(process, {seed + number: 1, 3: number})


def remote(folder: Path) -> FaultyFileStore:
    return FaultyFileStore(LocalFileStore(str(folder / "store")), remote=True)


def requests(store: FaultyFileStore) -> Counter[str]:
    return Counter(operation for operation, _ in store.operations)


def path_of(driver: SlotDriver, ref: DeltaRef | None) -> Path:
    assert ref is not None
    (path,) = driver.stored(delta_name(ref.sequence, ref.version_id))
    return Path(path)


# --- what is read


def test_a_worker_that_had_the_slot_before_reads_nothing(tmp_path: Path) -> None:
    store = remote(tmp_path)
    driver = SlotDriver(tmp_path, settings=QUIET, store=store)
    process = driver.process()
    through_texts(driver, process, 3)
    shutil.rmtree(driver.local("deltas")[0])  # not from its disk either
    Path(driver.local("")[0], "deltas").mkdir()
    for number in range(8):
        store.operations.clear()
        through_texts(driver, process, 1, seed=number)
        assert requests(store) == {"put": 1}
    assert process.state.recovery is not None and process.state.recovery.way == "equal"


def test_a_batch_that_is_tried_again_reads_nothing(tmp_path: Path) -> None:
    store = remote(tmp_path)
    driver = SlotDriver(tmp_path, settings=QUIET, store=store)
    process = driver.process()
    through_texts(driver, process, 4)
    assert driver.handle is not None
    stored = driver.handle.stored()
    for _ in range(6):  # attempts whose handle Spark did not get
        store.operations.clear()
        process.run(process.state.whole(stored), driver.next_batch, [{1: 1}])
        process.state.release_memory()
        assert all("/delta/" not in name or operation == "put" for operation, name in store.operations)
    assert process.state.whole(stored) == driver.handle


def test_a_worker_that_is_behind_fetches_each_delta_once(tmp_path: Path) -> None:
    store = remote(tmp_path)
    driver = SlotDriver(tmp_path, settings=QUIET, store=store)
    behind = driver.process(local="local-b")
    through_texts(driver, behind, 3)
    through_texts(driver, driver.process(local="local-a"), 5)
    store.operations.clear()
    assert driver.check(behind) == "catch_up"
    assert requests(store) == {"get": 5} and len(set(store.operations)) == 5
    store.operations.clear()
    assert driver.check(driver.process(local="local-a")) == "restore", "of the same machine, whose copies are there"
    assert requests(store) == {}


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_fresh_machine_fetches_each_file_once(tmp_path: Path, is_remote: bool) -> None:
    store = FaultyFileStore(LocalFileStore(str(tmp_path / "store")), remote=is_remote)
    driver = SlotDriver(tmp_path, store=store)
    driver.play_some(driver.process(), 30)
    assert driver.handle is not None and len(driver.handle.snapshots) == 2
    store.operations.clear()
    assert driver.check(driver.process(local="fresh")) == "restore"
    read = [name for operation, name in store.operations if operation in ("get", "fetch")]
    assert len(read) == len(set(read)) and "list" not in requests(store)
    newest = driver.handle.deltas_after(driver.handle.snapshots[0].sequence)
    assert sum("/delta/" in name for name in read) == len(newest)


def test_a_large_newest_delta_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.checkpoint.delta_reader._HELD_MAX_BYTES", 100)
    store = remote(tmp_path)
    driver = SlotDriver(tmp_path, settings=QUIET, store=store)
    through_texts(driver, driver.process(), 4)
    store.operations.clear()
    assert driver.check(driver.process(local="fresh")) == "restore"
    assert requests(store) == {"get": 4}, "the copy on this machine was read again"


# --- what it is made of


def test_every_version_of_a_history_is_put_together_by_who_knows_nothing(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=replace(SMALL, retained_batches=100))
    driver.play_some(driver.process(), 40)
    for handle, sums in driver.history:
        if handle is not None:
            process = driver.process(local=f"at-{handle.sequence}")
            assert process.state.whole(StoredHandle.from_text(handle.to_text())) == handle
            assert process.sums(handle, driver.universe) == sums


def test_of_two_handles_of_one_version_each_is_what_its_text_says(tmp_path: Path) -> None:
    """A version that is taken over may name another snapshot than the attempt that prepared it named."""
    driver = SlotDriver(tmp_path, settings=replace(SMALL, retained_batches=100))
    driver.play_some(driver.process(), 30)
    line = [handle for handle, _ in driver.history if handle is not None]
    before, after = next((old, new) for old, new in pairwise(line) if 0 < old.start < new.start)
    wider = replace(
        after,
        snapshots=before.snapshots,
        superseded=before.superseded,
        deltas=(*before.deltas, after.deltas[-1]),
    )
    for first, second in ((after, wider), (wider, after)):
        fresh = driver.process(local="fresh")
        for handle in (first, second, first):
            assert fresh.state.whole(StoredHandle.from_text(handle.to_text())) == handle


# --- deltas that earlier versions of Holdfast wrote


def rewritten(driver: SlotDriver, handle: Handle, change: Any) -> Handle:
    """The newest delta with other metadata, and a handle that names it so."""
    path = path_of(driver, handle.deltas[-1])
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        schema, batches = reader.schema, [reader.get_batch(n) for n in range(reader.num_record_batches)]
    metadata = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    change(metadata)
    schema = schema.with_metadata(metadata)
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    data = path.read_bytes()
    newest = handle.deltas[-1]._replace(size_bytes=len(data), checksum=checksum_of(data))
    return replace(handle, deltas=(*handle.deltas[:-1], newest))


def as_before(metadata: dict[str, str]) -> None:
    """As versions 1 and 2 had it."""
    del metadata["holdfast.lineage"], metadata["holdfast.checksum"]
    metadata["holdfast.version"] = "1"


RUN = "0f0f0f0f-0000-4000-8000-000000000001"


def prepared(driver: SlotDriver, process: Process, task: int) -> Handle:
    """By an attempt that is not heard of any more."""
    table = process.open(driver.handle)
    process.state.begin(driver.next_batch, attempt_version_id(RUN, task))
    table.add({1: 10, 2: 20})
    return process.state.prepare()


def test_a_delta_that_an_earlier_holdfast_prepared_is_taken_over(tmp_path: Path) -> None:
    """It does not say what was before it: so the handle does, as that Holdfast would have written it."""
    driver = SlotDriver(tmp_path, settings=QUIET)
    driver.play_some(driver.process(), 5)
    rewritten(driver, prepared(driver, driver.process(), 7), as_before)
    process = driver.process(local="another")
    adopted = process.state.adopt(process.whole(driver.handle), driver.next_batch, attempt_version_id(RUN, 7))
    assert adopted is not None and '"version":1,' in adopted.to_text() and '"deltas":' in adopted.to_text()
    driver.commit(adopted, [{1: 10, 2: 20}])
    for local in ("another", "fresh-a"):
        assert driver.check(driver.process(local=local))
    driver.play_some(driver.process(local="fresh-b"), 1)
    assert driver.handle is not None and '"version":4,' in driver.handle.to_text()
    assert driver.check(driver.process(local="fresh-c")) == "restore"


def test_a_checkpoint_whose_handles_list_their_deltas_goes_on(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path)
    driver.play_some(driver.process(), 20)
    assert driver.handle is not None
    driver.handle = rewritten(driver, replace(driver.handle, lists_deltas=True), as_before)
    assert driver.check(driver.process(local="fresh-a")) == "restore"
    driver.play_some(driver.process(local="fresh-b"), 1)
    assert not driver.handle.lists_deltas
    assert driver.check(driver.process(local="fresh-c")) == "restore"
    driver.play_some(driver.process(local="fresh-d"), 20)
    assert driver.check(driver.process(local="fresh-e")) == "restore"


# --- damage, and lies


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped", "empty"])
def test_a_newest_delta_that_is_damaged_is_named_and_who_knows_it_goes_on(tmp_path: Path, damage: str) -> None:
    driver = SlotDriver(tmp_path, settings=QUIET)
    process = driver.process()
    driver.play_some(process, 6)
    assert driver.handle is not None
    path = path_of(driver, driver.handle.stored().newest)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        flip(str(path))
    else:
        path.write_bytes(content[:-1] if damage == "torn" else b"")
    fresh = driver.process(local="fresh")
    with pytest.raises(Corrupt, match=rf"version 6 .* cannot be restored: .*\n.*{path.name}.*(damaged|missing)"):
        fresh.open(driver.handle)
    assert driver.check(process) == "equal"
    driver.play(process, {1: 1})
    path.write_bytes(content)
    assert driver.check(fresh) == "restore"


def test_a_damaged_copy_on_this_machine_costs_a_request(tmp_path: Path) -> None:
    store = remote(tmp_path)
    driver = SlotDriver(tmp_path, settings=QUIET, store=store)
    driver.play_some(driver.process(), 4)
    assert driver.handle is not None
    (copy,) = driver.local(f"deltas/*{driver.handle.version_id}*")
    flip(copy)
    store.operations.clear()
    assert driver.check(driver.process()) == "restore"
    assert requests(store) == {"get": 1}


def unpacked(metadata: dict[str, str]) -> bytearray:
    return bytearray(base64.b64decode(metadata["holdfast.lineage"]))


def lie(change: Any) -> Any:
    """A change of the packed bytes."""

    def apply(metadata: dict[str, str]) -> None:
        data = unpacked(metadata)
        found = change(data)
        metadata["holdfast.lineage"] = base64.b64encode(data if found is None else found).decode()

    return apply


def deltas(metadata: dict[str, str]) -> list[DeltaRef]:
    return list(delta_lineage.unpack(metadata["holdfast.lineage"], int(metadata["holdfast.sequence"])))


def lineage(change: Any) -> Any:
    """Other deltas, rightly packed."""

    def apply(metadata: dict[str, str]) -> None:
        metadata["holdfast.lineage"] = delta_lineage.pack(change(deltas(metadata)))

    return apply


LIES = {
    "none": lambda metadata: metadata.pop("holdfast.lineage"),
    "of an earlier version": as_before,
    "no base64": lambda metadata: metadata.update({"holdfast.lineage": "!" * 40}),
    "not ascii": lambda metadata: metadata.update({"holdfast.lineage": "ü" * 40}),
    "nothing": lambda metadata: metadata.update({"holdfast.lineage": ""}),
    "half a header": lie(lambda data: data[:5]),
    "a byte less": lie(lambda data: data[:-1]),
    "a byte more": lie(lambda data: data + b"x"),
    "more deltas than bytes": lie(lambda data: data.__setitem__(slice(0, 4), struct.pack("<I", 2**32 - 1))),
    "more runs than bytes": lie(lambda data: data.__setitem__(slice(4, 8), struct.pack("<I", 2**32 - 1))),
    "no runs": lie(lambda data: struct.pack("<IIBB", 5, 0, 4, 4) + bytes(16 * 5)),
    "a width of nothing": lie(lambda data: data.__setitem__(8, 0)),
    "a width of three": lie(lambda data: data.__setitem__(9, 3)),
    "a run of none": lie(lambda data: data.__setitem__(slice(18, 22), bytes(4))),
    "a run of too many": lie(lambda data: data.__setitem__(slice(18, 22), struct.pack("<I", 2**31))),
    "as many as versions": lineage(lambda found: [found[0], *found]),
    "without the oldest": lineage(lambda found: found[1:]),
    "without the parent": lineage(lambda found: found[:-1]),
    "another parent": lineage(lambda found: [*found[:-1], found[-1]._replace(version_id="f" * 32)]),
    "an empty one": lineage(lambda found: []),
    "another size": lineage(lambda found: [found[0]._replace(size_bytes=7), *found[1:]]),
    "a huge size": lineage(lambda found: [found[0]._replace(size_bytes=2**64 - 1), *found[1:]]),
}


@pytest.mark.parametrize("told", LIES.values(), ids=LIES.keys())
def test_a_lineage_that_lies_is_refused_and_its_file_is_named(tmp_path: Path, told: Any) -> None:
    """Its checksum is right: whoever wrote it wrote the handle too, and what it says is no line of deltas."""
    driver = SlotDriver(tmp_path, settings=QUIET)
    driver.play_some(driver.process(), 6)
    assert driver.handle is not None
    forged = rewritten(driver, driver.handle, told)
    with pytest.raises(Corrupt, match="cannot be restored") as caught:
        driver.process(local="fresh").state.whole(forged.stored())
    assert forged.version_id in str(caught.value)


def test_a_lineage_that_names_deltas_that_are_not_there_names_them(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=QUIET)
    driver.play_some(driver.process(), 6)
    assert driver.handle is not None
    other = lineage(lambda found: [found[0], found[1]._replace(version_id="f" * 32), *found[2:]])
    forged = rewritten(driver, driver.handle, other)
    with pytest.raises(Corrupt, match=f"000000000002-{'f' * 32}.arrow.* is missing"):
        driver.process(local="fresh").open(forged)


def test_a_newer_delta_says_to_upgrade(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=QUIET)
    driver.play_some(driver.process(), 6)
    assert driver.handle is not None
    newer = rewritten(driver, driver.handle, lambda metadata: metadata.update({"holdfast.version": "5"}))
    with pytest.raises(Incompatible, match="Upgrade"):
        driver.process(local="fresh").state.whole(newer.stored())


def test_packed_lineages_come_back() -> None:
    ids = [attempt_version_id(RUN, 5), attempt_version_id(RUN, 2**40), attempt_version_id("another", 1), "f" * 32]
    for count in (0, 1, 2, 4, 300):
        refs = tuple(
            DeltaRef(1000 - count + n, ids[n % 4], (1 << 33) * (n % 3), f"{n * 7919:016x}") for n in range(count)
        )
        assert delta_lineage.unpack(delta_lineage.pack(refs), 1000) == refs


def test_a_batch_with_many_deltas_before_it_says_them_in_some_kb(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=QUIET)
    process = driver.process()
    for number in range(129):
        driver.play(process, some_rows(random.Random(number), rows=2), rest=False)
    assert driver.handle is not None and len(driver.handle.deltas) == 129
    assert len(driver.handle.to_text()) < 1_000
    assert driver.check(driver.process(local="fresh")) == "restore"
