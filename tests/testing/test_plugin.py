"""The plugin costs nobody anything: neither who does not use it, nor, to speak of, who does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import timeit
import uuid
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dblock.schema import upgrade
from dblock.testing import Faults


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_pytest_finds_it() -> None:
    (found,) = entry_points(group="pytest11", name="dblock")
    assert found.value == "pytest_dblock"


def test_pytest_imports_next_to_nothing() -> None:
    assert (
        run("""
        import sys
        import pytest
        before = set(sys.modules)
        import pytest_dblock
        print(set(sys.modules) - before)
    """)
        == "{'pytest_dblock'}"
    )


def test_a_run_that_does_not_use_it_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_mine():\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] == 'dblock']\n"
        "    assert 'sqlalchemy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:django", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_what_is_not_used_is_not_imported() -> None:
    assert (
        run("""
        import sys
        for missing in ("greenlet", "aiosqlite", "psycopg", "pymysql", "django", "flask"):
            sys.modules[missing] = None
        from dblock.testing import Faults
        with Faults() as faults, faults.locks.lease("report"):
            pass
        print([name for name in sys.modules if name.startswith(("dblock.aio", "dblock.contrib"))])
    """)
        == "[]"
    )


def test_a_database_for_each_test_takes_no_time(tmp_path: Path) -> None:
    def migrate() -> None:
        upgrade(f"sqlite:///{tmp_path}/{uuid.uuid4()}.db")

    def have() -> None:
        with Faults() as faults, faults.locks.lease("report"):
            pass

    have()  # the first one makes the tables
    assert fastest(have) < fastest(migrate)


def fastest(function: Callable[[], None]) -> float:
    return min(timeit.repeat(function, number=1, repeat=5))


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Faults() as faults:
        lease = faults.locks.lease("report")
        lease.acquire()
        faults.wanted_by_another("report")
        assert list(tmp_path.iterdir())
    assert not lease.held
    assert not list(tmp_path.iterdir())
