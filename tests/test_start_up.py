"""What an import brings with it: no more than is needed before the first lock is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dblock
from tests.conftest import Database

#: What takes long, and is imported where it is of use.
LATER = (
    *("sqlalchemy.orm", "sqlalchemy.ext", "alembic", "tenacity", "rich", "typer"),
    *("sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.mysql", "psycopg", "pymysql"),
    *("dblock.dialects.postgresql", "dblock.dialects.mariadb"),
    *("dblock.aio", "dblock.schema", "dblock.doctor", "dblock.conflicts"),
    "dblock.counters.counter",
)


def modules_after(code: str, state: Path) -> set[str]:
    code = f"import sys\n{code}\nprint(*sys.modules)"
    environment = os.environ | {"XDG_STATE_HOME": str(state)}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return set(said.stdout.splitlines()[-1].split())


def command_line(*arguments: str) -> str:
    return f"""
from dblock.__main__ import main
try:
    main({list(arguments)})
except SystemExit as end:
    assert not end.code, end.code
"""


def of(kinds: tuple[str, ...], modules: set[str]) -> set[str]:
    return {one for one in modules if any(f"{one}.".startswith(f"{kind}.") for kind in kinds)}


def test_the_package_alone_brings_nothing(tmp_path: Path) -> None:
    brought = modules_after("import dblock", tmp_path)
    assert of(("dblock", "sqlalchemy"), brought) == {"dblock"}


def test_who_catches_errors_does_without_sqlalchemy(tmp_path: Path) -> None:
    brought = modules_after("from dblock import NotAcquired, Unavailable", tmp_path)
    assert of(("dblock", "sqlalchemy"), brought) == {"dblock", "dblock.errors"}


@pytest.mark.parametrize(
    "code",
    [
        "from dblock import Locks, RetryPolicy",
        "from dblock import Locks; Locks('sqlite:///locks.db')",
    ],
)
def test_locks_bring_what_they_need(code: str, tmp_path: Path) -> None:
    brought = modules_after(code, tmp_path)
    assert "dblock.locks" in brought
    assert of((*LATER, "click", "dblock.cli"), brought) == set()


def test_sqlalchemy_comes_with_the_first_locks(tmp_path: Path) -> None:
    brought = modules_after(
        "from dblock import Lease, Locks, MultiLock, RetryPolicy, RowLock", tmp_path
    )
    assert of(("sqlalchemy", "asyncio"), brought) == set()


def test_the_version_is_told_without_sqlalchemy(tmp_path: Path) -> None:
    brought = modules_after(command_line("--version"), tmp_path)
    assert of((*LATER, "sqlalchemy", "asyncio", "dblock.locks"), brought) == set()


def test_a_command_is_run_with_what_its_lock_needs(tmp_path: Path) -> None:
    run = command_line("run", "nightly", "--", "true")
    modules_after(run, tmp_path)  # makes the default database, for which it takes Alembic
    brought = modules_after(run, tmp_path)
    assert "dblock.dialects.sqlite" in brought
    assert of((*LATER, "sqlalchemy", "asyncio"), brought) == set()


def test_a_file_is_connected_to_without_sqlalchemy(tmp_path: Path) -> None:
    modules_after(command_line("run", "nightly", "--", "true"), tmp_path)
    url = f"sqlite:///{tmp_path}/dblock/locks.db"
    brought = modules_after(f"from dblock import Locks; Locks({url!r}).show('x')", tmp_path)
    assert of((*LATER, "sqlalchemy", "asyncio"), brought) == set()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_first_lock_imports_nothing(db: Database, host: str, tmp_path: Path) -> None:
    """It may be interrupted, and another thread would get what is half imported: one such codec is
    unknown for as long as the process lives."""
    modules_after(
        f"""
from dblock import Locks
locks = Locks({db.url.replace("127.0.0.1", host)!r})
before = set(sys.modules)
for make in locks.lease, locks.row:
    with make("report"):
        pass
came = set(sys.modules) - before
assert not came, came
""",
        tmp_path,
    )


def test_all_that_is_public_is_there() -> None:
    for name in dblock.__all__:
        assert getattr(dblock, name).__name__ == name
        assert name in dir(dblock)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dblock.nothing  # noqa: B018
