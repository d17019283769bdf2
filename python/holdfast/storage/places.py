"""What a folder is to the user: by which word of a program it is set, as the errors of its store say it. Who is told to
set another one than that moves what was well, and the query does not find what it had.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """What says where a folder is, and whether what is in it has to come along to another one."""

    setting: str
    is_kept: bool = True

    def instead(self, kind: str) -> str:
        """What else can be done than to mend the folder. ``kind``: of place, with its article."""
        return f"set {self.setting} to {kind} place{', with all that is in this one' if self.is_kept else ''}"


STATE = Place("spark.holdfast.checkpoint.dir")
CHECKPOINT = Place("the query's checkpoint=")
FILES = Place("FileSink's path")
SAVEPOINT = Place("the savepoint's folder", is_kept=False)
HARNESS = Place("folder= of Harness, or TMPDIR,", is_kept=False)
