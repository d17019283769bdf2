"""Gathers the sources of the site in build/pages: the pages of docs/, those of the root, and a reference with a page
for each kind of name that `holdfast` exports, which mkdocstrings fills from the docstrings. Writes build/mkdocs.yml
beside them, from .ci/site.yml. `make docs` runs it; mkdocs then calls `on_page_content`.

Links between pages lead to where the pages are here; links to what is no page (examples, tests) become plain words.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "pages"

#: Pages of the root, by the name that they get.
OF_THE_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}

#: Pages of the reference: title, and what stands there. tests/tidy/test_docs.py compares them with `holdfast.__all__`.
REFERENCE = {
    "operators.md": ("Operators", ["keyed", "connect", "broadcast", "Restore", "SideOutput", "select_output"]),
    "processors.md": ("Processors", ["BatchProcessor", "KeyedProcessor", "Context"]),
    "states.md": (
        "States",
        ["ValueState", "ListState", "MapState", "ReducingState", "AggregatingState", "AggregateFunction", "TTL"],
    ),
    "more_states.md": (
        "Timers, states without keys, states that change",
        ["Timers", "BroadcastState", "OperatorState", "DroppedState", "renamed_from", "dropped_field", "with_default"],
    ),
    "queries.md": (
        "Queries",
        ["start", "write_exactly_once", "Query", "await_termination", "terminal_log", "fork_checkpoint"],
    ),
    "kafka_and_files.md": ("Sources, sinks, storage", ["register_sources", "KafkaSink", "FileSink", "StorageOptions"]),
    "checkpoints.md": ("Checkpoints and savepoints", ["Checkpoint", "Savepoint", "OperatorTables"]),
    "metrics.md": (
        "Metrics",
        ["metrics", "QueryMetrics", "MetricsListener", "BatchMetrics", "OperatorMetrics", "SourceStall"],
    ),
    "errors.md": (
        "Errors",
        ["HoldfastError", "InvalidRequest", "Unavailable", "Incompatible", "Fenced", "Corrupt", "Undecided",
         "InternalError"],
    ),
}  # fmt: skip
TESTING = ["Harness", "KafkaBroker", "KafkaCluster"]

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]+)?\)")
_ROLE = re.compile(r":(?:class|func|attr|meth|mod):(?=<code>)")
_FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def pages():
    """Every page, by its path in the tree: where it stands on the site."""
    found = {ROOT / source: TARGET / name for source, name in OF_THE_ROOT.items()}
    for source in sorted((ROOT / "docs").rglob("*.md")):
        found[source] = TARGET / source.relative_to(ROOT / "docs")
    return found


def with_links(text, source, places):
    """The text of a page with its links as they are on the site; code is left alone."""

    def placed(link):
        words, target, section = link[1], (source.parent / link[2]).resolve(), link[3] or ""
        if target not in places:
            return words
        return f"[{words}]({os.path.relpath(places[target], places[source].parent)}{section})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(placed, part) for part in parts)


def reference(module, names):
    """What mkdocstrings is told to show."""
    return "".join(f"::: {module}.{name}\n\n" for name in names)


def title(page):
    return re.search(r"^# (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)[1]


def gather():
    shutil.rmtree(TARGET, ignore_errors=True)
    places = pages()
    for source, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(with_links(source.read_text(encoding="utf-8"), source, places), encoding="utf-8")
    (TARGET / "reference").mkdir()
    listed = {**{name: (heading, reference("holdfast", names)) for name, (heading, names) in REFERENCE.items()},
              "testing.md": ("Testing", reference("holdfast.testing", TESTING))}  # fmt: skip
    for name, (heading, text) in listed.items():
        (TARGET / "reference" / name).write_text(f"# {heading}\n\n{text}", encoding="utf-8")
    folders = {folder: sorted((TARGET / folder).glob("*.md")) for folder in ("rfcs", "formats")}
    folders["reference"] = [TARGET / "reference" / name for name in listed]
    configuration = (ROOT / ".ci" / "site.yml").read_text(encoding="utf-8")
    for folder, inside in folders.items():
        rows = "".join(f"          - {title(page)!r}: {page.relative_to(TARGET)}\n" for page in inside)
        configuration = re.sub(rf"(- \w+:) {folder}/\n", lambda found, rows=rows: f"{found[1]}\n{rows}", configuration)
    (ROOT / "build" / "mkdocs.yml").write_text(configuration, encoding="utf-8")


def on_page_content(html, **_):
    """Sphinx's roles, which docstrings have for editors, mean nothing here."""
    return _ROLE.sub("", html)


if __name__ == "__main__":
    gather()
