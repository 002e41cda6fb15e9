"""The shop's database, and its manage.py."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import NewDatabase
from tests.examples.site import EXAMPLES, command, environment
from tests.support import SECONDS


class Manage(Protocol):
    def __call__(self, line: str, more: str = ...) -> str: ...


@pytest.fixture
def env(
    request: pytest.FixtureRequest, new_database: NewDatabase, tmp_path: Path
) -> dict[str, str]:
    kind = getattr(request, "param", "postgresql")
    return environment(tmp_path, DATABASE_URL=new_database(kind).url)


@pytest.fixture
def manage(env: dict[str, str]) -> Manage:
    def manage(line: str, more: str = "") -> str:
        """Run a command of the README's; return what it writes."""
        done = subprocess.run(
            f"{command('shop', line)} {more}",
            shell=True,
            cwd=EXAMPLES / "shop",
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return manage
