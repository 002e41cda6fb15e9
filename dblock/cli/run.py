"""``dblock run``: hold a lease while a command runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..arguments import check_label, check_ttl, check_wait
from ..errors import DBLockError, LockLost, NotAcquired
from . import exits
from .child import Child, Interrupted, Signals, supervise
from .options import Place, checked, database_options, name_argument
from .output import complain

if TYPE_CHECKING:
    from ..lease import Lease


class RunCommand(click.Command):
    """Leaves what follows ``--`` alone: an option there is the command's, never dblock's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ours, command = args[:at], args[at + 1 :]
        ctx.ignore_unknown_options = not command  # they are the command's, without the --
        super().parse_args(ctx, ours)
        if (ctx.args or not command) and not ctx.resilient_parsing:
            ctx.fail("the command comes after --: dblock run NAME [OPTIONS] -- COMMAND [ARGS]...")
        ctx.args = command
        return command

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME", "[OPTIONS]", "--", "COMMAND", "[ARGS]..."]


@click.command(
    "run",
    cls=RunCommand,
    context_settings={"allow_extra_args": True},
    short_help="Run a command while holding a lock.",
)
@name_argument
@click.option(
    "--ttl",
    type=float,
    callback=checked(check_ttl),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long the lock outlives a dblock that was killed; renewed every third of it.",
)
@click.option(
    "--wait",
    type=float,
    callback=checked(check_wait),
    metavar="SECONDS",
    help="How long to wait for the lock. Default: for ever.",
)
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait at all.")
@click.option(
    "-E",
    "--conflict-exit-code",
    "busy",
    type=click.IntRange(0, 255),
    default=exits.BUSY,
    show_default=True,
    metavar="N",
    help="The exit code for busy; 0 makes it a quiet success.",
)
@click.option(
    "--label",
    callback=checked(check_label),
    help="What dblock list shows beside host and pid.",
)
@database_options
@click.pass_context
def run(
    ctx: click.Context,
    place: Place,
    name: str,
    ttl: float,
    wait: float | None,
    nonblock: bool,
    busy: int,
    label: str | None,
) -> int:
    """Run COMMAND while holding the lock NAME.

    \b
      dblock run nightly --wait 60 -- ./backup.sh --full

    COMMAND finds DBLOCK_NAME, DBLOCK_FENCE and DBLOCK_TOKEN in its environment, and gets the
    signals TERM, INT, HUP and QUIT that dblock gets. When the lock is lost it gets TERM, 10
    seconds later KILL, and the exit code is 79.

    Killed by KILL itself, dblock leaves COMMAND running, and the lock runs out after its TTL.
    """
    if nonblock and wait is not None:
        raise click.UsageError("--wait and --nonblock exclude each other")
    signals = Signals()
    lost: list[LockLost] = []

    def on_lost(loss: LockLost) -> None:
        lost.append(loss)
        signals.wake()

    try:
        with place.locks() as locks:
            lease = locks.lease(name, ttl, 0.0 if nonblock else wait, label=label, on_lost=on_lost)
            _acquire(lease, signals)
            return _run(lease, ctx.args, signals, lost)
    except Interrupted as interrupted:
        return exits.SIGNALLED + interrupted.number
    except NotAcquired as refusal:
        if busy != exits.OK:
            complain(str(refusal))
        return busy


def _acquire(lease: Lease, signals: Signals) -> None:
    """Get the lease; a signal until then ends it, and nothing is held."""
    try:
        signals.interrupt()
        refusal = lease.try_within(lease.wait)
        if refusal is not None:
            raise refusal
        signals.keep()
    except Interrupted:
        if lease.held:
            _release(lease, exits.OK)
        raise


def _run(lease: Lease, command: Sequence[str], signals: Signals, lost: Sequence[LockLost]) -> int:
    environment = os.environ | {
        "DBLOCK_NAME": lease.name,
        "DBLOCK_FENCE": str(lease.fence),
        "DBLOCK_TOKEN": lease.token,
    }
    try:
        child = Child(command, environment, signals)
    except OSError as error:
        complain(f"cannot run {command[0]!r}: {error.strerror}")
        missing = error.errno == errno.ENOENT
        return _release(lease, exits.NOT_FOUND if missing else exits.NOT_EXECUTABLE)
    code = supervise(child, signals, lambda: lost[0] if lost else None)
    if lost:
        complain(f"{lost[0]}; the command ended with {code}")
        return exits.LOST
    return _release(lease, code)


def _release(lease: Lease, code: int) -> int:
    """Give the lease back; return the exit code, ``code`` unless the lease was lost."""
    try:
        lease.release()
    except LockLost as loss:
        complain(f"{loss}; the command ended with {code}")
        return exits.LOST
    except DBLockError as trouble:
        complain(f"{lease.name!r} was not released, it runs out within {lease.ttl:g} s: {trouble}")
    return code
