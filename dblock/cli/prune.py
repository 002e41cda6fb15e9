"""``dblock prune``: what may be deleted."""

from __future__ import annotations

import click

from ..arguments import seconds
from . import exits
from .options import Place, database_options, duration_option


@click.command("prune", short_help="Delete old idempotency keys and records of runs.")
@duration_option(
    "--older-than",
    lambda age: seconds("--older-than", age),
    "How old what is deleted is, at least.",
    required=True,
)
@database_options
def prune(place: Place, older_than: float) -> int:
    """Delete idempotency keys and records of runs that are old.

    \b
      dblock prune --older-than 90d

    A key that is gone can be applied again, and a slot of --once-per be run again: keep them for
    longer than anything can be late. The row of a name stays, with its fence, and so does the
    record of its last run.
    """
    with place.locks() as locks:
        pruned = locks.prune(older_than)
    click.echo(f"deleted {pruned.keys} idempotency keys and {pruned.runs} records of runs")
    return exits.OK
