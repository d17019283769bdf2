"""A query begins with the state of an earlier one. Its first start comes to nothing, and its second one says something
else of that beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.streams import FileStream

import holdfast as hf

pytestmark = pytest.mark.spark
EVENTS = "user string, amount long"
USERS = [f"u{number}" for number in range(6)]


def sums(name: str, fails: bool = False) -> hf.BatchProcessor:
    """Adds amounts up in a state of this name."""

    def process(self, batch, ctx):
        if fails:
            raise ValueError("a mistake of the program's")
        getattr(self, name).add_only(batch["user"], batch["amount"])
        return batch

    return type("Sums", (hf.BatchProcessor,), {name: hf.ReducingState(pa.int64(), "sum"), "process": process})()


def amounts(amount: int) -> pa.Table:
    return pa.table({"user": USERS, "amount": pa.array([amount] * len(USERS), pa.int64())})


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_is_said_of_states_is_not_corrected_on_the_same_checkpoint(
    streams: Callable[[str], FileStream], tmp_path: Path, exactly_once: bool
) -> None:
    """The correction was ignored without a word: the sums began with nothing."""
    old, new = streams("old"), streams("new")
    old.write(amounts(100))
    old.run(hf.keyed("user", sums("total"), EVENTS, name="sums"))
    new.write(amounts(1))

    def start(checkpoint: Path, fails: bool = False, **said: Any) -> None:
        restore = hf.Restore(old.checkpoint).operator(**said)
        rows = new.events().transform(hf.keyed("user", sums("sum", fails), EVENTS, name="sums", restore=restore))
        if exactly_once:
            sink, trigger = hf.FileSink(str(tmp_path / "out")), {"availableNow": True}
            hf.write_exactly_once(rows, sink, checkpoint=checkpoint, trigger=trigger).awaitTermination()
        else:
            writer = rows.writeStream.format("noop").trigger(availableNow=True)
            hf.start(writer, checkpoint=checkpoint).awaitTermination()

    with pytest.raises(Exception, match="a mistake of the program's"):
        start(new.checkpoint, fails=True, dropped=["total"], added=["sum"])
    with pytest.raises(
        hf.Incompatible, match="state 'total' of the origin: recorded as left behind, declared as going"
    ):
        start(new.checkpoint, renamed={"total": "sum"})
    start(tmp_path / "another", renamed={"total": "sum"})
    with hf.Checkpoint(tmp_path / "another", state=tmp_path / "state") as checkpoint:
        table = checkpoint.read("sums", "sum").read_all()
    assert dict(zip(table["user"].to_pylist(), table["value"].to_pylist())) == dict.fromkeys(USERS, 101)
