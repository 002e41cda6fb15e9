"""A run of the tests that was started to ignore signals, as by nohup, tests the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CASES = (
    "tests/cli/test_signals.py::test_a_command_that_a_signal_ends",
    "tests/cli/test_commands.py::test_watch[INT]",
)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_tests_of_signals_pass(workers: str) -> None:
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, *CASES]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        ["sh", "-c", "trap '' INT QUIT HUP && exec \"$@\"", "sh", *tests],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
