"""What a program has declared is compared with a checkpoint's records before its query starts: never too strictly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.checkpoint import OperatorRecord, operator_prefix, register_operator
from holdfast.settings import Settings
from holdfast.spark import declared_operators
from holdfast.spark.declared_operators import check_declared, declare
from holdfast.spark.plan import OperatorPlan
from holdfast.storage import open_file_store

QUERY, OTHER = "0f0f0f0f-0000-4000-8000-000000000000", "0f0f0f0f-0000-4000-8000-000000000001"
ROWS = pa.schema([("user", pa.string())])
RECORD = OperatorRecord("totals", 4096, 2, (5, 7), ROWS, False, ())


@pytest.fixture(autouse=True)
def new_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(declared_operators, "_declared", type(declared_operators._declared)())
    yield


def plan(folder: Path, *, slots_given: bool = False, **changes: Any) -> OperatorPlan:
    return OperatorPlan(
        declared=replace(RECORD, **changes),
        slots_given=slots_given,
        instance="i",
        checkpoint_dir=str(folder),
        settings=Settings(),
        inputs=(),
        output_schema=ROWS,
        side_outputs=(),
        arrow_rows_max=10_000,
    )


def record(folder: Path, query_id: str, **changes: Any) -> None:
    declared = replace(RECORD, **changes)
    register_operator(open_file_store(str(folder)), declared, prefix=operator_prefix(query_id, declared.name))


def test_a_new_checkpoint_and_another_querys_refuse_nothing(tmp_path: Path) -> None:
    declare(plan(tmp_path, null_keys=True))
    check_declared(QUERY)
    record(tmp_path, OTHER)
    check_declared(QUERY)
    assert [path.name for path in tmp_path.iterdir()] == [OTHER], "and looking makes nothing"


def test_what_contradicts_the_record_is_refused(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    declare(plan(tmp_path, null_keys=True))
    with pytest.raises(hf.Incompatible, match="null keys: recorded False, declared True"):
        check_declared(QUERY)


def test_slots_that_nobody_asked_for_follow_the_record(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    declare(plan(tmp_path, slots=3, labels=(1, 2, 3)))
    check_declared(QUERY)
    declared_operators._declared.clear()
    declare(plan(tmp_path, slots=3, labels=(1, 2, 3), slots_given=True))
    with pytest.raises(hf.Incompatible, match="slots: recorded 2, declared 3"):
        check_declared(QUERY)


def test_two_queries_with_an_operator_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    record(tmp_path, OTHER, null_keys=True)
    declare(plan(tmp_path))
    declare(plan(tmp_path, null_keys=True))
    check_declared(QUERY)
    check_declared(OTHER)


def test_of_several_declarations_that_all_contradict_the_newest_is_told(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    declare(plan(tmp_path, null_keys=True))
    declare(plan(tmp_path, max_parallelism=128))
    with pytest.raises(hf.Incompatible, match="max parallelism: recorded 4096, declared 128"):
        check_declared(QUERY)


def test_a_folder_that_does_not_answer_is_left_to_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise hf.Unavailable("the folder does not answer")

    declare(plan(tmp_path, null_keys=True))
    monkeypatch.setattr(declared_operators, "recorded_operator", away)
    check_declared(QUERY)


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    (path,) = tmp_path.rglob("operator.json")
    path.write_bytes(path.read_bytes()[:-9])
    declare(plan(tmp_path))
    with pytest.raises(hf.Corrupt, match="operator.json"):
        check_declared(QUERY)


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    for number in range(300):
        declare(plan(tmp_path, name="again and again"))
        declare(plan(tmp_path, name="often", max_parallelism=number + 1))
        declare(plan(tmp_path, name=f"operator-{number}"))
    remembered = declared_operators._declared
    assert len(remembered) == 256
    assert sum(len(plans or ()) for plans in remembered.values()) == 255


def test_a_declaration_that_was_too_many_to_remember_may_be_meant(tmp_path: Path) -> None:
    """A program that reads many tables declares all its queries, then starts them: the first ones were refused."""
    record(tmp_path, QUERY)
    declare(plan(tmp_path))
    for number in range(100):
        declare(plan(tmp_path, max_parallelism=number + 1))
    check_declared(QUERY)


def test_a_name_that_came_when_there_were_too_many_to_remember_is_left_to_the_workers(tmp_path: Path) -> None:
    record(tmp_path, QUERY)
    for number in range(300):
        declare(plan(tmp_path, name=f"operator-{number}"))
    declare(plan(tmp_path))
    declare(plan(tmp_path, null_keys=True))
    check_declared(QUERY)
