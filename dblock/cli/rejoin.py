"""``dblock rejoin``: let a restored database of a quorum vote again."""

from __future__ import annotations

import click

from ..io.target import address
from ..lock_state import printable
from . import exits
from .options import Location, database_options


@click.command("rejoin", short_help="Let a restored database of a quorum vote again.")
@click.argument("member")
@database_options
def rejoin(place: Location, member: str) -> int:
    """Let the database MEMBER of a quorum vote again after it was restored from a backup.

    \b
      dblock rejoin sqlite:////srv/three.db --url-file /etc/dblock/urls

    Give all databases of the quorum, and MEMBER as its URL, or as dblock doctor names it. Until the
    longest TTL is over it grants nothing to the quorum. After that it grants fences that are larger
    than the other members'.

    MariaDB, MySQL and SQLite do not show that a backup was restored. So call this for them before
    any process uses the database. PostgreSQL needs no call.
    """
    if not place.several:
        raise click.UsageError("this is for a quorum: give all its databases, each with --url")
    with place.quorum() as quorum:
        shown = [address(url) for url in place.urls]
        known = zip(place.urls, shown, quorum._members.names, strict=True)
        number = next((number for number, names in enumerate(known) if member in names), None)
        if number is None:
            raise click.UsageError(f"MEMBER is none of the databases: {', '.join(shown)}")
        seconds = quorum.rejoin(number)
    name = printable(shown[number])
    click.echo(f"{name} grants nothing for {seconds:.1f} s, and then votes in the quorum again")
    return exits.OK
