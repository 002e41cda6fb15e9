"""The command line, for crontabs, for deployments and for whoever is on call."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from ..errors import DBLockError
from . import exits
from .app import app
from .output import complain, warnings_told


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit; how it ended is the exit code."""
    try:
        with warnings_told():
            code = app.main(arguments, prog_name="dblock", standalone_mode=False)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "dblock"
        complain(f"{error.format_message()} (try '{where} --help')")
        code = exits.USAGE
    except click.Abort:  # a KeyboardInterrupt
        code = exits.INTERRUPTED
    except DBLockError as error:
        complain(str(error))
        code = exits.code_of(error)
    except Exception:  # a defect: what helps now is all there is to know
        traceback.print_exc()
        code = exits.INTERNAL
    sys.exit(code)
