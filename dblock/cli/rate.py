"""``dblock rate``: take a place of a rate limit, and run a command in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from ..arguments import check_count, check_wait, seconds
from ..errors import NotAcquired, Unsupported
from . import durations, exits
from .options import Location, arguments, checked, database_options, duration_option, name_argument
from .output import complain

if TYPE_CHECKING:
    from ..handles.rate import Rate


class RateCommand(click.Command):
    """Leaves the command that follows ``--`` alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        if args[at:] == ["--"] and not ctx.resilient_parsing:
            ctx.fail("give a command after --, or leave the -- out")
        super().parse_args(ctx, args[:at])
        ctx.args = args[at + 1 :]
        return ctx.args

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME", "LIMIT", "[OPTIONS]", "[-- COMMAND [ARGS]...]"]


@click.command(
    "rate",
    cls=RateCommand,
    short_help="Take a place of a rate limit; run a command in it.",
    epilog=durations.HELP,
)
@name_argument
@click.argument("limit", type=int, callback=checked(partial(check_count, "a limit")))
@duration_option(
    "--per",
    partial(seconds, "--per"),
    "The time in which LIMIT places come back.",
    required=True,
)
@click.option(
    "--burst",
    type=int,
    callback=checked(partial(check_count, "--burst")),
    metavar="N",
    help="At most N places at once. Default: LIMIT.",
)
@click.option(
    "--cost",
    type=int,
    default=1,
    show_default=True,
    callback=checked(partial(check_count, "--cost")),
    metavar="N",
    help="Take N places.",
)
@duration_option(
    "--wait",
    check_wait,
    "How long to wait for a place.",
    default="0",
    show_default=True,
)
@click.option(
    "-E",
    "--conflict-exit-code",
    "busy",
    type=click.IntRange(0, 255),
    default=exits.BUSY,
    show_default=True,
    metavar="N",
    help="Exit with N if there is no place. 0 prints nothing.",
)
@database_options
@click.pass_context
def rate(
    ctx: click.Context,
    place: Location,
    name: str,
    limit: int,
    per: float,
    burst: int | None,
    cost: int,
    wait: float | None,
    busy: int,
) -> int:
    """Take a place of the rate limit NAME, and run COMMAND if there is one.

    \b
      dblock rate mail 100 --per 1h --wait 10m -- ./send.sh
      dblock rate api 5 --per 1s || echo "later"

    All processes that give this NAME share LIMIT places for each --per. A place that was taken is
    used up, also if COMMAND fails. Without COMMAND dblock only takes the place.
    """
    from ..handles.rate import check_cells

    with arguments():
        check_cells(limit, per, limit if burst is None else burst, cost)
    with place.locks() as locks:
        with arguments():
            made = locks.rate(name, limit, per=per, burst=burst, cost=cost, wait=wait)
        try:
            return _run(made, ctx.args)
        except NotAcquired as refusal:
            if busy != exits.OK:
                complain(str(refusal))
            return busy


def _run(made: Rate, command: Sequence[str]) -> int:
    if not command:
        with made:
            return exits.OK
    if not hasattr(os, "fork"):
        raise Unsupported("dblock rate runs a COMMAND on POSIX systems only: leave it out")
    from .child import Child, Interrupted, Signals, supervise

    signals = Signals()
    signals.interrupt()
    try:
        with made:
            signals.keep()
    except Interrupted as interrupted:
        return exits.SIGNALLED + interrupted.number
    try:
        child = Child(command, os.environ, signals, None)
    except OSError as error:
        complain(f"cannot run {command[0]!r}: {error.strerror}")
        missing = isinstance(error, FileNotFoundError)
        return exits.NOT_FOUND if missing else exits.NOT_EXECUTABLE
    return supervise(child, signals, lambda: None, None)
