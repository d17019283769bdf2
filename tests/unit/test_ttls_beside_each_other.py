"""States of one slot whose TTLs go by event time: what one of them has seen, all have, in the slot's next batch as for
who reads it, saves it or begins with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.first_versions import begun, first_versions
from tests.quiet_slots import ADA, FORMATS, HOUR_MS, NAME, NOON_MS, STATE, Driver, in_slot

import holdfast as hf

MINUTE_MS = 60_000
TTL = hf.TTL("1 h", time="event")


def expires(source: Any, user: str, **batch: Any) -> int | None:
    """When that user's entry expires, from noon on; None: it is not known yet."""
    [found] = [row["expiry"] for row in source.read(NAME, STATE, **batch).read_all().to_pylist() if row["user"] == user]
    return None if found is None else round(found.timestamp() * 1000) - NOON_MS


def expires_everywhere(driver: Driver, user: str, batch_id: int, folder: Path) -> dict[str, int | None]:
    """For readers, savepoints of each form, and who begins with one."""
    with hf.Checkpoint(driver.checkpoint) as checkpoint:
        found = {"checkpoint": expires(checkpoint, user, batch_id=batch_id)}
    for form in FORMATS:
        to = folder / f"{form}-{batch_id}"
        saved = hf.Savepoint.create(checkpoint=driver.checkpoint, to=to, batch_id=batch_id, format=form)
        found[form] = expires(saved, user)
        with first_versions(begun(to, NAME, slots=3), folder / f"of-{form}-{batch_id}") as checkpoint:
            found[f"begun with {form}"] = expires(checkpoint, user)
    return found


def another_in(driver: Driver, slot: int) -> str:
    return in_slot(driver.record, slot, int(driver.users[slot].partition("-")[2]) + 1)


@pytest.mark.parametrize("has_rows", [True, False], ids=["with rows since", "without"])
def test_a_ttl_that_comes_back_counts_from_what_states_beside_it_have_seen(has_rows: bool, tmp_path: Path) -> None:
    """Readers went by the state's own time, and native savepoints gave it to the queries that begin with them."""
    driver = Driver(tmp_path / "query", TTL, by_events=True, beside=TTL)
    ada = driver.users[ADA]
    driver.batch(MINUTE_MS, ADA)
    driver.start(None, beside=TTL)
    driver.batch(2 * MINUTE_MS, ADA, ahead_ms=10 * HOUR_MS)
    driver.start(TTL, beside=TTL)
    driver.users[ADA] = another_in(driver, ADA)
    batch_id = driver.batch(3 * MINUTE_MS, *([ADA] if has_rows else []))
    began_ms = 2 * MINUTE_MS + 10 * HOUR_MS
    found = expires_everywhere(driver, ada, batch_id, tmp_path)
    assert found == dict.fromkeys(found, began_ms + HOUR_MS)
    with hf.Checkpoint(driver.checkpoint) as checkpoint:  # of the slot's next batch
        assert expires(checkpoint, ada, batch_id=driver.batch(3 * MINUTE_MS, ADA)) == began_ms + HOUR_MS
