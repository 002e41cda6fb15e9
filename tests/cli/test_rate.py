"""`dblock rate`: a place of a rate limit, and a command in it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dblock import Locks
from tests.cli.conftest import UNTIL_TOLD, Here, Program
from tests.conftest import Database


def test_the_command_runs_if_there_is_a_place(dblock: Program, db: Database) -> None:
    limit = ("rate", "mail ☾", "2", "--per", "10h")
    for _ in range(2):
        assert dblock(*limit, "--", "sh", "-c", "echo ran; exit 3") == (3, "ran\n", "")
    code, out, err = dblock(*limit, "--", "echo", "ran")
    assert (code, out) == (75, "")
    assert err.startswith("dblock: the rate limit 'mail ☾' has no place: 2 per 36000 s are used up")
    assert err.count("\n") == 1
    with Locks(db.url) as locks:
        assert not locks.rate("mail ☾", 2, per=36000).acquire()


def test_without_a_command(here: Here, db: Database) -> None:
    here = here.on(db)
    limit = ("rate", "api", "2", "--per", "10h")
    assert here(*limit) == (0, "", "")
    assert here(*limit, "--cost", "2")[0] == 75
    assert here(*limit) == (0, "", "")
    assert here(*limit, "-E", "0") == (0, "", "")
    assert here(*limit, "-E", "3")[0] == 3
    assert here("rate", "spread", "2", "--per", "10h", "--burst", "1") == (0, "", "")
    assert here("rate", "spread", "2", "--per", "10h", "--burst", "1")[0] == 75


def test_it_waits_for_a_place(sqlite: Program) -> None:
    limit = ("rate", "a", "1", "--per", "100ms")
    for _ in range(3):
        assert sqlite(*limit, "--wait", "1m", "--", "echo", "ran") == (0, "ran\n", "")


def test_signals_go_to_the_command(sqlite: Program) -> None:
    limit = ("rate", "a", "1", "--per", "10h")
    running = sqlite.start(*limit, "--", *UNTIL_TOLD)
    assert running.line() == "started"
    running.send(signal.SIGTERM)
    assert running.end()[0] == 128 + signal.SIGTERM


def test_a_signal_ends_the_wait(sqlite: Program) -> None:
    limit = ("rate", "a", "1", "--per", "10h")
    assert sqlite(*limit)[0] == 0
    running = sqlite.start(*limit, "--wait", "20h", "--", "echo", "ran")
    running.until_waiting()
    running.send(signal.SIGTERM)
    assert running.end()[:2] == (128 + signal.SIGTERM, "")


def test_commands_that_cannot_run(sqlite: Program, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    code, out, err = sqlite("rate", "a", "1", "--per", "10h", "--", missing)
    assert (code, out, err.count("\n")) == (127, "", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a", "0", "--per", "1m"), "a limit is between 1 and"),
        (("a", "5"), "Missing option '--per'"),
        (("a", "5", "--per", "1m", "--cost", "6"), "--cost=6 is more than can be taken at once"),
        (("a", "5", "--per", "1m", "--"), "give a command after --"),
        (("a", "5", "--per", "0"), "--per=0 is too short"),
    ],
)
def test_wrong_usage(here: Here, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = here("rate", *arguments)
    assert (code, out) == (64, "")
    assert says in err
