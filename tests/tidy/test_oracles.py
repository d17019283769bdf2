"""Who judges knows nothing of whom he judges: readers, comparisons, waits and look-ups of the harnesses import nothing
of Holdfast, by whatever way. A test that asks the code under test whether it is right is answered yes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import crash_harness, eos_harness, test_rescale_kills, test_timer_kills
from tests.tidy.sources import PACKAGE, ROOT, files, imports, name, text

ORACLES = (
    "tests/by_key.py",
    "tests/kafka_reading.py",
    "tests/silence_oracle.py",
    "tests/faults/kafka_reader.py",
    "tests/faults/file_reading.py",
    "tests/faults/base_reading.py",
    "tests/faults/stored_state.py",
    "tests/faults/handle_reading.py",
    "tests/faults/owned_oracle.py",
    "tests/faults/eos_oracle.py",
    "tests/faults/crash_oracle.py",
    "tests/faults/kill_plan.py",
    "tests/model/together_oracle.py",
    "tests/upgrade/judge.py",
    "examples/flights/check.py",
    "examples/flights/kafka_check.py",
    "examples/flights/kafka_reader.py",
)


def _imported(path: Path) -> Iterator[tuple[str, Path | None]]:
    """Modules that a file imports, and the files of the tree that they are."""
    for _, module in imports(path):
        parts = module.split(".")
        places = [ROOT.joinpath(*parts[:length]).with_suffix(".py") for length in range(len(parts), 0, -1)]
        places.append(path.parent / f"{parts[0]}.py")  # a program beside this one
        yield module, next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("oracle", ORACLES)
def test_an_oracle_shares_no_code_with_what_it_checks(oracle: str) -> None:
    left, seen = [ROOT / oracle], set()
    while left:
        path = left.pop()
        seen.add(path)
        for module, file in _imported(path):
            assert module.split(".")[0] != "holdfast", f"{oracle}: {name(path)} imports {module}"
            if file is not None and file not in seen:
                left.append(file)


def test_every_step_of_the_package_is_struck_by_a_campaign() -> None:
    """A step that is in no campaign's table would never be missed."""
    reached = {
        step
        for path in files(".py", under="python/holdfast")
        if path != PACKAGE / "fault_points.py"
        for step in re.findall(r'\breach\("(\w+)"\)', text(path))
    }
    campaigns = (eos_harness, crash_harness, test_timer_kills, test_rescale_kills)
    struck = {step for campaign in campaigns for step in campaign.STEPS}
    assert reached - struck == set()
    assert len(reached) > 20, "the scanner has gone blind"
