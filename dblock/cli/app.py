"""The group of commands: ``dblock --help``."""

from __future__ import annotations

import click

from .. import __version__
from . import exits
from .doctor import doctor
from .metrics import metrics
from .pause import pause
from .prune import prune
from .run import run
from .runs import runs
from .schema import downgrade, upgrade
from .show import list_, release, resize, show

HELP = f"""Use the relational database that you already have as your lock server.

\b
  dblock run nightly --nonblock -- ./backup.sh
  dblock list

Give the database's URL with --url, DBLOCK_URL or --url-file. Everybody on the host can see --url,
so put a URL with a password into a file. If you give no URL, dblock uses an SQLite file in your
state directory and creates it when it is needed. That file works for you on this host only. To lock
across hosts, give the URL of a server that they share, and run dblock upgrade once.

{exits.HELP}
"""


class InOrder(click.Group):
    """Lists its commands as they were added, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    "dblock",
    cls=InOrder,
    help=HELP,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="dblock %(version)s")
def app() -> None:
    pass


for command in (
    run,
    list_,
    show,
    runs,
    release,
    resize,
    prune,
    pause,
    doctor,
    metrics,
    upgrade,
    downgrade,
):
    app.add_command(command)
