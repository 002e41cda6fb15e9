"""``dblock upgrade`` and ``dblock downgrade``: dblock's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from . import exits
from .options import Place, database_options


@click.command("upgrade", short_help="Create or upgrade dblock's tables.")
@click.option("--sql", "print_sql", is_flag=True, help="Print the statements, change nothing.")
@click.option("--revision", help="Stop at this revision. Default: the newest.")
@click.option(
    "--durability",
    type=click.Choice(["durable", "volatile"]),
    help="Whether leases outlive a crash. Default: leave it; durable at first.",
)
@database_options
def upgrade(place: Place, print_sql: bool, revision: str | None, durability: str | None) -> int:
    """Create dblock's tables, or bring them up to this version, and say what was done. Harmless to
    repeat.

    \b
      dblock upgrade --url postgresql://app@db/app

    With --durability volatile (PostgreSQL) acquiring waits for no disk, and in return nothing is
    granted after a crash until the longest TTL is over. No lock is ever given to two.
    """
    if revision is not None and (print_sql or durability):
        raise click.UsageError("--sql and --durability are for the newest revision")
    url = place.check()
    from ..schema import sql
    from ..schema import upgrade as run

    if print_sql:
        click.echo(sql(url, durability=durability, **place.tables), nl=False)
    else:
        with _known_revision():
            done = run(
                place.target(), revision=revision or "head", durability=durability, **place.there
            )
        click.echo(str(done) + (f", {durability}" if durability else ""))
    return exits.OK


@click.command("downgrade", short_help="Undo upgrades of dblock's tables.")
@click.option("--revision", required=True, help="The revision to go back to; base: none.")
@click.option("--yes", is_flag=True, help="Needed: locks and fences are lost.")
@database_options
def downgrade(place: Place, revision: str, yes: bool) -> int:
    """Go back to an older revision of dblock's tables; with base, drop them.

    \b
      dblock downgrade --revision base --yes

    Locks that are held are lost, and fences start again: stop everything that uses them first.
    """
    if not yes:
        raise click.UsageError("locks and fences are lost, so fences start again: say --yes")
    place.check()
    from ..schema import downgrade as run

    with _known_revision():
        run(place.target(), revision=revision, **place.there)
    return exits.OK


@contextlib.contextmanager
def _known_revision() -> Iterator[None]:
    from alembic.util import CommandError

    try:
        yield
    except CommandError as error:
        raise click.UsageError(str(error)) from error
