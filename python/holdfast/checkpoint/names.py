"""Names of a slot's files, in storage and on the local disk. Whoever reads a name takes it from here.

In storage, under ``<query id>/<operator>/``: ``operator.json``, ``states/<number>.json``, of earlier versions
``timers/<id>.json`` and ``operator_states/<id>.json``, ``runs/<number>-<run id>.json``, in a generation with an origin
``opened.json``, where a state has or had a TTL ``ttls/<number>.json``, and, for each slot, a folder
``slot-00007/`` with ``delta/<sequence>-<version id>.arrow``, ``snapshot/<sequence>-<version id>-<snapshot id>.json``,
``sst/<snapshot id>-<file>`` and, with an origin, ``origin.json``.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from holdfast._core import xxh64

_SEQUENCE_DIGITS = 12
_RUN_DIGITS = 16
#: In a slot's folder: the handle of the first version of a generation that has an origin.
FIRST_VERSION = "origin.json"
#: In a slot's folder: what the names of snapshots' files begin with.
TABLES = "sst/"
#: In an operator's folder: since which batch all slots of such a generation have a handle.
OPENED = "opened.json"
#: In a query's folder, beside its operators: what the names of notes on earlier queries begin with.
TAKEOVER = "takeover-"
_RUN = re.compile(r"(?:(\d{12,})-)?(.+)\.json")
_LOGGED = re.compile(r"(\d{5,})\.json")
_ALIVE = re.compile(r"(.+)\.(\d{5,})-(\d{12,})-([0-9a-f]{32})\.alive")
_VERSIONED = re.compile(r"(\d{12,})-([0-9a-f]{32})(?:-[0-9a-f]{32})?(?:\.arrow|\.json)?")


def operator_prefix(query_id: str, operator: str) -> str:
    """The folder of an operator: its name percent-encoded, so that any name is one part of a path."""
    return f"{query_folder(query_id)}/{encode_operator(operator)}"


def query_folder(query_id: str) -> str:
    return quote(query_id, safe="")


def takeover_name(query_id: str, source: str) -> str:
    """Of the note how the operators of a query begin that take over the state of an earlier one, or of a savepoint."""
    return f"{query_folder(query_id)}/{TAKEOVER}{quote(source, safe='')}.json"


def encode_operator(operator: str) -> str:
    encoded = quote(operator, safe="")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def slot_prefix(prefix: str, slot: int) -> str:
    return f"{prefix}/slot-{slot:05d}"


def version_name(sequence: int, version_id: str) -> str:
    return f"{sequence:0{_SEQUENCE_DIGITS}d}-{version_id}"


def run_name(number: int, run_id: str) -> str:
    return f"runs/{number:0{_SEQUENCE_DIGITS}d}-{encode_operator(run_id)}.json"


def added_state_name(folder: str, state_id: int | None = None) -> str:
    """Of the record of one added state, of earlier versions; None: what all those of the folder begin with."""
    return f"{folder}/" if state_id is None else f"{folder}/{state_id:05d}.json"


def states_name(number: int | None = None) -> str:
    """Of a document of the log of states; None: what all of them begin with."""
    return "states/" if number is None else f"states/{number:05d}.json"


def parse_logged(name: str) -> int:
    """The number of a document of the log of states, or of that of TTLs; 0: it is none."""
    match = _LOGGED.fullmatch(name.rpartition("/")[2])
    return int(match.group(1)) if match else 0


def ttls_name(number: int | None = None) -> str:
    """Of a document of the log of TTLs; None: what all of them begin with."""
    return "ttls/" if number is None else f"ttls/{number:05d}.json"


def alive_name(run_id: str, slot: int, sequence: int, version_id: str) -> str:
    """Of the note that a run, whose version of a slot this is, had gone on when a newer one began."""
    return f"runs/{encode_operator(run_id)}.{slot:05d}-{version_name(sequence, version_id)}.alive"


def parse_alive(name: str) -> tuple[str, int, int, str] | None:
    """(run id, slot, sequence, version id) of such a note."""
    match = _ALIVE.fullmatch(name.rpartition("/")[2])
    return (unquote(match.group(1)), int(match.group(2)), int(match.group(3)), match.group(4)) if match else None


def parse_run(name: str) -> tuple[int, str] | None:
    """(number, run id) of a run's file; number 0 for what earlier versions wrote, which have none."""
    match = _RUN.fullmatch(name.rpartition("/")[2])
    return (int(match.group(1) or 0), unquote(match.group(2))) if match else None


def attempt_version_id(run_id: str, task_attempt_id: int) -> str:
    """The id of the versions that a task attempt of a streaming query prepares, one in each slot that it runs.

    An attempt runs once, so nobody else has it; and whoever knows the attempt, as a commit record does, finds them.
    """
    return f"{run_digits(run_id)}{task_attempt_id:016x}"


def run_delta_prefix(sequence: int, run_id: str) -> str:
    """What the names of all deltas of a run at a sequence begin with."""
    return f"delta/{sequence:0{_SEQUENCE_DIGITS}d}-{run_digits(run_id)}"


def run_digits(run_id: str) -> str:
    """What the ids of all versions that a run prepared begin with."""
    return f"{xxh64(run_id.encode()):0{_RUN_DIGITS}x}"


def maker_of(version_id: str) -> str:
    """The :func:`run_digits` of the run that prepared a version."""
    return version_id[:_RUN_DIGITS]


def delta_name(sequence: int, version_id: str) -> str:
    return f"delta/{version_name(sequence, version_id)}.arrow"


def manifest_name(sequence: int, version_id: str, snapshot_id: str) -> str:
    return f"snapshot/{version_name(sequence, version_id)}-{snapshot_id}.json"


def table_name(snapshot_id: str, file: str) -> str:
    """Where a snapshot stores a file of its base (not only tables: RocksDB's small files too)."""
    return f"{TABLES}{snapshot_id}-{file}"


def parse_version(name: str) -> tuple[int, str] | None:
    """(sequence, version id) of the file or folder ``name``; None when it is no such name."""
    match = _VERSIONED.fullmatch(name.rpartition("/")[2])
    return (int(match.group(1)), match.group(2)) if match else None
