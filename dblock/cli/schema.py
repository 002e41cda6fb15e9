"""``dblock upgrade`` and ``dblock downgrade``: dblock's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from . import exits
from .options import Location, database_options


@click.command("upgrade", short_help="Create or upgrade dblock's tables.")
@click.option("--sql", "print_sql", is_flag=True, help="Print the statements and change nothing.")
@click.option("--revision", help="Stop at this revision. Default: the newest.")
@click.option(
    "--durability",
    type=click.Choice(["durable", "volatile"]),
    help="Whether leases outlive a crash. Default: as it is; durable for new tables.",
)
@click.option(
    "--functions/--no-functions",
    default=None,
    help="Create the SQL functions for other languages (PostgreSQL), or drop them. Default: "
    "update existing functions.",
)
@database_options
def upgrade(
    place: Location,
    print_sql: bool,
    revision: str | None,
    durability: str | None,
    functions: bool | None,
) -> int:
    """Create dblock's tables, or bring them up to this version. You can run it again.

    \b
      dblock upgrade --url postgresql://app@db/app

    With --durability volatile (PostgreSQL) acquiring waits for no disk. In return dblock grants
    nothing after a crash until the longest TTL is over. Both are equally safe.
    """
    if revision is not None and (print_sql or durability or functions is not None):
        raise click.UsageError("--sql, --durability and --functions work only without --revision")
    url = place.check()
    from ..schema import sql
    from ..schema import upgrade as run

    if print_sql:
        printed = sql(url, durability=durability, functions=functions, **place.tables)
        click.echo(printed, nl=False)
    else:
        with _known_revision(revision):
            done = run(
                place.target(),
                revision=revision or "head",
                durability=durability,
                functions=functions,
                **place.there,
            )
        place.tell()
        click.echo(str(done) + (f", {durability}" if durability else ""))
    return exits.OK


@click.command("downgrade", short_help="Undo upgrades of dblock's tables.")
@click.option(
    "--revision", required=True, help="The revision to go back to; base drops the tables."
)
@click.option("--yes", is_flag=True, help="Required, because locks and fences are lost.")
@database_options
def downgrade(place: Location, revision: str, yes: bool) -> int:
    """Go back to an older revision of dblock's tables; with base, drop them.

    \b
      dblock downgrade --revision base --yes

    Held locks are lost, and fences start again. So first stop everything that uses them.
    """
    if not yes:
        raise click.UsageError("held locks are lost, and fences start again: confirm with --yes")
    place.check()
    from ..schema import downgrade as run

    with _known_revision(revision):
        done = run(place.target(), revision=revision, **place.there)
    place.tell()
    click.echo(str(done))
    return exits.OK


@contextlib.contextmanager
def _known_revision(given: str | None) -> Iterator[None]:
    from alembic.util import CommandError

    from ..schema.migrate import HEAD

    try:
        yield
    except CommandError as error:
        said = f"--revision {given}: {error}. The newest is {HEAD}" if given else str(error)
        raise click.UsageError(said) from error
