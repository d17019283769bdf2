"""Records: what a run of a benchmark measured, one JSON file each in benchmarks/recorded, from which pages are made.

    {"format": "holdfast benchmark record", "version": 1, "benchmark": …, "figures": […], …}

A reader refuses what is not complete, not consistent with itself, or not as it was written (`checksum`: XXH64 of the
rest). A short run is never written. Each benchmark runs within :func:`recorded`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import conditions
from benchmarks.conditions import ProcessorTime
from benchmarks.figures import (
    IN_TURNS,
    ONE_AFTER_THE_OTHER,
    ROOT,
    Figure,
    Goal,
    Measured,
    Series,
    kept_figures,
    work_folder,
)

from holdfast.sealed import checksum_of

FORMAT = "holdfast benchmark record"
VERSION = 1
FOLDER = ROOT / conditions.RECORDED
#: More of the machine than this with other processes and other virtual machines together, and a figure is marked.
OTHERS_QUIET_MAX = 0.05
#: What others may have had of it for a run to be kept at all.
OTHERS_KEPT_MAX = 0.25
#: Benchmarks whose figures count what came about, and of which none has a time in it: other work changes nothing there.
COUNTED = ("exactly_once", "storage")

# Every key of a record, and what stands there.
_KEYS: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "version": int,
    "benchmark": str,
    "part": (str, type(None)),
    "arguments": dict,
    "begun": str,
    "seconds": float,
    "commit": str,
    "clean": bool,
    "versions": dict,
    "machine": dict,
    "load": dict,
    "figures": list,
    "checksum": str,
}
_LOAD = {"before", "after", "others", "stolen"}
_FIGURE = {"name", "value", "goal", "note", "how", "spread", "series"}
_SERIES = {"median", "low", "high", "n", "samples"}


class DamagedRecord(ValueError):
    """A record that is not what a run wrote."""


@dataclass(frozen=True)
class Record:
    """One run.

    ``load`` has the load averages before and after, and which parts of the machine's processor time went to processes
    that are not of the run (`others`) and to other virtual machines (`stolen`).
    """

    benchmark: str
    part: str | None
    arguments: dict[str, Any]
    begun: str
    seconds: float
    commit: str
    clean: bool
    versions: dict[str, str]
    machine: dict[str, str | int]
    load: dict[str, float]
    figures: tuple[Figure, ...]

    @property
    def quiet(self) -> bool:
        """Whether hardly anything else had the machine, no other process and no other virtual machine; or that does
        not matter here.
        """
        return self.benchmark in COUNTED or self.load["others"] + self.load["stolen"] <= OTHERS_QUIET_MAX

    @property
    def name(self) -> str:
        """Of the file: benchmark and part."""
        return self.benchmark if self.part is None else f"{self.benchmark}.{self.part}"

    def write(self, folder: Path) -> Path:
        """Writes the record where it belongs; one of an earlier run of the same part is replaced."""
        fields = {**asdict(self), "figures": [_figure_fields(one) for one in self.figures]}
        document = {"format": FORMAT, "version": VERSION, **fields}
        text = json.dumps({**document, "checksum": _checksum(document)}, indent=1, ensure_ascii=False) + "\n"
        path = folder / f"{self.name}.json"
        folder.mkdir(parents=True, exist_ok=True)
        _parse(text, str(path))  # what could not be read again is not written
        path.write_text(text, encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Record:
        """One file.

        Raises
        ------
        DamagedRecord
            It says what was expected, what was found, and where.
        """
        record = _parse(path.read_text(encoding="utf-8"), str(path))
        if path.stem != record.name:
            raise DamagedRecord(f"{path}: a record of {record.name} belongs into {record.name}.json; rename the file")
        return record


def read_all(folder: Path = FOLDER) -> list[Record]:
    """All records of a folder, by name."""
    return [Record.read(path) for path in sorted(folder.glob("*.json"))]


def newest(records: list[Record]) -> dict[str, tuple[Figure, Record]]:
    """Each figure's newest value: a part that was run again stands before the whole that was run earlier."""
    found: dict[str, tuple[Figure, Record]] = {}
    for record in sorted(records, key=lambda one: one.begun):
        found |= {figure.name: (figure, record) for figure in record.figures}
    return found


