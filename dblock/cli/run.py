"""``dblock run``: hold a lease while a command runs."""

from __future__ import annotations

import sys
import time
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

import click

from ..arguments import (
    WAIT_MAX,
    check_after,
    check_label,
    check_limit,
    check_max_hold,
    check_semaphore,
    check_ttl,
    check_wait,
    seconds,
)
from ..errors import LockLost, NotAcquired
from ..handles.periods import PERIODS, check_period, check_slot, check_together, check_zone
from . import durations, exits
from .child import Interrupted, Signals
from .options import (
    Location,
    arguments,
    checked,
    database_options,
    duration_option,
    name_argument,
)
from .output import complain
from .progress import Progress
from .under_lock import Ending, acquire, run_under

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..handles.held import AcquirableLease
    from ..handles.options import SemaphoreKeywords
    from ..handles.semaphore import Semaphore
    from ..locks import Locks
    from ..quorum.quorum import Quorum


_COMMAND = f"{__name__}.command"  # whether the command begins, in click's notes


class RunCommand(click.Command):
    """Leaves what follows ``--`` alone: options there belong to the command, not to dblock."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ours, command = args[:at], args[at + 1 :]
        ctx.meta[_COMMAND] = at < len(args)
        ctx.ignore_unknown_options = not command  # without a -- they belong to the command
        super().parse_args(ctx, ours)
        if (ctx.args or not command) and not ctx.resilient_parsing:
            ctx.fail("give the command after --: dblock run NAME [OPTIONS] -- COMMAND [ARGS]...")
        ctx.args = command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete files behind the ``--``, and dblock's own options before it."""
        from click.shell_completion import CompletionItem

        if ctx.meta.get(_COMMAND):
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, incomplete)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME", "[OPTIONS]", "--", "COMMAND", "[ARGS]..."]


def _check_grace(grace: float) -> None:
    if seconds("--grace", grace) > WAIT_MAX:
        raise OverflowError(f"--grace is at most {WAIT_MAX:.0f} seconds: {grace!r}")


exit_code_option = partial(
    click.option, type=click.IntRange(0, 255), show_default=True, metavar="N"
)


@click.command(
    "run",
    cls=RunCommand,
    context_settings={"allow_extra_args": True},
    short_help="Run a command while holding a lock.",
    epilog=durations.HELP,
)
@name_argument
@duration_option(
    "--ttl",
    check_ttl,
    "How long the lock lasts if dblock is killed.",
    default="30",
    show_default=True,
)
@duration_option("--wait", check_wait, "How long to wait. Default: for ever.")
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait for the lock.")
@click.option("--fair", is_flag=True, help="Get the lock strictly in the order of arrival.")
@click.option(
    "--slots",
    type=int,
    callback=checked(check_limit),
    metavar="N",
    help="At most N run at a time: DBLOCK_NAME is NAME#1, ... Give the same N everywhere.",
)
@click.option("--shared", is_flag=True, help="Share the lock with other --shared runs.")
@duration_option(
    "--at-least",
    partial(check_after, what="at_least"),
    "Keep the lock for at least this time, even if killed.",
    default="0",
    show_default=True,
)
@duration_option(
    "--at-most",
    partial(check_max_hold, what="at_most"),
    "End COMMAND after this time: the lock is lost.",
)
@click.option(
    "--once-per",
    callback=checked(check_period),
    shell_complete=lambda ctx, param, incomplete: [
        period for period in PERIODS if period.startswith(incomplete)
    ],
    metavar="PERIOD",
    help="Succeed once a minute, hour, day, week, month.",
)
@click.option(
    "--once-for",
    callback=checked(partial(check_slot, what="a slot of your own")),
    metavar="TEXT",
    help="Succeed once for TEXT: a date, a version.",
)
@click.option(
    "--tz",
    callback=checked(check_zone),
    metavar="ZONE",
    help="The time zone of --once-per. Default: UTC.",
)
@exit_code_option(
    "-E",
    "--conflict-exit-code",
    "busy",
    default=exits.BUSY,
    help="Exit with N if the lock is busy. 0 prints nothing.",
)
@exit_code_option(
    "-D",
    "--done-exit-code",
    "done",
    default=exits.OK,
    help="Exit with N if the slot has succeeded before.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["kill", "warn"]),
    default="kill",
    show_default=True,
    help="If the lock is lost: end COMMAND, or only warn.",
)
@duration_option(
    "--grace",
    _check_grace,
    "From TERM to KILL. Default: a tenth of the TTL, at most 5 s.",
)
@click.option(
    "--label",
    callback=checked(check_label),
    help="The text that dblock list shows with the host.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print each acquire, renewal and release.")
