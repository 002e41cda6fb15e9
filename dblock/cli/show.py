"""``dblock list``, ``dblock show`` and ``dblock release``: for whoever is on call."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ..printable import printable
from . import exits
from .options import Place, database_options, name_argument
from .output import complain

if TYPE_CHECKING:
    from datetime import datetime

    from rich.table import Table

    from ..lock_state import LockState
    from ..protocol.state import RunState

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list", short_help="List the locks that are held.")
@json_option
@click.option("-w", "--watch", "watching", is_flag=True, help="Go on looking, every second.")
@database_options
def list_(place: Place, as_json: bool, watching: bool) -> int:
    """List the leases: name, holder, since, expires in, fence, number of waiters.

    \b
      dblock list --json | jq '.[].name'

    An expired lease is listed until another takes its name. To a file or a pipe goes a line for
    each, its fields separated by tabs. A row lock lives in a transaction and is not seen: a name
    that has waiters and no holder is locked by one. With --watch the list is kept up to date
    until you press q.

    Who has waited for a moment is a waiter, one for all the threads of a process.
    """
    if watching and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for a terminal, and not with --json")
    with place.locks() as locks:
        if watching:
            from .watch import watch

            watch(lambda: _table(locks.list()))
            return exits.OK
        states = locks.list()
    if as_json:
        click.echo(json.dumps([_object(state) for state in states], indent=2))
    elif not states:
        complain("no leases are held")
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(_table(states))
    else:
        for state in states:
            click.echo("\t".join(_fields(state)))
    return exits.OK


@click.command("show", short_help="Show who holds a lock.")
@name_argument
@json_option
@database_options
def show(place: Place, name: str, as_json: bool) -> int:
    """Show who holds the lock NAME, since when and until when, and who waits for it.

    \b
      dblock show nightly || echo free

    Exits with 0 when it is held and 1 when it is free: released, expired or never taken. A row
    lock lives in a transaction and is not seen. Of a job, how its last run ended is shown too.
    """
    with place.locks() as locks:
        state, run = locks.show(name), locks.last_run(name)
    if as_json:
        shown = _object(state) | {"last_run": None if run is None else _run_object(run)}
        click.echo(json.dumps(shown, indent=2))
    else:
        for key, value in [*_block(state), *_waiters(state), *_run_block(run)]:
            click.echo(f"{key:8}{value}")
    return exits.OK if state.held else exits.FREE


@click.command("release", short_help="Take a lock from its holder.")
@name_argument
@click.option("--force", is_flag=True, help="Needed: the holder is not asked.")
@database_options
def release(place: Place, name: str, force: bool) -> int:
    """Free the lock NAME, whoever holds it. Exits with 1 when nobody did.

    \b
      dblock release nightly --force

    The holder learns of it at its next renewal. Until then two may be at work.
    """
    if not force:
        raise click.UsageError(
            "this takes the lock from a holder who may still be at work: say --force"
        )
    with place.locks() as locks:
        state = locks.show(name)
        released = locks.release(name, force=True)
    if not released:
        complain(f"nobody held {name!r}")
        return exits.FREE
    what = state.describe() if state.held else f"expired, last held by {state.owner}"
    click.echo(printable(f"released {name!r}: it was {what}"))
    return exits.OK


def _status(state: LockState) -> str:
    if state.held:
        return "held"
    return "free" if state.remaining is None else "expired"


def _object(state: LockState) -> dict[str, Any]:
    """Return what is told of a name: nothing of a hold that was given back."""
    status = _status(state)
    over = status == "free"
    return {
        "name": state.name,
        "state": status,
        "holder": None if over else state.owner,
        "since": None if over or state.acquired_at is None else state.acquired_at.isoformat(),
        "expires_at": None if over or state.expires_at is None else state.expires_at.isoformat(),
        "expires_in": None if over or state.remaining is None else round(state.remaining, 3),
        "fence": state.fence,
        "waiters": [
            {
                "waiter": waiter.owner,
                "for": waiter.strategy,
                "since": waiter.since.isoformat(),
                "waited": round(waiter.waited, 3),
            }
            for waiter in state.waiters
        ],
    }


def _run_object(run: RunState) -> dict[str, Any]:
    return {
        "slot": run.slot or None,
        "owner": run.owner,
        "started_at": None if run.started_at is None else run.started_at.isoformat(),
        "ended_at": None if run.ended_at is None else run.ended_at.isoformat(),
        "exit_status": run.exit_status,
    }


def _moment(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""


def _expires(state: LockState) -> str:
    if state.remaining is None:
        return ""
    return f"{state.remaining:.1f} s" if state.held else "expired"


def _fields(state: LockState) -> list[str]:
    holder = printable(state.owner or "")
    return [
        printable(state.name),
        holder,
        _moment(state.acquired_at),
        _expires(state),
        str(state.fence),
        str(len(state.waiters)),
    ]


def _block(state: LockState) -> list[tuple[str, str]]:
    name, holder, since, expires, fence, _ = _fields(state)
    status = _status(state)
    lines = [("name", name), ("state", status)]
    if status != "free":
        lines += [("holder", holder), ("since", since)]
    if status == "held":
        lines += [("expires", f"in {expires}")]
    return [*lines, ("fence", fence)]


def _waiters(state: LockState) -> list[tuple[str, str]]:
    return [("waiter", waiter.describe()) for waiter in state.waiters]


def _run_block(run: RunState | None) -> list[tuple[str, str]]:
    if run is None:
        return []
    end = "no end on record"
    if run.ended_at is not None:
        end = f"exit status {run.exit_status} at {_moment(run.ended_at)}"
    slot = f" for {printable(run.slot)}" if run.slot else ""
    begin = f"{_moment(run.started_at)} by {printable(run.owner or '')}{slot}"
    return [("run", begin), ("ended", end)]


def _table(states: list[LockState]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("NAME", "HOLDER", "SINCE", "EXPIRES IN", "FENCE", "WAITERS"):
        last = heading in ("EXPIRES IN", "FENCE", "WAITERS")
        table.add_column(heading, justify="right" if last else "left", overflow="fold")
    for state in states:
        # As Text: a name may look like markup.
        style = "" if state.held else "dim"
        table.add_row(*(Text(field, style=style) for field in _fields(state)))
    return table
