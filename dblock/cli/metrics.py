"""``dblock metrics``: metrics of locks and jobs, for Prometheus."""

from __future__ import annotations

import click

from ..arguments import COUNT_MAX
from ..formats.exposition import exposition
from . import exits
from .options import Location, database_options, limit_option


@click.command("metrics", short_help="Print metrics for Prometheus.")
@limit_option(1000, "Name at most N locks and N jobs.")
@database_options
def metrics(place: Location, limit: int) -> int:
    """Print metrics of locks, waiters and jobs, once, in Prometheus's text format.

    \b
      dblock metrics > dblock.prom

    Each name is a time series. So it names at most N locks and N jobs: first the locks with the
    most waiters, then the locks that are held for the longest time, and the jobs that began last.
    dblock_truncated is 1 if there are more. The metrics without a name count all locks.
    """
    with place.locks() as locks:
        states = locks.list()
        runs = locks.last_runs(min(limit + 1, COUNT_MAX))
    click.echo(exposition(states, runs, limit), nl=False)
    return exits.OK
