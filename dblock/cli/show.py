"""``dblock list``, ``dblock show``, ``dblock release`` and ``dblock resize``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ..arguments import FENCE_MAX, check_limit
from ..errors import StaleFence
from ..formats.state_object import run_object, state_object
from ..lock_state import counted, moment, printable
from . import exits
from .options import Location, checked, database_options, json_option, name_argument
from .output import complain, print_table, table
from .runs import run_lines

if TYPE_CHECKING:
    from rich.table import Table

    from ..lock_state import LockState

#: How wide the labels of ``dblock show`` are: two more than the longest, "expires".
LABELS = 9
HEADINGS = ("NAME", "STATE", "HOLDER", "SINCE", "EXPIRES IN", "FENCE", "WAITERS")


@click.command("list", short_help="List the locks that are held.")
@json_option
@click.option(
    "-w",
    "--watch",
    "watching",
    is_flag=True,
    help="Stay on the terminal and refresh every second.",
)
@database_options
def list_(place: Location, as_json: bool, watching: bool) -> int:
    """List the locks: name, state, holder, since, expires in, fence, number of waiters.

    \b
      dblock list --json | jq '.[].name'

    On a terminal it prints a table. Elsewhere it prints a line for each lock, with tabs between the
    fields. --watch shows the table until you press q.

    \b
      held      a process holds a lease
      running   a job runs under a lease
      done      the job has ended, and --at-least keeps its name
      locked    a transaction holds the row lock
      expired   the holder did not release the lease, and no process has taken the name since

    Row locks are listed on PostgreSQL, and on the other databases if a process waits for them. A
    waiter is listed after about a second. The waiting threads of a process count as one.
    """
    if watching and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for a terminal, and cannot be combined with --json")
    with place.either(named=not as_json and not watching) as locks:
        if watching:
            from .watch import watch

            watch(lambda: _table(locks.list()), place.where())
            return exits.OK
        states = locks.list()
    if as_json:
        click.echo(json.dumps([state_object(state) for state in states], indent=2))
    elif not states:
        complain("nobody holds a lock")
    elif sys.stdout.isatty():
        print_table(_table(states))
    else:
        for state in states:
            click.echo("\t".join(_fields(state)))
    return exits.OK


@click.command("show", short_help="Show who holds a lock.")
@name_argument
@json_option
@database_options
def show(place: Location, name: str, as_json: bool) -> int:
    """Show who holds the lock NAME, since when and until when, and who waits for it.

    \b
      dblock show nightly || echo free

    It exits with 0 if the lock is held, and with 1 if it is free: released, expired or never taken.
    It also shows how the last run of a job ended, and how many slots of a semaphore are held: one
    with a slot left is free.

    A row lock belongs to a transaction. On PostgreSQL dblock shows whose transaction that is. On
    MySQL and MariaDB it shows a row lock after a process has waited for it for a few seconds. On
    SQLite it shows only that a transaction is writing to the file.
    """
    from ..locks import Locks

    with place.either() as locks:
        state = locks.show(name)
        run = state.run
        if run is None and isinstance(locks, Locks):
            run = locks.last_run(name)
    if as_json:
        shown = state_object(state) | {"last_run": None if run is None else run_object(run)}
        click.echo(json.dumps(shown, indent=2))
    else:
        for key, value in [*_block(state), *_waiters(state), *run_lines(run)]:
            click.echo(f"{key:{LABELS}}{value}")
    return exits.FREE if state.status in ("free", "expired") else exits.OK


@click.command("resize", short_help="Change the limit of a semaphore.")
@name_argument
@click.argument("limit", type=int, callback=checked(check_limit))
@database_options
def resize(place: Location, name: str, limit: int) -> int:
    """Set the limit of the semaphore NAME to LIMIT.

    \b
      dblock resize api 5

    From then on dblock refuses processes with another limit: restart them with the new limit. A
    holder of a slot above the limit keeps its slot. It exits with 1 if there is no such semaphore.
    """
    with place.locks() as locks:
        if locks.show(name).slots is None:
            complain(f"there is no semaphore {name!r}, or this role may not see its limit")
            return exits.FREE
        above = locks.semaphore(name, limit).resize(limit)
    held = counted(above, "above that is still held", "above that are still held")
    rest = f"; {held}" if above else ""
    click.echo(printable(f"{name!r} has {counted(limit, 'slot')} now{rest}"))
    return exits.OK


@click.command("release", short_help="Take a lock from its holder.")
@name_argument
@click.option("--force", is_flag=True, help="Required, because dblock does not ask the holder.")
@click.option(
    "--fence",
    type=click.IntRange(1, FENCE_MAX),
    metavar="N",
    help="Release only the hold with this fence, as dblock show has it.",
)
@database_options
def release(place: Location, name: str, force: bool, fence: int | None) -> int:
    """Free the lock NAME without asking its holder. It exits with 1 if the lock was free.

    \b
      dblock release nightly --force
      dblock release nightly --force --fence 42

    The holder finds out at its next renewal, at most a third of its TTL later. Until then two
    holders may be at work. With --fence a holder that has come since you looked keeps the lock, and
    it exits with 75.
    """
    if not force:
        raise click.UsageError(
            "this takes the lock from a holder that may still be at work: confirm with --force"
        )
    if fence is not None and place.several:
        raise click.UsageError(
            "--fence is for one database: at a quorum each member has a fence of its own. Leave it "
            "out"
        )
    from ..locks import Locks

    with place.either() as locks:
        state = locks.show(name)
        try:
            if isinstance(locks, Locks):
                released = locks.release(name, force=True, fence=fence)
            else:
                released = locks.release(name, force=True)
        except StaleFence as newer:
            complain(str(newer))
            return exits.BUSY
    if not released:
        complain(f"nobody held {name!r}")
        return exits.FREE
    what = state.describe() if state.held else f"expired, last held by {state.owner}"
    click.echo(printable(f"released {name!r}: it was {what}"))
    return exits.OK


def _state(state: LockState) -> str:
    if state.held and state.readers is not None:
        return f"{state.status}, shared by {state.readers}"
    done = state.status == "done"
    return f"done, kept until {moment(state.expires_at)}" if done else state.status


def _fields(state: LockState) -> list[str]:
    holder, since = state.owner, state.acquired_at
    if state.row_lock is not None:
        holder, since = state.row_lock.holder, state.row_lock.since
    unheld = state.status in ("free", "full")
    return [
        printable(state.name),
        _state(state),
        "" if unheld else printable(holder or ""),
        "" if unheld else moment(since),
        f"{state.remaining:.1f} s" if state.held else "",
        str(state.fence),
        str(len(state.waiters)),
    ]


def _block(state: LockState) -> list[tuple[str, str]]:
    name, status, holder, since, expires, fence, _ = _fields(state)
    lines = [("name", name), ("state", status), ("holder", holder), ("since", since)]
    if state.row_lock is not None and state.row_lock.statement:
        lines += [("last", printable(state.row_lock.statement))]
    lines += [("expires", f"in {expires}" if expires else ""), ("fence", fence)]
    if state.slots is not None:
        lines += [("slots", state.slots.describe())]
    return [(key, value) for key, value in lines if value]


def _waiters(state: LockState) -> list[tuple[str, str]]:
    return [("waiter", waiter.describe()) for waiter in state.waiters]


def _table(states: list[LockState]) -> Table:
    return table(
        HEADINGS,
        map(_fields, states),
        right=HEADINGS[4:],
        styles=["dim" if state.status == "expired" else "" for state in states],
    )
