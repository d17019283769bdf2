"""The attempt that did not count was the last to commit Spark's own store; then the driver dies, with real Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.test_exactly_once import check_chains
from tests.late_attempts import FailsOnceSparkHasItsState, write_last
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.streams import FileStream

import holdfast as hf
from holdfast.commit.committer import Committer
from holdfast.commit.record import CommitRecord

pytestmark = pytest.mark.spark
USERS = [f"user{number}" for number in range(8)]


def test_batches_after_it_go_on_from_what_the_visible_output_was_made_from(
    stream: FileStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay of the batch after it ended with Incompatible, at each start; a slot that was quiet went on from the
    other attempt.
    """
    sink = FailsOnceSparkHasItsState(str(tmp_path / "out"), checkpoint=str(stream.checkpoint), kept=str(tmp_path / "k"))
    note = Committer._note_doubted
    dies_in: set[int] = set()

    def noting(self: Committer, record: CommitRecord) -> None:
        if record.batch_id in dies_in:  # all is visible, and Spark has not committed the batch
            dies_in.clear()
            raise hf.Unavailable("the driver dies")
        note(self, record)

    monkeypatch.setattr(Committer, "_note_doubted", noting)

    def run(*batches: list[str]) -> None:
        for users in batches:
            stream.write(pa.table({"user": users, "amount": [len(users)] * len(users)}))
        rows = stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))
        query = hf.write_exactly_once(rows, sink, checkpoint=stream.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()

    run(USERS, USERS)
    assert write_last(sink) > 1
    check_readers(stream, sink, tmp_path)
    run(USERS[:1])
    run(USERS[:1])
    dies_in.add(4)
    with pytest.raises(hf.Unavailable, match="the driver dies"):
        run(USERS)
    run()
    run(USERS)
    written = hf.FileSink.read(sink.path)
    assert written.num_rows == 4 * len(USERS) + 2
    check_chains(written)


def check_readers(stream: FileStream, sink: FailsOnceSparkHasItsState, folder: Path) -> None:
    """They have the number that each user's last visible row has."""
    expected = {row["user"]: row["number"] for row in hf.FileSink.read(sink.path).to_pylist()}
    saved = hf.Savepoint.create(checkpoint=stream.checkpoint, to=folder / "savepoint")
    with hf.Checkpoint(stream.checkpoint) as opened:
        for reader in (opened, saved):
            rows = reader.read("numbers", "last").read_all()
            assert dict(zip(rows["user"].to_pylist(), rows["value"].to_pylist())) == expected
