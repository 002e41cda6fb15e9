"""Orphans: processes whose parent has ended, and which are this process's children from then on.

The first process of a container gets them, and so does a subreaper. If it does not wait for them,
they stay in the table of processes as zombies when they end, until it is full.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar

#: Whether dblock runs inside another program: then it must not wait for that program's children.
guest: ContextVar[bool] = ContextVar("guest", default=False)


def reap(known: Callable[[int], bool] = lambda pid: False) -> None:
    """Wait for all children that have ended.

    ``known`` gets the pid of each. It returns True if it has waited for that process itself.
    """
    if sys.platform == "darwin" or guest.get():  # macOS has no subreapers, and no containers
        return
    try:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if not known(ended.si_pid):
                os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:  # there are none
        pass
