"""A query that claims its savepoint, in Spark: the savepoint goes, the program starts again, and nobody else can."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.test_rescale import expected, some, told, totals
from tests.native_savepoints import rows_of, tables_of
from tests.spark_sessions import lose_local_folder
from tests.streams import FileStream, Transform

import holdfast as hf
from holdfast.inspect.savepoint import Format
from holdfast.sealed import checksum_of

pytestmark = pytest.mark.spark


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("format", ["native", pytest.param("canonical", marks=pytest.mark.slow)])
def test_a_savepoint_goes_with_the_query_that_claims_it(
    streams: Callable[[str], FileStream], tmp_path: Path, format: Format
) -> None:
    batches = some(15, 7)
    old, new, other = streams("old"), streams("new"), streams("other")
    old.write(*batches[:3])
    found = told(old.run(totals(2)))
    saved = tmp_path / "saved"
    hf.Savepoint.create(checkpoint=old.checkpoint, state=tmp_path / "state", to=saved, format=format)

    def frame(slots: int = 3) -> Transform:
        return totals(slots, restore=hf.Restore(savepoint=saved, claim=True))

    new.write(batches[3])
    found += told(new.run(frame()))
    done = f"claims/{checksum_of((saved / 'savepoint.json').read_bytes())}.done.json"
    assert (saved / "savepoint.json").exists(), "one batch is committed, and no other has seen that"
    new.write(batches[4])
    found += told(new.run(frame()))
    left = {"claimed.json", "claims/totals.claimed.json", "claims/totals.taken.json", done}
    ends = time.monotonic() + 300
    while files_in(saved) != left and time.monotonic() < ends:
        time.sleep(0.1)  # it goes in the background of the workers
    assert files_in(saved) == left
    lose_local_folder(tmp_path)
    new.write(batches[5])
    found += told(new.run(frame()))  # the same program again
    with pytest.raises(hf.InvalidRequest, match="claimed, taken over and deleted"):
        totals(3, restore=hf.Restore(savepoint=saved))(new.events())
    other.write(batches[5])
    with pytest.raises(Exception, match=r"Incompatible.*has claimed it"):
        other.run(frame())
    new.write(batches[6])
    found += told(new.run(totals(3)))
    assert found == expected(batches)
    with hf.Checkpoint(new.checkpoint, state=tmp_path / "state") as checkpoint:
        assert rows_of(tables_of(checkpoint, "totals"))