@database_options
@click.pass_context
def run(
    ctx: click.Context,
    place: Location,
    name: str,
    ttl: float,
    wait: float | None,
    nonblock: bool,
    fair: bool,
    slots: int | None,
    shared: bool,
    at_least: float,
    at_most: float | None,
    once_per: str | None,
    once_for: str | None,
    tz: tzinfo | None,
    busy: int,
    done: int,
    on_lost: str,
    grace: float | None,
    label: str | None,
    verbose: bool,
) -> int:
    """Run COMMAND while holding the lock NAME.

    \b
      dblock run nightly --wait 60 -- ./backup.sh --full
      dblock run nightly -n -E 0 --once-per day --at-least 5m -- ./report.sh

    dblock renews the lock while COMMAND runs and releases it at the end. COMMAND gets dblock's
    environment (with DBLOCK_URL the password too, with --url-file not), and DBLOCK_NAME,
    DBLOCK_FENCE, DBLOCK_TOKEN and, with --once-per or --once-for, DBLOCK_SLOT.

    dblock passes TERM, INT, HUP and QUIT on to COMMAND and what it has started. If the lock is
    lost, or dblock is killed by KILL, they get TERM and then KILL.

    With --once-per and --once-for dblock does nothing if COMMAND has succeeded before in that
    PERIOD, by the database's clock, or for that TEXT. A run that failed leaves its slot open.
    """
    if nonblock and wait is not None:
        raise click.UsageError("give either --wait or --nonblock, not both")
    if slots is not None:
        _check_slots(name, shared=shared)
    if place.several:
        _check_quorum(
            {
                "--slots": slots,
                "--shared": shared,
                "--at-least": at_least,
                "--once-per": once_per,
                "--once-for": once_for,
            }
        )
    if slots is not None or shared:
        _check_several("--shared" if shared else "--slots", at_least, once_per or once_for)
    with arguments():
        check_together(at_least, at_most, once_per, once_for, tz)
    signals = Signals()
    lost: list[LockLost] = []
    progress = Progress(name, verbose, slots=slots is not None)

    def note(loss: LockLost) -> None:
        lost.append(loss)
        signals.wake()

    options: SemaphoreKeywords[None] = {
        "ttl": ttl,
        "wait": 0.0 if nonblock else wait,
        "fair": fair,
        "label": label,
        "max_hold": at_most,
        "on_lost": note,
    }
    ending = Ending(on_lost == "kill", grace)
    try:
        if place.several:
            with progress.events(), place.quorum(named=verbose) as quorum:
                by_majority = quorum.lease(name, **options)
                _take(by_majority, signals, progress, quorum)
                return run_under(by_majority, ctx.args, signals, lost, ending)
        with progress.events(), place.locks(named=verbose) as locks:
            from ..handles.cron import Job, Terms

            terms = Terms(at_least, at_most, once_per, once_for, tz)
            make_job = partial(Job, locks._database, terms=terms, label=label)
            if slots is None:
                lease = (locks.shared if shared else locks.lease)(name, **options)
                job = make_job(lease)
                slot = job.slot()
                _take(lease, signals, progress, locks)
            else:
                semaphore = locks.semaphore(name, slots, **options)
                _take(semaphore, signals, progress, locks)
                job = make_job(semaphore.slot)
                slot = job.slot()
            running = job.begin(slot)
            if running is None:
                if verbose or sys.stderr.isatty():  # cron would mail it
                    complain(f"{name!r} has succeeded for {slot!r} before, so nothing was run")
                return done
            return run_under(job.lease, ctx.args, signals, lost, ending, running)
    except Interrupted as interrupted:
        return exits.SIGNALLED + interrupted.number
    except NotAcquired as refusal:
        if busy != exits.OK:
            complain(str(refusal))
        return busy


def _take(
    lock: AcquirableLease | Semaphore,
    signals: Signals,
    progress: Progress,
    locks: Locks | Quorum,
) -> None:
    """Wait for the lock, and show that."""
    from ..handles.held import HeldLease

    begun = time.monotonic()
    with progress.waiting(locks):
        acquire(lock, signals)
    lease = lock if isinstance(lock, HeldLease) else lock.slot
    progress.acquired(lease, time.monotonic() - begun)


def _check_quorum(given: dict[str, object]) -> None:
    """Refuse options that need the tables of one database."""
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"{option} is for one database: a quorum has leases alone. Leave it out, or give "
                "one database"
            )


def _check_slots(name: str, *, shared: bool) -> None:
    with arguments():
        check_semaphore(name)
    if shared:
        raise click.UsageError("give either --slots or --shared: only one of them has a limit")


def _check_several(option: str, at_least: float, slot: str | None) -> None:
    """Refuse options that make no sense if several commands run at a time."""
    if slot is not None:
        raise click.UsageError(
            f"give either {option} or --once-per or --once-for: with those only one command may run"
        )
    if at_least:
        raise click.UsageError(
            f"give either {option} or --at-least: others may have the name at the same time"
        )
