"""This tree beside an earlier commit of it: processor seconds of the same work, by pairs, each in a process of its own.

The earlier commit is checked out and built in build/beside, once. Figures are `beside.<part>`: this tree ÷ the earlier
one, the median over pairs; at most 1.03 is wanted. Which of a pair begins changes from pair to pair. Processor time
counts what was done, not for how long one waited: it bears other work on the machine better than the clock does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks.figures import IN_TURNS, ROOT, arguments, at_most, middle, spread
from benchmarks.turns import turns

PARTS = ("small_batch", "core_ops", "keyed_sum", "growth", "recovery", "query")
HERE, EARLIER = "this tree", "the earlier one"


def built(commit: str) -> tuple[Path, Path]:
    """The tree of a commit, and a Python that has its ``holdfast`` and, beneath, all that this one has."""
    full = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout.strip()
    tree = ROOT / "build" / "beside" / full
    python = tree / ".venv" / "bin" / "python"
    if not (tree / "built").exists():
        print(f"building {full[:12]} in {tree}", flush=True)
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", full], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit(f"git archive {full} ended with {archive.returncode}")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tree / ".venv"], check=True)
        (site,) = (tree / ".venv" / "lib").glob("python*/site-packages")
        (site / "beneath.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        install = ["-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--ignore-installed"]
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run([python, *install, tree], check=True, env={**os.environ, "PATH": tools})
        (tree / "built").touch()
    return tree, python


def measured(tree: Path, python: Path, part: str, share: float) -> float:
    """Processor seconds of one part in a tree."""
    with tempfile.TemporaryDirectory(prefix="holdfast-beside-", dir=ROOT / "build" / "beside") as folder:
        program = Path(folder) / "parts.py"
        shutil.copy2(Path(__file__).with_name("parts.py"), program)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
        environment |= {"PYTHONPATH": str(tree), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        command = [str(python), str(program), folder, str(share), part]
        ran = subprocess.run(command, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("processor seconds ")]
    return float(json.loads(line.removeprefix("processor seconds "))[part])


def main() -> None:
    """Five pairs of each part."""
    parser = arguments(__doc__, pairs=5)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part, or several")
    given = parser.parse_args()
    if given.record:
        raise SystemExit("figures against a commit of long ago are no figures of this one: they are not recorded")
    pairs, share = (1, 0.01) if given.short else (given.pairs, 1.0)
    (ROOT / "build" / "beside").mkdir(parents=True, exist_ok=True)
    trees = {HERE: (ROOT, Path(sys.executable)), EARLIER: built(given.commit)}
    for part in given.only or PARTS:

        def once(way: str, part: str = part) -> float:
            return measured(*trees[way], part, share)

        found = turns(list(trees), pairs, once)
        print(f"{part}, processor seconds: {', '.join(f'{way} {spread(found[way])}' for way in trees)}", flush=True)
        ratios = [ours / theirs for ours, theirs in zip(found[HERE], found[EARLIER], strict=True)]
        note = f"pair by pair {spread(ratios)}, {min(ratios):.3g} to {max(ratios):.3g}"
        middle(f"beside.{part}", ratios, at_most(1.03), note, IN_TURNS)


if __name__ == "__main__":
    main()
