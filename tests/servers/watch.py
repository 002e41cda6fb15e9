"""The test process's end of the reaper: tells it which directories to clean up after."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.servers import reaper

_lock = threading.Lock()
_reaper: subprocess.Popen[bytes] | None = None
_pipe: int | None = None


def watch(directory: Path) -> None:
    """From now on `directory` and the server in it go when this process goes."""
    _tell(f"+{directory}\n")


def forget(directory: Path) -> None:
    _tell(f"-{directory}\n")


def _tell(line: str) -> None:
    global _reaper, _pipe
    with _lock:
        if _pipe is None:
            # os.pipe() is not inherited over exec, so no server or child keeps it open.
            read_end, _pipe = os.pipe()
            _reaper = subprocess.Popen(
                [sys.executable, "-I", reaper.__file__],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.close(read_end)
        os.write(_pipe, line.encode())


def _finish() -> None:
    """At a normal exit, wait until nothing is left running."""
    global _pipe
    if _pipe is not None and _reaper is not None:
        os.close(_pipe)
        _pipe = None
        _reaper.wait()


def _after_fork() -> None:
    """A forked child must not hold the pipe open; it gets a reaper of its own if it needs one."""
    global _lock, _reaper, _pipe
    if _pipe is not None:
        os.close(_pipe)
    _lock, _reaper, _pipe = threading.Lock(), None, None


atexit.register(_finish)
os.register_at_fork(after_in_child=_after_fork)
