"""What a process costs until it can begin: importing dblock, and running a command under a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from .figures import Effort, Figure, Sheet, Target
from .site import Site

GROUP, SCENARIO = "start-up", "one process"
CPU = "CPU"
SQLALCHEMY, LOCKS = "import sqlalchemy", "from dblock import Locks"
VERSION, RUN = "dblock --version", "dblock run, sqlite"

TARGETS = tuple(Target(GROUP, SCENARIO, CPU, who, 1.3, SQLALCHEMY) for who in (LOCKS, VERSION, RUN))

_ARGUMENTS = {
    "python": ("-c", "pass"),
    SQLALCHEMY: ("-c", "import sqlalchemy"),
    LOCKS: ("-c", "from dblock import Locks"),
    VERSION: ("-m", "dblock", "--version"),
    RUN: ("-m", "dblock", "run", "start-up", "--", "true"),
}


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """CPU time, which a busy machine changes less than it does the clock's; all of it compiled."""
    sheet = Sheet(GROUP, SCENARIO)
    with ExitStack() as stack:
        compiled = stack.enter_context(TemporaryDirectory())
        environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["DBLOCK_URL"] = site.url("sqlite")
        for arguments in _ARGUMENTS.values():
            _spent(arguments, environment)
        for _ in range(effort.rounds):
            for who, arguments in _ARGUMENTS.items():
                sheet.add(who, CPU, "ms", _spent(arguments, environment) * 1000)
    yield from sheet.figures()


def _spent(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """Return the seconds of CPU that a Python process took, and what it waited for."""
    process = subprocess.Popen(
        (sys.executable, *arguments), env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return usage.ru_utime + usage.ru_stime
