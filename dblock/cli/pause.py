"""``dblock pause``: grant nothing until no lease of before is out."""

from __future__ import annotations

import click

from ..arguments import check_pause
from . import durations, exits
from .options import Place, database_options, duration_option


@click.command(
    "pause", short_help="Grant nothing until the leases of before are over.", epilog=durations.HELP
)
@duration_option(
    "--longest-ttl",
    lambda longest: check_pause(longest, "--longest-ttl"),
    "No lease is out for longer than this. Default: the longest TTL that dblock knows of.",
)
@click.option(
    "--yes", is_flag=True, help="Required for --longest-ttl: two may hold a name if it is wrong."
)
@database_options
def pause(place: Place, longest_ttl: float | None, yes: bool) -> int:
    """Grant nothing until no lease is out that was granted before (PostgreSQL).

    \b
      dblock pause

    For when leases may be out that these tables do not know: after they were moved here from
    another server, or restored. Every lease of before is lost, and its holder is told so at its
    next renewal.

    With --longest-ttl the pause is as long as you say, also one that goes on already. dblock cannot
    know whether a holder works for longer.
    """
    if longest_ttl is not None and not yes:
        raise click.UsageError(
            "if a holder works for longer than --longest-ttl, two hold its name: confirm with --yes"
        )
    with place.locks() as locks:
        left = locks.pause(longest_ttl)
    click.echo(f"nothing is granted for {left:.1f} s; leases of before are lost")
    return exits.OK
