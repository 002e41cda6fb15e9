"""The file that the command line uses when it is told no database."""

from __future__ import annotations

import contextlib
import os
import pty
import sqlite3
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Here, Program
from tests.support import SECONDS


def test_the_default_file_is_made_when_needed(program: Program) -> None:
    file = program.state / "dblock" / "locks.db"
    line = f"dblock: no database was given: locks are in {file}, for this host only\n"
    assert program("list") == (0, "", f"{line}dblock: nobody holds a lock\n")
    assert file.is_file()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert program("run", "a", "--", "true") == (0, "", line)
    assert program("show", "a")[1].startswith("name     a\nstate    free\nfence    1\n")


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
    line = (
        f"dblock: no database was given: locks are in {program.state}/dblock/locks.db, for this "
        "host only\n"
    )
    assert [run.finish() for run in runs] == [(0, "ran\n", line)] * 8
    assert program("show", "a")[1].startswith("name     a\nstate    free\nfence    8\n")


def test_the_default_file_cannot_be_made(here: Here, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    code, out, err = here("run", "a", "--", "echo", "ran")
    assert (code, out) == (78, "")
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


@pytest.mark.parametrize(
    "command",
    [
        ["run", "a", "--", "echo", "ran"],
        ["list", "--json"],
        ["doctor", "--json"],
        ["metrics"],
        ["upgrade"],
        ["downgrade", "--revision", "base", "--yes"],
    ],
    ids=lambda command: command[0],
)
def test_without_a_terminal_the_default_file_is_named(program: Program, command: list[str]) -> None:
    """Under cron nobody sees which database it is, and each host would have one of its own."""
    _, _, err = program(*command)
    assert err.count(f"locks are in {program.state}/dblock/locks.db, for this host only\n") == 1


def test_on_a_terminal_the_default_file_is_named_where_asked(program: Program) -> None:
    def said(*arguments: str) -> str:
        master, slave = pty.openpty()
        run = program.start(*arguments, stderr=slave)
        os.close(slave)
        run.process.wait(SECONDS)
        try:
            return os.read(master, 100_000).decode()
        except OSError:  # it has written nothing, and nobody has the other end
            return ""
        finally:
            os.close(master)

    name = f"locks are in {program.state}/dblock/locks.db, for this host only"
    assert said("run", "a", "--", "true") == ""
    assert name in said("run", "a", "-v", "--", "true")
    assert name in said("list")


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize(
    "variable",
    ["DBLOCK_URL", "DBLOCK_URL_FILE", "DBLOCK_SCHEMA", "DBLOCK_PREFIX", "DBLOCK_TRUST_SERVER"],
)
def test_a_variable_that_is_set_but_empty_is_refused(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """As `DBLOCK_URL=$URL` makes it where nobody has set URL: each of the hosts would run the job,
    with a lock in a file of its own."""
    monkeypatch.setenv(variable, value)
    for host in ("one", "two"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / host))
        for command in (["run", "a", "--", "echo", "ran"], ["list"], ["upgrade"], ["metrics"]):
            code, out, err = here(*command)
            assert (code, out) == (64, "")
            said = f"{variable} is set but empty"
            if (variable, value) == ("DBLOCK_TRUST_SERVER", "  ") and said not in err:
                said = "--trust-server': '  ' is not a valid boolean"  # as click before 8.2 says it
            assert said in err
            assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_does_not_count_where_the_option_is_given(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DBLOCK_URL", "DBLOCK_URL_FILE"):
        monkeypatch.setenv(variable, "")
    assert here("upgrade", "--url", f"sqlite:///{tmp_path}/a.db")[0] == 0
    for option in ("--url", "--url-file", "--schema", "--prefix"):
        code, _, err = here("list", option, "", "--url", f"sqlite:///{tmp_path}/a.db")
        assert (code, err.count("\n")) == (64, 1) or option == "--url"  # the last one counts
    assert here("list", "--url", "")[0] == 64


def test_a_url_with_white_space_around_it_is_that_url(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a secret that was made with echo has it."""
    monkeypatch.setenv("DBLOCK_URL", f" sqlite:///{tmp_path}/a.db\n")
    assert here("upgrade")[0] == 0
    assert [file.name for file in tmp_path.glob("*.db*")] == ["a.db"]


@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["release", "a", "--force"]])
def test_a_given_file_is_not_migrated(here: Here, tmp_path: Path, command: list[str]) -> None:
    code, out, err = here(*command, "--url", f"sqlite:///{tmp_path}/new.db")
    assert (code, out) == (78, "")
    assert "dblock upgrade --url" in err
    assert err.count("\n") == 1 + (command == ["list"])  # which names the file
