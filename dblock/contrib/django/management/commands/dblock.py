"""``manage.py dblock``: the command line's commands, and ``migrate`` as the only one who does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import click
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from dblock.cli.child import restored
from dblock.cli.embedded import Given, commands
from dblock.cli.output import complain
from dblock.contrib.django import using
from dblock.schema.migration_lock import alone

group = commands(lambda ctx: Given(using))


@group.command("migrate", context_settings={"ignore_unknown_options": True})
@click.option("--database", default="default", show_default=True, help="An alias of DATABASES.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def migrate(database: str, arguments: Sequence[str]) -> None:
    """Run Django's migrate while no other process does; ARGUMENTS are migrate's.

    \b
      manage.py dblock migrate --noinput

    The others wait, and find it done.
    """
    locks = using(database)
    # Also with no migration left: it still makes content types and permissions.
    with alone(locks.engine, locks.dialect, "migrations") as check:
        call_command("migrate", *arguments, database=database)
        check()


class Command(BaseCommand):
    help = "Locks: run, list, show, release, prune, doctor; and migrate, for one process at a time."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Leave the arguments to the commands: what follows ``--`` is another program's."""
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for option in ("--settings", "--pythonpath"):
            own.add_argument(option)
        at = argv.index("--") if "--" in argv else len(argv)
        _, ours = own.parse_known_args(argv[2:at])
        sys.exit(_run([*ours, *argv[at:]], f"{argv[0]} dblock"))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        with restored():  # this is call_command, and who called it goes on
            code = _run([str(argument) for argument in options["arguments"]], "dblock")
        if code:
            raise CommandError(f"dblock ended with {code}", returncode=code)


def _run(arguments: list[str], name: str) -> int:
    try:
        return int(group.main(arguments, prog_name=name, standalone_mode=False) or 0)
    except click.ClickException as error:
        complain(error.format_message())
        return 64  # a usage error, as with dblock's own
    except click.exceptions.Exit as end:
        return end.exit_code
