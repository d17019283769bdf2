"""``holdfast doctor``: what was found, and how to mend what is not there."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import click

from holdfast.cli.encoding import json_option
from holdfast.doctor import Finding, Verdict, examine

_COLOURS = {Verdict.OK: "green", Verdict.OPTIONAL: "cyan", Verdict.WARNING: "yellow", Verdict.MISSING: "red"}


@click.command()
@json_option()
@click.option(
    "--local-dir", metavar="FOLDER", help="The folder of spark.holdfast.local.dir, where it is not the default."
)
def doctor(as_json: bool, local_dir: str | None) -> None:
    """Look for what Holdfast needs on this machine.

    Exit code 1 when something is missing; warnings, and what is optional, are no failure.
    """
    findings = examine(local_dir)
    counted = Counter(finding.verdict for finding in findings)
    if as_json:
        counts = {"missing": counted[Verdict.MISSING], "warnings": counted[Verdict.WARNING]}
        click.echo(json.dumps({**counts, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _show(findings)
        click.echo(_summary(counted[Verdict.MISSING], counted[Verdict.WARNING]))
    raise SystemExit(1 if counted[Verdict.MISSING] else 0)


def _show(findings: list[Finding]) -> None:
    verdict_width = max(len(verdict.value) for verdict in Verdict) + 2
    name_width = max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        verdict = click.style(finding.verdict.value.ljust(verdict_width), fg=_COLOURS[finding.verdict])
        click.echo(f"{verdict}{finding.name.ljust(name_width)}{finding.found}")
        if finding.mend:
            click.echo(f"{' ' * (verdict_width + name_width)}→ {finding.mend}")


def _summary(missing: int, warnings: int) -> str:
    warned = f"{warnings} warning{'' if warnings == 1 else 's'}"
    if missing:
        return f"\nHoldfast will not work here: {missing} missing, {warned}."
    return f"\nHoldfast has what it needs{f', with {warned}' if warnings else ''}."
