"""What is read of an earlier query's checkpoint: whether its last batch is settled, and where its sources go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.commit.record_log import record_name
from holdfast.errors import Incompatible
from holdfast.inspect.committed import Committed
from holdfast.inspect.earlier import check_settled
from holdfast.inspect.restore import _positions
from holdfast.storage import LocalFileStore

QUERY = "5c2e3f6a-0000-4000-8000-00000000000a"
OURS = {"format": 1, "source": "5f0c", "offsets": {"b": {"0": 17, "1": 0}}, "topic_ids": {"b": "L66Z"}}


def test_kafka_sources_go_on_where_the_batch_ended() -> None:
    assert _positions(json.dumps({"a": {"0": 5}})) == {"a": {"0": 5}}
    assert _positions(json.dumps(OURS)) == {"b": {"0": 17, "1": 0}}


@pytest.mark.parametrize(
    "text",
    [None, "", "7", "null", "[]", "{}", '{"logOffset":3}', '{"a":{"0":"x"}}', '{"a":{"0":true}}', '{"format":1}', "-"],
)
def test_what_are_no_offsets_of_kafka_is_not_taken_for_some(text: str | None) -> None:
    assert _positions(text) is None


def test_output_that_is_visible_of_a_later_batch_refuses_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    committed = Committed(LocalFileStore(str(tmp_path)), None)
    check_settled(committed, 10)
    for batch_id in (10, 11):
        record = tmp_path / record_name(QUERY, batch_id, 0)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")
        if batch_id == 10:
            check_settled(committed, 10)
    with pytest.raises(Incompatible, match="up to batch 10, and output is visible of batch 11"):
        check_settled(committed, 10)
