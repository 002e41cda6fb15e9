"""The commands' group: ``dblock --help``."""

from __future__ import annotations

import click

from .. import __version__
from . import exits
from .doctor import doctor
from .metrics import metrics
from .prune import prune
from .run import run
from .runs import runs
from .schema import downgrade, upgrade
from .show import list_, release, show

HELP = f"""The relational database you already have, as your lock server.

\b
  dblock run nightly --nonblock -- ./backup.sh
  dblock list

The database is named by --url or, better for its password, by DBLOCK_URL or a file that
DBLOCK_URL_FILE names. Without any of them it is an SQLite file, made when first needed, in your
state directory. That file serves you on this host only: to lock across hosts, name a server
that they share and run dblock upgrade once.

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


for command in (run, list_, show, runs, release, prune, doctor, metrics, upgrade, downgrade):
    app.add_command(command)
