"""The group of commands: ``dblock --help``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import __version__
from . import exits
from .doctor import doctor
from .group import Commands
from .metrics import metrics
from .options import DATABASE
from .pause import pause
from .prune import prune
from .rate import rate
from .run_command import run
from .runs import runs
from .schema import downgrade, upgrade
from .serve import serve, token
from .show import list_, release, resize, show

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP = f"""Use the relational database that you already have as your lock server.

\b
  dblock run nightly --nonblock -- ./backup.sh
  dblock list

Give the database's URL with --url, DBLOCK_URL or --url-file. Every user of the host can see --url,
so put a URL with a password into a file. If you give no URL, dblock uses an SQLite file in your
state directory and creates it when it is needed. That file works for you on this host only. To lock
across hosts, give the URL of a server that they share, and run dblock upgrade once.

{exits.HELP}
"""


class App(Commands):
    """The commands, in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the commands if the given one does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            said = error.format_message()
            if args[0].startswith("-") or "id you mean" in said:
                raise
            raise click.UsageError(f"{said} There are {', '.join(self.commands)}.", ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        early = [option for option in DATABASE if incomplete and option.startswith(incomplete)]
        return [*map(CompletionItem, early), *super().shell_complete(ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept the options of the database before the command too."""
        early = 0
        while early < len(args):
            option, has_value, _ = args[early].partition("=")
            if option not in DATABASE:
                break
            early += 2 if DATABASE[option] and not has_value else 1
        if early >= len(args) or args[early].startswith("-"):  # --help, or no command
            args = args[early:]
        else:  # put them first: the command's own options, which come later, override them
            args = [args[early], *args[:early], *args[early + 1 :]]
        return super().parse_args(ctx, args)


@click.group(
    "dblock",
    cls=App,
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="dblock %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(exits.USAGE)


for command in (
    run,
    rate,
    list_,
    show,
    runs,
    release,
    resize,
    prune,
    pause,
    doctor,
    metrics,
    serve,
    token,
    upgrade,
    downgrade,
):
    app.add_command(command)
