"""``dblock doctor``: find what in the database's set-up breaks a promise."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ..io.target import address
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
    line for each finding, with tabs between the fields. With several databases, a quorum, it names
    the member before each finding, and says whether the member votes.
    """
    found = _examine(place)
    shown = [each for each in found if not quiet or each[1].level.value != "ok"]
    if as_json:
        click.echo(json.dumps([_object(*each) for each in shown], indent=2))
    elif sys.stdout.isatty():
        _print_table(shown)
    else:
        for each in shown:
            values = (value.replace("\n", " ") for value in _object(*each).values())
            click.echo("\t".join(map(printable, values)))
    bad = any(finding.level.value == "wrong" for _, finding in found)
    return exits.WRONG if bad else exits.OK


def _examine(place: Location) -> list[tuple[str, Finding]]:
    """Return the findings, each with the member of the quorum, or with "" for one database."""
    if place.several:
        from ..doctor.quorum import examine_members

        with place.quorum() as quorum:
            members = zip(place.urls, examine_members(quorum), strict=True)
            return [(address(url), finding) for url, found in members for finding in found]
    from ..doctor import examine

    with place.locks() as locks:
        return [("", finding) for finding in examine(locks)]


def _object(member: str, finding: Finding) -> dict[str, str]:
    whose = {"member": member} if member else {}
    return whose | {
        "level": finding.level.value,
        "what": finding.what,
        "found": finding.found,
        "consequence": finding.consequence,
        "fix": finding.fix,
    }


def _print_table(found: list[tuple[str, Finding]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("", "WHAT", "FOUND"):
        table.add_column(heading, overflow="fold")
    before = ""
    for member, finding in found:
        if member != before:
            table.add_row("", "", Text(printable(member), style="bold"))
            before = member
        said = [printable(finding.found)]
        if finding.consequence:
            first, *more = map(printable, finding.fix.splitlines())
            said += [f"so: {printable(finding.consequence)}", f"do: {first}", *more]
        level = finding.level.value
        what = Text(printable(finding.what))
        table.add_row(Text(level, style=STYLES[level]), what, Text("\n".join(said)))
    Console().print(table)