@contextmanager
def recorded(given: argparse.Namespace, part: str | None = None) -> Iterator[Path]:
    """What each benchmark runs in: says what it runs on, gives it a folder, and with ``--record`` keeps its figures.

    Parameters
    ----------
    given
        What :func:`benchmarks.figures.arguments` parsed.
    part
        What the record is one part of the benchmark by; ``--only``, unless it is said.

    Raises
    ------
    SystemExit
        ``--record`` together with ``--short``: a small form shows that a benchmark runs, not how fast. Or others had
        too much of the machine, and the figures are times: nothing is recorded.
    """
    if given.record and given.short:
        raise SystemExit(
            "--record: a short run is no figure; run it without --short, on a machine that does nothing else"
        )
    commit, clean = conditions.commit() if given.record else ("", False)
    before = conditions.load()
    begun = datetime.now(timezone.utc).isoformat(timespec="seconds")
    _say_machine(before)
    with conditions.counted_as_ours(), kept_figures() as figures, work_folder(given.folder) as folder:
        start = ProcessorTime.now()
        yield folder
        end = ProcessorTime.now()
    others, stolen = end.others_since(start), end.stolen_since(start)
    print(f"# others took {others:.1%} of the machine, other virtual machines {stolen:.1%}", flush=True)
    counted = Path(sys.argv[0]).stem in COUNTED
    if others + stolen > OTHERS_QUIET_MAX and not counted:
        print("# other work ran on this machine: these are no figures to keep", file=sys.stderr)
    if given.record and others + stolen > OTHERS_KEPT_MAX and not counted:
        raise SystemExit(
            f"--record: others had {others + stolen:.0%} of the machine, more than {OTHERS_KEPT_MAX:.0%}: nothing is "
            "recorded; run it again on a machine that does nothing else"
        )
    if given.record:
        load = {"before": before, "after": conditions.load(), "others": round(others, 4), "stolen": round(stolen, 4)}
        record = Record(
            benchmark=Path(sys.argv[0]).stem,
            part=part or getattr(given, "only", None),
            arguments={name: value for name, value in vars(given).items() if name not in _NO_ARGUMENTS},
            begun=begun,
            seconds=round(end.clock_s - start.clock_s, 1),
            commit=commit,
            clean=clean,
            versions=conditions.versions(),
            machine=conditions.machine(),
            load=load,
            figures=tuple(figures),
        )
        written = record.write(FOLDER).relative_to(ROOT)
        print(f"# recorded in {written}; `make figures` brings it into the pages", flush=True)


_NO_ARGUMENTS = {"record", "short", "folder", "filled", "only", "child"}


def _say_machine(load: float) -> None:
    found = conditions.machine()
    gib = int(found["memory_bytes"]) / (1 << 30)
    print(f"# {found['cores']} cores, {gib:.0f} GiB, {found['system']}, {found['processor']}, load {load}", flush=True)


def _figure_fields(figure: Figure) -> dict[str, Any]:
    goal, measured = figure.goal, figure.measured
    return {
        "name": figure.name,
        "value": figure.value,
        "goal": goal and {"at_least" if goal.at_least else "at_most": goal.value},
        "note": figure.note,
        "how": measured.how,
        "spread": measured.spread and list(measured.spread),
        "series": {name: asdict(series) for name, series in measured.series.items()},
    }


def _checksum(document: dict[str, Any]) -> str:
    return checksum_of(json.dumps(document, sort_keys=True, ensure_ascii=False).encode())


