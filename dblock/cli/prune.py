"""``dblock prune``: delete records and names that are no longer needed."""

from __future__ import annotations

import click

from ..arguments import check_age, check_idle
from ..lock_state import counted
from . import durations, exits
from .options import Location, database_options, duration_option


@click.command(
    "prune", short_help="Delete old keys, records of runs and unused names.", epilog=durations.HELP
)
@duration_option(
    "--older-than",
    lambda age: check_age(age, "--older-than"),
    "Delete idempotency keys and records of runs older than this.",
)
@click.option("--names", is_flag=True, help="Delete the rows of names that are no longer used.")
@duration_option(
    "--idle",
    lambda idle: check_idle(idle, "--idle"),
    "With --names: delete names that were not used for this time. At least 1m.",
)
@database_options
def prune(place: Location, older_than: float | None, names: bool, idle: float | None) -> int:
    """Delete idempotency keys, records of runs and names that are no longer needed.

    \b
      dblock prune --older-than 90d
      dblock prune --names --idle 30d

    A deleted key can be applied again, and a job can run again for a slot (--once-per, --once-for)
    whose record is deleted. So keep them until no client or job repeats its work. The record of a
    job's last run stays.

    A name stays if it is held, waited for or locked. If a deleted name is used again, its fence is
    larger than before.
    """
    if names and idle is None:
        raise click.UsageError("--names needs --idle, for example --idle 30d")
    if idle is not None and not names:
        raise click.UsageError("--idle is for --names: give both")
    if older_than is None and idle is None:
        raise click.UsageError("give what to delete: --older-than 90d, or --names --idle 30d")
    with place.locks() as locks:
        if older_than is not None:
            pruned = locks.prune(older_than)
            keys = counted(pruned.keys, "idempotency key")
            runs = counted(pruned.runs, "record of a run", "records of runs")
            click.echo(f"deleted {keys} and {runs}")
        if idle is not None:
            click.echo(f"deleted {counted(locks.prune_names(idle), 'name')}")
    return exits.OK
