"""``manage.py dblock``: the command line's commands, and ``migrate`` by one process at a time."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import Sequence
from typing import Any

import click
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from dblock.cli.child import restored
from dblock.cli.embedded import Given, commands
from dblock.cli.output import complain
from dblock.contrib.django import using
from dblock.schema.migration_lock import alone


def _known(ctx: click.Context, param: click.Parameter, alias: str | None) -> str | None:
    if alias is not None and alias not in settings.DATABASES:
        raise click.BadParameter(f"no such alias in DATABASES: {alias!r}", ctx, param)
    return alias


def _choose(ctx: click.Context, param: click.Parameter, alias: str | None) -> None:
    """Give the command the locks of another database."""
    if _known(ctx, param, alias) is not None:
        ctx.obj = Given(functools.partial(using, alias))


database_option = click.Option(
    ["--database"],
    expose_value=False,
    callback=_choose,
    metavar="ALIAS",
    help="An alias of DATABASES. Default: the one that the settings name.",
)
group = commands(lambda ctx: Given(using), options=[database_option])


@group.command("migrate", context_settings={"ignore_unknown_options": True})
@click.option(
    "--database",
    default="default",
    show_default=True,
    callback=_known,
    help="An alias of DATABASES.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def migrate(database: str, arguments: Sequence[str]) -> None:
    """Run Django's migrate while no other process does; ARGUMENTS are migrate's.

    \b
      manage.py dblock migrate --noinput

    The others wait, and find it done.
    """
    locks = using(database)
    # Also with no migration left: it still makes content types and permissions.
    with alone(locks.engine, locks._database.dialect, "migrations") as check:
        call_command("migrate", *arguments, database=database)
        check()


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their names in Python: --older-than is older_than."""
    return {
        name.removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--")
    }


def _arguments(options: dict[str, Any]) -> list[str]:
    """Return the arguments of a call, its keywords written as options."""
    name, *rest = [str(argument) for argument in options["arguments"]] or ["--help"]
    known = _options(group.commands[name]) if name in group.commands else {}
    written = []
    for keyword in Command.stealth_options:
        value = options.get(keyword)
        if value is None or value is False:
            continue
        if keyword not in known:
            raise CommandError(f"dblock {name} has no option {keyword!r}")
        option = "--" + keyword.replace("_", "-")
        written.append(option if known[keyword].is_flag else f"{option}={value}")
    if name == "migrate" and options["verbosity"] != 1:
        written += ["--verbosity", str(options["verbosity"])]
    return [name, *written, *rest]


class Command(BaseCommand):
    help = f"Locks: {', '.join(group.commands)} (migrate: for one process at a time)."
    requires_system_checks = ()
    # The keywords that call_command accepts beside the command's own.
    stealth_options = tuple(
        sorted({name for command in group.commands.values() for name in _options(command)})
    )

    def run_from_argv(self, argv: list[str]) -> None:
        """Leave the arguments to the commands: what follows ``--`` is another program's."""
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for option in ("--settings", "--pythonpath"):
            own.add_argument(option)
        at = argv.index("--") if "--" in argv else len(argv)
        _, ours = own.parse_known_args(argv[2:at])
        sys.exit(_run([*ours, *argv[at:]], f"{argv[0]} dblock"))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(restored())  # this is call_command, and its caller goes on
            if options.get("stdout"):
                stack.enter_context(contextlib.redirect_stdout(options["stdout"]))
            if options.get("stderr"):
                stack.enter_context(contextlib.redirect_stderr(options["stderr"]))
            code = _run(_arguments(options), "dblock")
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
