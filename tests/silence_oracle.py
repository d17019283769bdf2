"""What the processors of timer_processors.py should say of silent users, in plain Python. Knows nothing of Holdfast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
#: User, batch, events before, time of the last event, time of the alert.
Alert = tuple[str, int, int, datetime, datetime]


def silent_users(batches: Iterable[Sequence[tuple[str, datetime]]], first_batch: int = 0) -> list[Alert]:
    """What `SilentUsers` should give over batches of (user, time), with a watermark that has no delay."""
    events: dict[str, int] = {}
    last: dict[str, datetime] = {}
    timers: dict[str, tuple[datetime, int]] = {}
    watermark: datetime | None = None
    found: list[Alert] = []
    for batch_id, batch in enumerate(batches, first_batch):
        for user in {user for user, _ in batch}:
            times = [time for other, time in batch if other == user]
            events[user] = events.get(user, 0) + len(times)
            last[user] = max([*times, *([last[user]] if user in last else [])])
            timers[user] = (last[user] + HOUR, 1)
        while watermark is not None and (
            due := [(time, user) for user, (time, _) in timers.items() if time <= watermark]
        ):
            time, user = min(due)
            _, count = timers.pop(user)
            if count < 3:
                timers[user] = (time + HOUR, count + 1)
            found.append((user, batch_id, events[user], last[user], time))
        seen = max((time for _, time in batch), default=None)
        if seen is not None and (watermark is None or seen > watermark):
            watermark = seen
    return found