def _parse(text: str, where: str) -> Record:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DamagedRecord(f"{where}: expected a JSON document, found {text[:40]!r} ({error})") from error
    found = _expected(document, dict, where)
    if found.get("format") != FORMAT or found.get("version") != VERSION:
        told = f"{found.get('format')!r}, version {found.get('version')!r}"
        raise DamagedRecord(f"{where}: expected {FORMAT!r}, version {VERSION}, found {told}; run the benchmark again")
    _keys(found, set(_KEYS), where)
    for key, kind in _KEYS.items():
        _expected(found[key], kind, f"{where}: {key}")
    checksum = found.pop("checksum")
    if checksum != _checksum(found):
        raise DamagedRecord(
            f"{where}: expected the checksum {_checksum(found)}, found {checksum}: it was changed by hand; a record is "
            "written by a run (`make bench … ARGS=--record`)"
        )
    _keys(found["load"], _LOAD, f"{where}: load")
    if not found["figures"]:
        raise DamagedRecord(f"{where}: figures: expected at least one, found none")
    figures = tuple(_figure(one, where) for one in found["figures"])
    names = [one.name for one in figures]
    if len(set(names)) < len(names):
        raise DamagedRecord(f"{where}: figures: expected each name once, found {sorted(names)}")
    fields = {key: value for key, value in found.items() if key not in ("format", "version", "figures")}
    return Record(**fields, figures=figures)


def _figure(fields: Any, where: str) -> Figure:
    _keys(_expected(fields, dict, f"{where}: a figure"), _FIGURE, f"{where}: a figure")
    here = f"{where}: {fields['name']}"
    series = {name: _series(one, f"{here}: {name}") for name, one in fields["series"].items()}
    value = _number(fields["value"], here)
    if fields["how"] not in (None, IN_TURNS, ONE_AFTER_THE_OTHER):
        raise DamagedRecord(f"{here}: how: expected {IN_TURNS!r} or {ONE_AFTER_THE_OTHER!r}, found {fields['how']!r}")
    if set(series) == {"ours", "theirs"}:
        if fields["how"] is None:
            raise DamagedRecord(f"{here}: how: expected how the two series were measured, found nothing")
        quotient = series["ours"].median / series["theirs"].median
        if not math.isclose(value, quotient, rel_tol=1e-6):
            raise DamagedRecord(f"{here}: expected the quotient of its medians, {quotient:g}, found {value:g}")
    spread = fields["spread"]
    if spread is not None:
        low, high = (_number(one, f"{here}: spread") for one in spread)
        spread = (low, high)
    return Figure(
        fields["name"], value, _goal(fields["goal"], here), fields["note"], Measured(series, spread, fields["how"])
    )


def _goal(fields: Any, where: str) -> Goal | None:
    if fields is None:
        return None
    if not isinstance(fields, dict) or len(fields) != 1 or not set(fields) <= {"at_least", "at_most"}:
        raise DamagedRecord(f"{where}: goal: expected one of at_least and at_most, found {fields!r}")
    ((kind, value),) = fields.items()
    return Goal(_number(value, f"{where}: goal"), kind == "at_least")


def _series(fields: Any, where: str) -> Series:
    _keys(_expected(fields, dict, where), _SERIES, where)
    low, median, high = (_number(fields[key], f"{where}: {key}") for key in ("low", "median", "high"))
    samples = fields["samples"]
    if not low <= median <= high:
        raise DamagedRecord(f"{where}: expected low ≤ median ≤ high, found {low:g}, {median:g}, {high:g}")
    if samples is not None:
        if len(samples) != fields["n"]:
            raise DamagedRecord(f"{where}: expected n = {len(samples)} as there are samples, found {fields['n']}")
        if not math.isclose(statistics.median(samples), median, rel_tol=1e-9, abs_tol=1e-12):
            raise DamagedRecord(
                f"{where}: expected the median of its samples, {statistics.median(samples):g}, found {median:g}"
            )
    return Series(median, low, high, fields["n"], samples and tuple(samples))


def _keys(fields: dict[str, Any], expected: set[str], where: str) -> None:
    if set(fields) != expected:
        missing, unknown = sorted(expected - set(fields)), sorted(set(fields) - expected)
        raise DamagedRecord(f"{where}: expected the keys {sorted(expected)}; missing {missing}, unknown {unknown}")


def _expected(value: Any, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(value, kind):
        raise DamagedRecord(f"{where}: expected {kind}, found {value!r:.60}")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DamagedRecord(f"{where}: expected a finite number, found {value!r}")
    return float(value)
