"""The program ``dblock``: all commands, with the lock service's, and how a command ends."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

import click

from . import __version__
from .cli import exits
from .cli.doctor import doctor
from .cli.group import Commands
from .cli.metrics import metrics
from .cli.options import DATABASE
from .cli.output import complain, fill_closed
from .cli.pause import pause
from .cli.prune import prune
from .cli.rate import rate
from .cli.rejoin import rejoin
from .cli.run_command import run
from .cli.runs import runs
from .cli.schema import downgrade, upgrade
from .cli.show import list_, release, resize, show
from .contrib.serve_commands import serve, token

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Set by a shell that completes a command line.
COMPLETE = "_DBLOCK_COMPLETE"
#: Errors of standard output. dblock makes its own errors of a database's.
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}

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
        at, early = 0, []
        while at < len(args):
            option, has_value, _ = args[at].partition("=")
            if option not in DATABASE:
                break
            words = 2 if DATABASE[option] and not has_value else 1
            early.append((option, args[at : at + words]))
            at += words
        if at >= len(args) or args[at].startswith("-"):  # --help, or no command
            args = args[at:]
        else:  # the command's own options override them
            own = args[at + 1 :]
            given = {word.partition("=")[0] for word in takewhile("--".__ne__, own)}
            first = [word for option, words in early if option not in given for word in words]
            args = [args[at], *first, *own]
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
    rejoin,
    metrics,
    serve,
    token,
    upgrade,
    downgrade,
):
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit; how it ended is the exit code."""
    fill_closed()
    if os.environ.get(COMPLETE):
        _complete()
    try:
        code = app.main(arguments, prog_name="dblock", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "dblock"
        complain(f"{error.format_message()} (try '{where} --help')")
        code = exits.USAGE
    except click.Abort:  # a KeyboardInterrupt
        code = exits.INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            complain(f"the output could not be written: {error.strerror}")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try again at its end
            code = exits.IO
        else:  # a defect: the traceback helps to find it
            traceback.print_exc()
            code = exits.INTERNAL
    sys.exit(code)


def _complete() -> NoReturn:
    """Print what a shell completes. Nothing that still waits for a database outlives that."""
    from .cli import completion  # noqa: F401 - it tells click how bash splits words

    code: object = exits.INTERNAL
    try:
        app.main(prog_name="dblock")
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else exits.OK)


if __name__ == "__main__":
    main()
