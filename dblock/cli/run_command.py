"""``dblock run``, or the command that says why it is not there."""

from __future__ import annotations

import os

import click

from ..errors import Unsupported

__all__ = ["run"]

if hasattr(os, "fork"):
    from .run import run
else:

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments: tuple[str, ...]) -> int:
        """Not here: it needs POSIX, for the signals and processes of the command that it runs."""
        raise Unsupported(
            "dblock run needs a POSIX system, for the signals and processes of the command that it "
            "runs: take the lock in the program itself, in Python"
        )
