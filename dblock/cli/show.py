"""``dblock list``, ``dblock show`` and ``dblock release``: for whoever is on call."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from . import exits
from .options import Place, database_options, name_argument
from .output import complain, printable

if TYPE_CHECKING:
    from ..protocol.state import LockState

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list", short_help="List the locks that are held.")
@json_option
@database_options
def list_(place: Place, as_json: bool) -> int:
    """List the leases: name, holder, since, expires in, fence, number of waiters.

    \b
      dblock list --json | jq '.[].name'

    An expired lease is listed until another takes its name. To a file or a pipe goes a line for
    each, its fields separated by tabs. A row lock lives in a transaction and is not seen: a name
    that has waiters and no holder is locked by one.

    Who has waited for a moment is a waiter, one for all the threads of a process.
    """
    with place.locks() as locks:
        states = locks.list()
    if as_json:
        click.echo(json.dumps([_object(state) for state in states], indent=2))
    elif not states:
        complain("no leases are held")
    elif sys.stdout.isatty():
        _print_table(states)
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
    lock lives in a transaction and is not seen.
    """
    with place.locks() as locks:
        state = locks.show(name)
    if as_json:
        click.echo(json.dumps(_object(state), indent=2))
    else:
        for key, value in [*_block(state), *_waiters(state)]:
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
    return "free" if state.token is None else "expired"


def _object(state: LockState) -> dict[str, Any]:
    """Return what may be told of a name: not the token, and nothing of a hold that is over."""
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


def _since(state: LockState) -> str:
    return f"{state.acquired_at:%Y-%m-%d %H:%M:%S} UTC" if state.acquired_at else ""


def _expires(state: LockState) -> str:
    if state.remaining is None:
        return ""
    return f"{state.remaining:.1f} s" if state.held else "expired"


def _fields(state: LockState) -> list[str]:
    holder = printable(state.owner or "")
    counts = str(state.fence), str(len(state.waiters))
    return [printable(state.name), holder, _since(state), _expires(state), *counts]


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
    return [("waiter", printable(waiter.describe())) for waiter in state.waiters]


def _print_table(states: list[LockState]) -> None:
    from rich.console import Console
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
    Console().print(table)
