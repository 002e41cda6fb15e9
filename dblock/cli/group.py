"""A group of commands: how an error of one ends it."""

from __future__ import annotations

from typing import Any

import click

from ..errors import DBLockError
from . import exits
from .options import told
from .output import complain, warnings_told


class Commands(click.Group):
    """The commands of dblock. They exit with the same codes in every command line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings_told():
                code = super().invoke(ctx)
        except DBLockError as error:
            complain(told(error, self.commands[str(ctx.invoked_subcommand)]))
            code = exits.code_of(error)
        ctx.exit(code or exits.OK)
