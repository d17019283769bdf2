"""Records of benchmarks: what was measured is read again; what is damaged, incomplete or short is refused."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.conditions import ProcessorTime, counted_as_ours
from benchmarks.figures import ROOT, Measured, at_least, at_most, figure, in_turns, kept_figures, ratio
from benchmarks.pages import cell, readable
from benchmarks.records import DamagedRecord, Record, newest, read_all, recorded

OURS, THEIRS = [30.0, 10.0, 20.0, 40.0], [5.0, 4.0, 6.0]


@pytest.fixture
def record() -> Record:
    with kept_figures() as figures:
        ratio("bench.vs", in_turns(OURS, THEIRS), at_least(6), "a | note")
        figure("bench.p99_ms", 39.0, at_most(40), measured=Measured.among(OURS))
        figure("bench.count", 3)
    return Record(
        benchmark="bench",
        part="one",
        arguments={"rows": 7},
        begun="2026-11-23T10:00:00+00:00",
        seconds=12.5,
        commit="0" * 40,
        clean=True,
        versions={"Python": "3.12"},
        machine={"processor": "one", "cores": 2, "memory_bytes": 1 << 34, "system": "Linux"},
        load={"before": 0.1, "after": 1.9, "others": 0.01, "stolen": 0.0},
        figures=tuple(figures),
    )


def test_what_is_written_is_read_again(record: Record, tmp_path: Path) -> None:
    path = record.write(tmp_path)
    assert path.name == "bench.one.json"
    assert Record.read(path) == record
    assert read_all(tmp_path) == [record]


def test_the_file_can_be_judged_without_this_code(record: Record, tmp_path: Path) -> None:
    found = json.loads(record.write(tmp_path).read_text(encoding="utf-8"))
    (vs, p99, count) = found["figures"]
    assert vs["value"] == statistics.median(OURS) / statistics.median(THEIRS)
    assert vs["series"]["ours"]["samples"] == OURS
    assert (vs["series"]["theirs"]["n"], vs["how"], vs["goal"]) == (3, "in turns", {"at_least": 6})
    assert (p99["spread"], p99["goal"], count["series"]) == (None, {"at_most": 40}, {})
    assert found["format"] == "holdfast benchmark record"


def changed(path: Path, change: Callable[[dict[str, Any]], object], *, sealed: bool = True) -> None:
    """Changes a record as somebody would who knows how its checksum is made."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    if sealed:
        document.pop("checksum", None)
        from holdfast._core import xxh64

        text = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
        document["checksum"] = f"{xxh64(text):016x}"
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(version=2), "expected 'holdfast benchmark record', version 1, found"),
        (lambda d: d.pop("load"), r"missing \['load'\]"),
        (lambda d: d.update(more=1), r"unknown \['more'\]"),
        (lambda d: d["load"].pop("others"), r"load: .*missing \['others'\]"),
        (lambda d: d.update(clean="yes"), "clean: expected .*bool.*, found 'yes'"),
        (lambda d: d.update(figures=[]), "expected at least one, found none"),
        (lambda d: d["figures"].append(d["figures"][0]), "expected each name once"),
        (lambda d: d["figures"][0].update(value=9), r"bench.vs: expected the quotient of its medians, 5, found 9"),
        (lambda d: d["figures"][0].update(how=None), "expected how the two series were measured"),
        (lambda d: d["figures"][0].update(how="side by side"), "found 'side by side'"),
        (lambda d: d["figures"][2].update(value=float("nan")), "expected a finite number, found nan"),
        (lambda d: d["figures"][0].update(goal={"near": 1}), "expected one of at_least and at_most"),
        (lambda d: d["figures"][0]["series"]["ours"].update(n=9), "expected n = 4"),
        (lambda d: d["figures"][1]["series"]["measured"].update(low=99), "expected low ≤ median ≤ high"),
        (lambda d: d["figures"][1]["series"]["measured"].update(median=26), "expected the median of its samples, 25"),
    ],
)
def test_what_does_not_agree_with_itself_is_refused(
    record: Record, tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = record.write(tmp_path)
    changed(path, change)
    with pytest.raises(DamagedRecord, match=said):
        Record.read(path)


def test_what_was_changed_by_hand_is_refused(record: Record, tmp_path: Path) -> None:
    path = record.write(tmp_path)
    changed(path, lambda d: d["load"].update(others=0.0), sealed=False)
    with pytest.raises(DamagedRecord, match="it was changed by hand"):
        Record.read(path)


def test_a_file_of_another_name_and_one_that_is_none_are_refused(record: Record, tmp_path: Path) -> None:
    path = record.write(tmp_path)
    other = path.rename(tmp_path / "other.json")
    with pytest.raises(DamagedRecord, match=r"belongs into bench\.one\.json"):
        Record.read(other)
    other.write_text("figures", encoding="utf-8")
    with pytest.raises(DamagedRecord, match="expected a JSON document, found 'figures'"):
        Record.read(other)


def test_a_part_that_is_run_again_stands_before_the_whole_of_earlier(record: Record) -> None:
    later = replace(record, part=None, begun="2026-11-24T10:00:00+00:00", figures=record.figures[:1])
    found = newest([later, record])
    assert found["bench.vs"][1] is later
    assert found["bench.count"][1] is record


def test_a_cell_says_what_is_to_be_said_against_it(record: Record) -> None:
    vs, p99, _ = record.figures
    assert cell((vs, record)) == "5 (3.18 to 7.22), **missed**"
    busy = replace(record, clean=False, load={**record.load, "others": 0.5})
    assert cell((p99, busy)) == "39°*"
    assert cell(None) == "not recorded"


def test_numbers_are_readable() -> None:
    numbers = (0, 0.04321, 1.005, 12.34, 999, 999.9, 1000, 45_678, 24_960_000, -3.14159, 0.000123)
    shown = ["0", "0.0432", "1", "12.3", "999", "1k", "1k", "45.7k", "25M", "-3.14", "0.000123"]
    assert [readable(number) for number in numbers] == shown


def test_a_short_run_is_never_a_record(tmp_path: Path) -> None:
    given = Namespace(record=True, short=True, folder=tmp_path)
    with pytest.raises(SystemExit, match="a short run is no figure"):
        with recorded(given):
            raise AssertionError("it ran")


def test_a_run_that_fails_leaves_no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.conditions.commit", lambda: ("0" * 40, True))
    monkeypatch.setattr("benchmarks.records.FOLDER", tmp_path / "recorded")
    given = Namespace(record=True, short=False, folder=tmp_path)
    with pytest.raises(RuntimeError, match="half-way"), recorded(given):
        figure("bench.count", 3)
        raise RuntimeError("half-way")
    assert not (tmp_path / "recorded").exists()


def test_a_busy_machine_keeps_counts_and_refuses_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kill -9 counts what is lost: how fast the machine is meanwhile does not matter. A rate does."""
    monkeypatch.setattr("benchmarks.conditions.commit", lambda: ("0" * 40, True))
    monkeypatch.setattr("benchmarks.records.FOLDER", ROOT / "build" / tmp_path.name)
    monkeypatch.setattr(ProcessorTime, "others_since", lambda end, start: 0.9)
    given = Namespace(record=True, short=False, folder=tmp_path)
    try:
        monkeypatch.setattr(sys, "argv", ["/benchmarks/stream/exactly_once.py"])
        with recorded(given):
            figure("exactly_once.lost", 0)
        (kept,) = read_all(ROOT / "build" / tmp_path.name)
        assert kept.load["others"] == 0.9
        assert cell((kept.figures[0], kept)) == "0"
        monkeypatch.setattr(sys, "argv", ["/benchmarks/stream/keyed_sum.py"])
        with pytest.raises(SystemExit, match="others had 9.% of the machine"), recorded(given):
            figure("keyed_sum.rows_per_s", 1)
        assert read_all(ROOT / "build" / tmp_path.name) == [kept]
    finally:
        shutil.rmtree(ROOT / "build" / tmp_path.name, ignore_errors=True)


def test_processor_time_of_others_is_told_from_ours() -> None:
    """What a child of ours computed, which has ended meanwhile, is ours. A process is charged for what other virtual
    machines took while it ran; the machine's busy time leaves that out.
    """
    start = ProcessorTime.now()
    spin = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    end = ProcessorTime.now()
    assert end.ours_s - start.ours_s >= 0.45
    of_machine = (end.busy_s - start.busy_s) + (end.stolen_s - start.stolen_s)
    assert of_machine >= end.ours_s - start.ours_s - 0.1


@pytest.mark.long
def test_what_a_child_took_that_nobody_buried_is_ours() -> None:
    """As Spark's daemon leaves its workers: it ignores SIGCHLD, and the kernel forgets them."""
    with counted_as_ours():
        start = ProcessorTime.now()
        if not any(Path("/sys/fs/cgroup").rglob(f"holdfast-bench-{os.getpid()}")):
            pytest.skip("no control group may be made here")
        spin = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
        forgetful = "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        forgetful += f"subprocess.Popen([sys.executable, '-c', {spin!r}]).wait()"
        subprocess.run([sys.executable, "-c", forgetful], check=True)
        end = ProcessorTime.now()
    assert end.ours_s - start.ours_s >= 0.45
    assert not any(Path("/sys/fs/cgroup").rglob(f"holdfast-bench-{os.getpid()}"))
