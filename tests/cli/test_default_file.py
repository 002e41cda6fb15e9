"""The file that the command line uses when it is told no database."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Here, Program


def test_the_default_file_is_made_when_needed(program: Program) -> None:
    assert program("list") == (0, "", "dblock: nobody holds a lock\n")
    file = program.state / "dblock" / "locks.db"
    assert file.is_file()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert program("run", "a", "--", "true") == (0, "", "")
    assert program("show", "a")[1].startswith("name    a\nstate   free\nfence   1\n")


@pytest.mark.parametrize("state", [None, "", "relative/is/ignored"])
def test_the_default_file_without_the_variable(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if state is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    assert here("list")[0] == 0
    assert (tmp_path / ".local" / "state" / "dblock" / "locks.db").is_file()


def test_many_make_the_default_file_at_once(program: Program) -> None:
    runs = [program.start("run", "a", "--", "echo", "ran") for _ in range(8)]
    assert [run.finish() for run in runs] == [(0, "ran\n", "")] * 8
    assert program("show", "a")[1].startswith("name    a\nstate   free\nfence   8\n")


def test_the_default_file_cannot_be_made(here: Here, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    code, out, err = here("run", "a", "--", "echo", "ran")
    assert (code, out) == (69, "")
    assert "DBLOCK_URL" in err
    assert err.count("\n") == 1


def test_a_newer_default_file_is_left_alone(here: Here, tmp_path: Path) -> None:
    assert here("list")[0] == 0
    file = tmp_path / "state" / "dblock" / "locks.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE dblock_schema SET version = 99")
        connection.execute("UPDATE dblock_version SET version_num = 'dblock_9999'")
    code, out, err = here("list")
    assert (code, out) == (78, "")
    assert "version 99" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["release", "a", "--force"]])
def test_a_given_file_is_not_migrated(here: Here, tmp_path: Path, command: list[str]) -> None:
    code, out, err = here(*command, "--url", f"sqlite:///{tmp_path}/new.db")
    assert (code, out) == (78, "")
    assert "dblock upgrade --url" in err
    assert err.count("\n") == 1
