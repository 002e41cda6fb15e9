"""The command line, for crontabs, for deployments and for operators."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from . import exits
from .app import app
from .output import complain, fill_closed

#: Set by a shell that completes a command line.
COMPLETE = "_DBLOCK_COMPLETE"
#: Errors of standard output. dblock makes its own errors of a database's.
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}


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
    from . import completion  # noqa: F401 - it tells click how bash splits words

    code: object = exits.INTERNAL
    try:
        app.main(prog_name="dblock")
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else exits.OK)
