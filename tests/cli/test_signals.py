"""What becomes of the command and of the lock when dblock is signalled."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import sqlite3
import termios
from pathlib import Path

import pytest

from dblock import Locks
from dblock.cli.child import FORWARDED
from tests.cli.conftest import PYTHON, UNTIL_TOLD, Program
from tests.conftest import Database
from tests.support import SECONDS, eventually

# Says which signals it gets, and ends with 9 on the first SIGTERM.
TELL = """
import os, signal, sys
def tell(number, _):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGTERM:
        sys.exit(9)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, tell)
os.write(1, b"started\\n")
while True:
    signal.pause()
"""


def file_of(program: Program) -> str:
    return program.environment["DBLOCK_URL"].removeprefix("sqlite:///")


def is_free(program: Program, name: str) -> bool:
    with Locks(program.environment["DBLOCK_URL"]) as locks:
        return not locks.show(name).held


# --- while the command runs ----------------------------------------------------------------------


def test_sigterm_ends_the_command_and_frees_the_lock(dblock: Program, db: Database) -> None:
    holder = dblock.start("run", "a", "--", *PYTHON, TELL)
    assert holder.line() == "started"
    holder.send(signal.SIGTERM)
    assert holder.end() == (9, "SIGTERM\n", "")
    assert is_free(dblock, "a")


def test_the_command_gets_every_signal(sqlite: Program) -> None:
    holder = sqlite.start("run", "a", "--", *PYTHON, TELL)
    assert holder.line() == "started"
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGHUP):
        holder.send(number)
        assert holder.line() == signal.Signals(number).name
        assert not is_free(sqlite, "a")
    holder.send(signal.SIGTERM)
    assert holder.end() == (9, "SIGTERM\n", "")


@pytest.mark.parametrize("number", FORWARDED)
def test_a_command_that_a_signal_ends(sqlite: Program, number: signal.Signals) -> None:
    holder = sqlite.start("run", "a", "--", "sh", "-c", "echo started; exec sleep 600")
    assert holder.line() == "started"
    holder.send(number)
    assert holder.end() == (128 + number, "", "")
    assert is_free(sqlite, "a")


def test_ignored_signals_stay_ignored(sqlite: Program) -> None:
    """As under nohup."""
    holder = sqlite.start(
        "run", "a", "--", *UNTIL_TOLD,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    assert holder.line() == "started"
    holder.send(signal.SIGHUP)
    status = Path(f"/proc/{holder.pid}/status").read_text()
    assert "SigPnd:\t0000000000000000" in status
    assert holder.finish() == (0, "", "")


def test_a_child_signal_ignored_by_the_parent(sqlite: Program) -> None:
    """Some daemons start their programs so; then the command's end is still noticed."""
    holder = sqlite.start(
        "run", "a", "--", "sh", "-c", "exit 3",
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert holder.finish() == (3, "", "")


def test_control_c_comes_once(sqlite: Program) -> None:
    """The terminal sends it to the command; dblock does not send it again."""
    master, slave = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with os.fdopen(master, "rb+", buffering=0) as keyboard:
        holder = sqlite.start(
            "run", "a", "--", *PYTHON, TELL, terminal=slave, preexec_fn=own_terminal
        )
        os.close(slave)
        assert holder.line() == "started"
        keyboard.write(b"\x03")
        assert holder.line() == "SIGINT"
        assert not is_free(sqlite, "a")
        # dblock takes signals one by one, an INT before a TERM.
        holder.send(signal.SIGTERM)
        assert holder.end() == (9, "SIGTERM\n", "")


def test_after_sigkill_the_command_goes_on_and_the_lease_runs_out(
    dblock: Program, db: Database
) -> None:
    holder = dblock.start(
        "run", "a", "--ttl", "1", "--", "sh", "-c", "echo started; read x; echo on"
    )
    assert holder.line() == "started"
    holder.send(signal.SIGKILL)
    assert holder.process.wait(SECONDS) == -signal.SIGKILL
    assert not is_free(dblock, "a")
    with Locks(db.url) as locks, locks.lease("a", wait=SECONDS) as lease:
        assert lease.fence == 2
        holder.tell()
        assert holder.line() == "on"


# --- when the lock is lost -----------------------------------------------------------------------


def test_a_command_that_does_not_end_is_killed(sqlite: Program, tmp_path: Path) -> None:
    stubborn = "trap '' TERM; echo started; while :; do read line; done"
    short = (
        "import dblock.cli.child as child; child.GRACE = 0.2; "
        "import sys; from dblock.cli import main; main(sys.argv[1:])"
    )
    holder = sqlite.start(
        "run", "a", "--ttl", "0.5", "--", "sh", "-c", stubborn, program=("-c", short)
    )
    assert holder.line() == "started"
    assert sqlite("release", "a", "--force")[0] == 0
    code, _, err = holder.end()
    assert code == 79
    assert err.splitlines()[-1].endswith("the command ended with 137")


def test_a_paused_holder_learns_of_its_loss(sqlite: Program) -> None:
    holder = sqlite.start("run", "a", "--ttl", "0.5", "--", *PYTHON, TELL)
    assert holder.line() == "started"
    holder.send(signal.SIGSTOP)
    eventually(lambda: is_free(sqlite, "a"))
    holder.send(signal.SIGCONT)
    code, out, err = holder.end()
    assert (code, out) == (79, "SIGTERM\n")
    assert "ran out" in err


# --- while waiting -------------------------------------------------------------------------------


def test_a_signal_ends_the_wait(dblock: Program, db: Database) -> None:
    holder = dblock.holder("a")
    waiter = dblock.start("run", "a", "--", "echo", "ran")
    waiter.until_waiting()
    waiter.send(signal.SIGTERM)
    assert waiter.end() == (128 + signal.SIGTERM, "", "")
    assert holder.finish() == (0, "", "")
    with Locks(db.url) as locks:
        state = locks.show("a")
    assert (state.held, state.fence) == (False, 1)


@pytest.mark.parametrize("number", FORWARDED)
def test_every_signal_ends_the_wait(sqlite: Program, number: signal.Signals) -> None:
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks, locks.lease("a"):
        waiter = sqlite.start("run", "a", "--", "echo", "ran")
        waiter.until_waiting()
        waiter.send(number)
        assert waiter.end() == (128 + number, "", "")


def test_a_signal_while_the_grant_is_on_its_way(sqlite: Program) -> None:
    """SQLite's own wait for the file cannot be interrupted: the grant comes after the signal."""
    writer = sqlite3.connect(file_of(sqlite), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    waiter = sqlite.start("run", "a", "--", "echo", "ran")
    waiter.until_waiting()
    waiter.send(signal.SIGTERM)
    writer.execute("COMMIT")
    writer.close()
    assert waiter.end() == (128 + signal.SIGTERM, "", "")
    assert is_free(sqlite, "a")


def test_signals_at_any_time(sqlite: Program) -> None:
    """From before the wait to after the command: never a lock left behind by dblock itself."""
    for _ in range(2):
        runs = [sqlite.start("run", "a", "--", "true") for _ in range(4)]
        for run in runs:
            run.until_waiting()
            run.send(signal.SIGTERM)
        for run in runs:
            code, _, err = run.end()
            assert code in (0, 128 + signal.SIGTERM)
            assert err == ""
        assert is_free(sqlite, "a")
