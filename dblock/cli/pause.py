"""``dblock pause``: grant nothing until no lease of before is out."""

from __future__ import annotations

import click

from ..arguments import check_pause
from . import durations, exits
from .options import Location, database_options, duration_option


@click.command(
    "pause", short_help="Grant nothing until earlier leases have expired.", epilog=durations.HELP
)
@duration_option(
    "--longest-ttl",
    lambda longest: check_pause(longest, "--longest-ttl"),
    "No holder works for longer than this. Default: the longest TTL that dblock knows of.",
)
@click.option(
    "--yes", is_flag=True, help="Required for --longest-ttl: a wrong time gives a name two holders."
)
@database_options
def pause(place: Location, longest_ttl: float | None, yes: bool) -> int:
    """Grant nothing until all earlier leases have expired (PostgreSQL).

    \b
      dblock pause

    Use it if holders may have leases that these tables do not contain: after you have moved the
    tables here from another server, or restored them. Every earlier lease is lost, and its holder
    learns of that at its next renewal.

    With --longest-ttl the pause lasts for that time, even if a longer pause is going on. dblock
    cannot check whether a holder works for longer.
    """
    if longest_ttl is not None and not yes:
        raise click.UsageError(
            "if a holder works for longer than --longest-ttl, two hold its name: confirm with --yes"
        )
    with place.locks() as locks:
        left = locks.pause(longest_ttl)
    click.echo(f"nothing is granted for {left:.1f} s; earlier leases are lost")
    return exits.OK
