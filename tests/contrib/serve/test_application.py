"""The application, made in Python."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.contrib.serve import app
from tests.support import SECONDS

URL = "sqlite:///never-opened.db"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"ttl_max": 0}, ValueError, "ttl_max"),
        ({"ttl_max": "1"}, TypeError, "ttl_max"),
        ({"wait_max": -1}, ValueError, "wait_max"),
        ({"wait_max": 0.9}, ValueError, "at least 1"),
        ({"wait_max": math.inf}, ValueError, "not infinite"),
        ({"wait_max": math.nan}, ValueError, "NaN"),
        ({"wait_max": True}, TypeError, "wait_max"),
        ({"tokens": "/not/there"}, ValueError, "No such file"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        app(AsyncLocks(URL), **options)


def test_locks_of_threads_are_refused(tmp_path: Path) -> None:
    locks: Any = Locks(URL)
    with pytest.raises(TypeError, match="AsyncLocks, not Locks"):
        app(locks)


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("starlette", "import dblock.contrib.serve"),
        ("httptools", "import dblock.contrib.serve.server"),
        ("uvicorn", "import dblock.contrib.serve.server"),
        ("uvicorn", "from dblock.__main__ import main; main(['serve'])"),
    ],
)
def test_without_the_extra_the_error_names_the_command(missing: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; {code}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode in (1, 78)
    assert "pip install 'dblock[serve]'" in done.stderr
