"""Where the stores have their files; what is made in it once serves all processes.

dblock is not imported here: whoever plants something in it first does that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "DBLOCK_SIMULATION_FOLDER"


@contextmanager
def prepared() -> Iterator[Path]:
    """Make a folder, in memory if there is such a thing, with what takes time to be made."""
    memory = Path("/dev/shm")
    where = str(memory) if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=where) as name:
        os.environ[_VARIABLE] = name
        try:
            subprocess.run([sys.executable, "-m", "tests.simulation.stores", name], check=True)
            yield Path(name)
        finally:
            del os.environ[_VARIABLE]


def folder() -> Path:
    """Return the folder that :func:`prepared` has made."""
    return Path(os.environ[_VARIABLE])
