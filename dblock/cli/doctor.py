"""``dblock doctor``: find what in the database's set-up breaks a promise."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ..lock_state import printable
from . import exits
from .options import Location, database_options, json_option

if TYPE_CHECKING:
    from ..doctor import Finding

STYLES = {"ok": "green", "note": "yellow", "wrong": "bold red"}


@click.command("doctor", short_help="Check the set-up of the database.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Leave out findings that are ok.")
@database_options
def doctor(place: Location, as_json: bool, quiet: bool) -> int:
    """Check the database's set-up: print each finding, its consequence, and what to do.

    \b
      dblock doctor --quiet

    It changes nothing. It exits with 1 if something is wrong: then a promise does not hold. A note
    is worth knowing, but breaks no promise. On a terminal it prints a table. Elsewhere it prints a
    line for each finding, with tabs between the fields.
    """
    from ..doctor import examine

    with place.locks() as locks:
        findings = examine(locks)
    shown = [finding for finding in findings if not quiet or finding.level.value != "ok"]
    if as_json:
        click.echo(json.dumps([_object(finding) for finding in shown], indent=2))
    elif sys.stdout.isatty():
        _print_table(shown)
    else:
        for finding in shown:
            values = (value.replace("\n", " ") for value in _object(finding).values())
            click.echo("\t".join(map(printable, values)))
    bad = any(finding.level.value == "wrong" for finding in findings)
    return exits.WRONG if bad else exits.OK


def _object(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.value,
        "what": finding.what,
        "found": finding.found,
        "consequence": finding.consequence,
        "fix": finding.fix,
    }


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("", "WHAT", "FOUND"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        said = [printable(finding.found)]
        if finding.consequence:
            first, *more = map(printable, finding.fix.splitlines())
            said += [f"so: {printable(finding.consequence)}", f"do: {first}", *more]
        level = finding.level.value
        what = Text(printable(finding.what))
        table.add_row(Text(level, style=STYLES[level]), what, Text("\n".join(said)))
    Console().print(table)
