"""Standard streams that were closed before dblock began, as ``>&-`` closes them."""

from __future__ import annotations

import os
import sys


def fill_closed() -> None:
    """Keep dblock's own files and sockets from getting the number of a closed standard stream.

    Writing to standard output fails as before, so that no output is lost unnoticed. Messages for
    standard error are dropped, as the user asked for.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it stays open to the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
