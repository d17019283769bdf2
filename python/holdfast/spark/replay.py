"""What the slots are told when a batch runs again of which output is visible: a local property of the job.

A property, because the operators' plan is made once and for all batches;
Spark hands it to every task of every stage (docs/rfcs/0004).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from holdfast.checkpoint.names import attempt_version_id
from holdfast.commit.batch import Replay
from holdfast.errors import InternalError

REPLAY_PROPERTY = "holdfast.replay"
#: The run whose tasks these are, told by whoever commits what they prepare under its name.
RUN_PROPERTY = "holdfast.run"


@dataclass(frozen=True)
class SlotReplay:
    """Versions that the recorded attempts prepared, by the sink's partition.

    Attributes
    ----------
    run_id
        The run whose versions operators of earlier stages take over.
    done
        Of tasks whose output is visible: their slots take over the version and give no rows.
    lost
        Of tasks whose output was lost: their slots compute both again.
    """

    run_id: str
    done: Mapping[int, str]
    lost: Mapping[int, str]

    @classmethod
    def of(cls, replay: Replay) -> SlotReplay:
        versions = {
            partition: attempt_version_id(task.run_id, task.task_attempt_id) for partition, task in replay.tasks.items()
        }
        lost = replay.lost_partitions
        return cls(
            run_id=replay.record.state_run_id,
            done={partition: version for partition, version in versions.items() if partition not in lost},
            lost={partition: version for partition, version in versions.items() if partition in lost},
        )

    def to_property(self) -> str:
        return json.dumps({"run": self.run_id, "done": dict(self.done), "lost": dict(self.lost)})

    @staticmethod
    def from_property(text: str | None) -> SlotReplay | None:
        """What the task's job was told; None: the batch runs for the first time, or as if it did."""
        return _parse(text) if text else None


@lru_cache(maxsize=4)
def _parse(text: str) -> SlotReplay:
    try:
        told = json.loads(text)
        done, lost = ({int(partition): str(v) for partition, v in told[kind].items()} for kind in ("done", "lost"))
        return SlotReplay(str(told["run"]), done, lost)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InternalError(f"the local property {REPLAY_PROPERTY} is {text[:200]!r}: {error!r}") from error
