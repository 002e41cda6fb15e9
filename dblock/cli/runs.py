"""``dblock runs``: the record of a job's runs; and how other commands show a run."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..arguments import check_name
from ..formats.state_object import run_object
from ..lock_state import moment, printable
from . import exits
from .options import Location, checked, database_options, json_option, limit_option, name_argument
from .output import complain, print_table, table

if TYPE_CHECKING:
    from ..lock_state import RunState
    from ..locks import Locks

HEADINGS = ("STARTED", "SLOT", "OWNER", "ENDED", "SECONDS")


@click.command("runs", short_help="List the runs of a job.")
@name_argument
@json_option
@limit_option(20, "Show at most N runs.")
@click.option(
    "--reopen",
    "slot",
    callback=checked(partial(check_name, what="a slot")),
    metavar="SLOT",
    help="Let the job run again in SLOT: delete the record of the run that succeeded in it.",
)
@database_options
def runs(place: Location, name: str, as_json: bool, limit: int, slot: str | None) -> int:
    """List the runs of the job NAME, the newest first: start, slot, owner, end, seconds.

    \b
      dblock runs nightly --limit 5
      dblock runs nightly --reopen 2026-11-21

    Each slot of a job has one record, of its last run. All runs without a slot share one record.
    dblock prune deletes old records. On a terminal it prints a table. Elsewhere it prints a line
    for each run, with tabs between the fields.
    """
    if slot is not None and as_json:
        raise click.UsageError("--json is for the list: --reopen prints none")
    given = click.get_current_context().get_parameter_source("limit")
    if slot is not None and given is not ParameterSource.DEFAULT:
        raise click.UsageError("--limit is for the list: --reopen prints none")
    with place.locks() as locks:
        if slot is not None:
            return _reopen(locks, name, slot)
        found = locks.runs(name, limit)
    if as_json:
        click.echo(json.dumps([run_object(run) for run in found], indent=2))
    elif not found:
        complain(f"no run of {name!r} is on record")
    elif sys.stdout.isatty():
        print_table(table(HEADINGS, map(_fields, found), right=HEADINGS[-1:]))
    else:
        for run in found:
            click.echo("\t".join(_fields(run)))
    return exits.OK


def _reopen(locks: Locks, name: str, slot: str) -> int:
    if locks.reopen(name, slot):
        click.echo(printable(f"{slot!r} of {name!r} is open: the next start runs it"))
        return exits.OK
    run = locks.show(name).run
    if run is not None and run.running and run.slot == slot:
        complain(f"{name!r} is running for {slot!r}")
    else:
        complain(f"{slot!r} of {name!r} was open: no run that succeeded is on record for it")
    return exits.OPEN


def run_lines(run: RunState | None) -> list[tuple[str, str]]:
    """Return the lines of ``dblock show`` about a job's last run."""
    if run is None:
        return []
    slot = f" for {printable(run.slot)}" if run.slot else ""
    begin = f"{moment(run.started_at)} by {printable(run.owner or '')}{slot}"
    at = f" at {moment(run.ended_at)}" if run.ended_at is not None else ""
    return [("run", begin), ("ended", f"{_end(run)}{at}")]


def _end(run: RunState) -> str:
    if run.ended_at is not None:
        return f"exit status {run.exit_status}"
    return "running" if run.running else "no end on record"


def _fields(run: RunState) -> list[str]:
    return [
        moment(run.started_at),
        printable(run.slot),
        printable(run.owner or ""),
        _end(run),
        "" if run.seconds is None else f"{run.seconds:.1f}",
    ]
