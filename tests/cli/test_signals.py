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
from dblock.cli.child import FORWARDED, LOOK, Signals, restored
from tests.cli.conftest import PYTHON, UNTIL_TOLD, Program
from tests.conftest import Database
from tests.support import SECONDS, eventually

# Says which signals it gets, and ends with 9 on the first SIGTERM.
TELL = """
import os, signal
awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
os.write(1, b"started\\n")
while (number := signal.sigwait(awaited)) != signal.SIGTERM:
    os.write(1, number.name.encode() + b"\\n")
os.write(1, b"SIGTERM\\n")
raise SystemExit(9)
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


def running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


# Says its pid and that of a process of its own, and that it will not end by TERM, if told so.
FAMILY = "{trap}sleep 600 & echo $! $$; wait; wait"


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_killed_by_kill_it_leaves_no_command_behind(sqlite: Program, trap: str) -> None:
    """Nor what that started, when another can have the lock."""
    holder = sqlite.start("run", "a", "--ttl", "4", "--", "sh", "-c", FAMILY.format(trap=trap))
    family = [int(pid) for pid in holder.line().split()]
    holder.send(signal.SIGKILL)
    assert holder.process.wait(SECONDS) == -signal.SIGKILL
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks, locks.lease("a", wait=SECONDS) as lease:
        assert lease.fence == 2
        assert not any(running(pid) for pid in family)


def test_a_command_that_is_only_warned_of_may_outlive_dblock(dblock: Program, db: Database) -> None:
    """The lease runs out by itself."""
    holder = dblock.start(
        "run", "a", "--ttl", "1", "--on-lost", "warn",
        "--", "sh", "-c", "echo started; read x; echo on",
    )  # fmt: skip
    assert holder.line() == "started"
    holder.send(signal.SIGKILL)
    assert holder.process.wait(SECONDS) == -signal.SIGKILL
    assert not is_free(dblock, "a")
    with Locks(db.url) as locks, locks.lease("a", wait=SECONDS) as lease:
        assert lease.fence == 2
        holder.tell()
        assert holder.line() == "on"


def test_what_the_command_started_gets_the_signals_too(sqlite: Program) -> None:
    holder = sqlite.start("run", "a", "--", "sh", "-c", FAMILY.format(trap=""))
    family = [int(pid) for pid in holder.line().split()]
    holder.send(signal.SIGTERM)
    assert holder.end() == (128 + signal.SIGTERM, "", "")
    eventually(lambda: not any(running(pid) for pid in family))


def test_on_a_terminal_the_command_can_read_from_it(sqlite: Program) -> None:
    """Only what is in the terminal's foreground group can."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb+", buffering=0) as keyboard:
        holder = sqlite.start(
            "run", "a", "--", "sh", "-c", "echo started; read line </dev/tty; echo got $line",
            terminal=slave,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        assert holder.line() == "started"
        keyboard.write(b"words\n")
        assert holder.end() == (0, "got words\n", "")


# --- when the lock is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("grace", [[], ["--grace", "0.2"]])
def test_a_command_that_does_not_end_is_killed(sqlite: Program, grace: list[str]) -> None:
    """With all that it started."""
    stubborn = FAMILY.format(trap="trap '' TERM; ")
    holder = sqlite.start("run", "a", "--ttl", "0.5", *grace, "--", "sh", "-c", stubborn)
    family = [int(pid) for pid in holder.line().split()]
    assert sqlite("release", "a", "--force")[0] == 0
    code, _, err = holder.end()
    assert code == 79
    assert err.splitlines()[-1].endswith("the command ended with 137")
    assert not any(running(pid) for pid in family)


def test_what_outlives_the_command_is_killed(sqlite: Program) -> None:
    """The command ends by TERM, a process of its own does not."""
    script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); exec sleep 600) & wait"
    holder = sqlite.start("run", "a", "--ttl", "0.5", "--grace", "3", "--", "sh", "-c", script)
    pid = int(holder.line())
    assert sqlite("release", "a", "--force")[0] == 0
    code, _, err = holder.end()
    assert code == 79
    assert err.splitlines()[-1].endswith(f"the command ended with {128 + signal.SIGTERM}")
    assert not running(pid)


def test_a_command_that_is_only_warned_of(sqlite: Program) -> None:
    holder = sqlite.holder("a", "--ttl", "2", "--on-lost", "warn")
    assert sqlite("release", "a", "--force")[0] == 0
    assert holder.process.stderr is not None
    assert "the command goes on" in holder.process.stderr.readline()
    code, _, err = holder.finish()
    assert code == 79
    assert err == "dblock: 'a' was released by force; the command ended with 0\n"


def test_a_paused_holder_learns_of_its_loss(sqlite: Program) -> None:
    holder = sqlite.start("run", "a", "--ttl", "0.5", "--grace", "60", "--", *PYTHON, TELL)
    assert holder.line() == "started"
    holder.send(signal.SIGSTOP)
    eventually(lambda: is_free(sqlite, "a"))
    holder.send(signal.SIGCONT)
    code, out, err = holder.end()
    assert (code, out) == (79, "SIGTERM\n")
    assert "expired" in err


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


def test_who_goes_on_has_its_signals_back() -> None:
    """And none of those that were for the command."""
    seen: list[int] = []
    before = signal.signal(LOOK, lambda number, frame: seen.append(number))
    try:
        with restored():
            signals = Signals()
            signals.keep()
            signals.wake()
        assert seen == []
        assert LOOK not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.raise_signal(LOOK)
        assert seen == [LOOK]
    finally:
        signal.signal(LOOK, before)
