"""States of one slot whose TTLs go by event time: what one of them has seen, all have, in the slot's next batch as for
who reads it, saves it or begins with it; what was dropped has seen nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.first_versions import begun, first_versions
from tests.quiet_slots import ADA, FORMATS, HOUR_MS, NAME, NOON_MS, STATE, Driver, in_slot

import holdfast as hf
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.inspect.earlier import EarlierQuery
from holdfast.storage import StorageOptions

MINUTE_MS = 60_000
TTL = hf.TTL("1 h", time="event")


def expires(source: Any, user: str, **batch: Any) -> int | None:
    """When that user's entry expires, from noon on; None: it is not known yet."""
    [found] = [row["expiry"] for row in source.read(NAME, STATE, **batch).read_all().to_pylist() if row["user"] == user]
    return None if found is None else round(found.timestamp() * 1000) - NOON_MS


def expires_everywhere(driver: Driver, user: str, batch_id: int, folder: Path) -> dict[str, int | None]:
    """For readers, savepoints of each form, and who begins with one, or with the query itself."""
    with hf.Checkpoint(driver.checkpoint) as checkpoint:
        found = {"checkpoint": expires(checkpoint, user, batch_id=batch_id)}
    for form in FORMATS:
        to = folder / f"{form}-{batch_id}"
        saved = hf.Savepoint.create(checkpoint=driver.checkpoint, to=to, batch_id=batch_id, format=form)
        found[form] = expires(saved, user)
        with first_versions(begun(to, NAME, slots=3), folder / f"of-{form}-{batch_id}") as checkpoint:
            found[f"begun with {form}"] = expires(checkpoint, user)
    earlier = EarlierQuery(str(driver.checkpoint), str(driver.folder / "state"), batch_id, StorageOptions(), None)
    recorded, origin = earlier.operator(NAME, "here", None)
    record = continued(recorded, replace(recorded, slots=3, labels=(0, 1, 2)), origin, NOTHING_SAID)
    with first_versions(record, folder / f"of-query-{batch_id}") as checkpoint:
        found["begun with the query"] = expires(checkpoint, user)
    return found


def another_in(driver: Driver, slot: int) -> str:
    return in_slot(driver.record, slot, int(driver.users[slot].partition("-")[2]) + 1)


@pytest.mark.parametrize("has_rows", [True, False], ids=["with rows since", "without"])
@pytest.mark.parametrize("dropped", [True, False], ids=["dropped", "kept"])
def test_a_ttl_that_comes_back_counts_from_what_states_beside_it_have_seen(
    dropped: bool, has_rows: bool, tmp_path: Path
) -> None:
    """Readers went by the state's own time, and native savepoints gave it to the queries that begin with them. And a
    time far ahead that came for a state which was dropped since kept the others' entries till then.
    """
    driver = Driver(tmp_path / "query", TTL, by_events=True, beside=TTL)
    ada = driver.users[ADA]
    driver.batch(MINUTE_MS, ADA)
    driver.start(None, beside=TTL)
    driver.batch(2 * MINUTE_MS, ADA, ahead_ms=10 * HOUR_MS)
    driver.start(TTL, beside=hf.DroppedState() if dropped else TTL)
    driver.users[ADA] = another_in(driver, ADA)
    batch_id = driver.batch(3 * MINUTE_MS, *([ADA] if has_rows else []))
    began_ms = 3 * MINUTE_MS if dropped else 2 * MINUTE_MS + 10 * HOUR_MS
    found = expires_everywhere(driver, ada, batch_id, tmp_path)
    assert found == dict.fromkeys(found, began_ms + HOUR_MS)
    with hf.Checkpoint(driver.checkpoint) as checkpoint:  # of the slot's next batch
        assert expires(checkpoint, ada, batch_id=driver.batch(3 * MINUTE_MS, ADA)) == began_ms + HOUR_MS


def test_a_state_that_was_dropped_since_had_seen_what_it_had_seen(tmp_path: Path) -> None:
    """As of an earlier batch it was there."""
    driver = Driver(tmp_path / "query", TTL, by_events=True, beside=TTL)
    ada = driver.users[ADA]
    driver.batch(MINUTE_MS, ADA)
    driver.start(None, beside=TTL)
    driver.batch(2 * MINUTE_MS, ADA, ahead_ms=10 * HOUR_MS)
    driver.start(TTL, beside=TTL)
    quiet = driver.batch(3 * MINUTE_MS)
    driver.start(TTL, beside=hf.DroppedState())
    found = expires_everywhere(driver, ada, quiet, tmp_path)
    assert found == dict.fromkeys(found, 2 * MINUTE_MS + 11 * HOUR_MS)


@pytest.mark.parametrize("has_rows", [True, False], ids=["with rows since", "without"])
def test_a_ttl_that_comes_back_before_the_first_watermark_has_not_begun(has_rows: bool, tmp_path: Path) -> None:
    """Tables had the stamps and the TTL, as if it had never been away: who began with them lost entries early."""
    driver = Driver(tmp_path / "query", TTL, by_events=True, beside=TTL)
    ada = driver.users[ADA]
    driver.batch(MINUTE_MS, ADA, marked=False)
    driver.start(None, beside=TTL)
    driver.users[ADA] = another_in(driver, ADA)
    driver.batch(2 * MINUTE_MS, ADA, marked=False, ahead_ms=10 * HOUR_MS)
    driver.start(TTL, beside=TTL)
    batch_id = driver.batch(3 * MINUTE_MS, *([ADA] if has_rows else []), marked=False)
    found = expires_everywhere(driver, ada, batch_id, tmp_path)
    began_ms = 2 * MINUTE_MS + 10 * HOUR_MS  # what the slot has seen by then: the first watermark is not later
    assert found == {**dict.fromkeys(found), "begun with canonical": began_ms + HOUR_MS}
    with hf.Checkpoint(driver.checkpoint) as checkpoint:
        assert expires(checkpoint, ada, batch_id=driver.batch(4 * MINUTE_MS, ADA)) == began_ms + HOUR_MS
