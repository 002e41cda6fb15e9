"""`dblock run`: holding a lock while a command runs."""

from __future__ import annotations

import contextlib
import functools
import os
import pty
import re
import shlex
import signal
import socket
import sqlite3
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import dblock.holding.handle_holds
from dblock import DBLockError, DeadlockDetected, LockLost, Locks, OutcomeUnknown
from dblock.io.target import address
from tests.cli.conftest import PYTHON, UNTIL_TOLD, Here, Program, beside_the_place
from tests.conftest import Database, NewDatabase
from tests.servers import execute
from tests.support import SECONDS, eventually

SHOW = (
    "import os; print(*(os.environ.get('DBLOCK_' + k) for k in ('NAME', 'FENCE', 'TOKEN', 'URL')))"
)


def held(database: Database, name: str) -> bool:
    with Locks(database.url) as locks:
        return locks.show(name).held


# --- on a database ------------------------------------------------------------------------------


def test_the_command_has_the_lock_and_knows_it(dblock: Program, db: Database) -> None:
    code, out, err = dblock("run", "nightly ☾", "--", *PYTHON, SHOW)
    assert (code, err) == (0, "")
    name, moon, fence, token, url = out.split()
    assert (name, moon, fence) == ("nightly", "☾", "1")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert url == db.url  # because it was in the environment
    assert not held(db, "nightly ☾")


def test_verbose_list_and_doctor_name_the_database(dblock: Program, db: Database) -> None:
    given, where = address(db.url), address(Locks(db.url).engine.url)
    if db.url.startswith("postgresql"):
        dblock.environment["DBLOCK_URL"] += "?passfile=/swordfish"
    run = dblock("run", "nightly", "-v", "--", "true")[2]
    assert run.startswith(f"dblock: locks are in {given}\n")
    listed = dblock("list")[2]
    assert listed.startswith(f"dblock: locks are in {given}\n")
    out = dblock("doctor")[1]
    assert f"ok\tdatabase\t{where}\t" in out
    assert "swordfish" not in run + listed + out


def test_one_runs_the_other_is_busy(dblock: Program, db: Database) -> None:
    holder = dblock.holder("nightly", "--label", "first one")
    mine = rf"{re.escape(socket.gethostname())} pid {holder.pid} first one"
    for option in (["--nonblock"], ["--wait", "0.3"]):
        code, out, err = dblock("run", "nightly", *option, "--", "echo", "ran")
        assert (code, out) == (75, "")
        within = r"0\.3" if "--wait" in option else "0"
        assert re.fullmatch(
            rf"dblock: 'nightly' was not acquired within {within} s: held by {mine} since .* UTC, "
            r"expires in \d+\.\d s\n",
            err,
        )
    assert holder.finish() == (0, "", "")
    assert dblock("run", "nightly", "-n", "--", "echo", "ran") == (0, "ran\n", "")


def test_so_many_run_at_a_time(dblock: Program, db: Database) -> None:
    holders = [dblock.holder("api", "--slots", "2") for _ in range(2)]
    with Locks(db.url) as locks:
        assert [state.name for state in locks.list()] == ["api#1", "api#2"]
    code, out, err = dblock("run", "api", "--slots", "2", "-n", "--", "echo", "ran")
    assert (code, out) == (75, "")
    assert "all 2 were held" in err
    code, out, err = dblock("run", "api", "--slots", "3", "-n", "--", "echo", "ran")
    assert (code, out) == (64, "")
    assert "has 2 slots" in err
    waiting = dblock.start("run", "api", "--slots", "2", "--", *PYTHON, SHOW)
    eventually(lambda: held(db, "api"))  # the turnstile
    assert holders[0].finish() == (0, "", "")
    code, out, err = waiting.finish()
    assert (code, err) == (0, "")
    assert out.split()[0] in ("api#1", "api#2")
    assert holders[1].finish() == (0, "", "")
    assert not held(db, "api#1")


def test_slots_that_make_no_sense(dblock: Program) -> None:
    for options, said in (
        (["--slots", "0"], "between 1 and 1000"),
        (["--slots", "2", "--once-per", "day"], "--once-per"),
        (["--slots", "2", "--at-least", "5m"], "--at-least"),
    ):
        code, out, err = dblock("run", "api", *options, "--", "echo", "ran")
        assert (code, out) == (64, "")
        assert said in err
    code, _, err = dblock("run", "x" * 251, "--slots", "2", "--", "echo", "ran")
    assert code == 64
    assert "at most 250" in err


def test_shared(dblock: Program, db: Database) -> None:
    readers = [dblock.holder("prices", "--shared") for _ in range(2)]
    code, out, err = dblock("run", "prices", "-n", "--", "echo", "ran")
    assert (code, out) == (75, "")
    assert "'prices' was not acquired" in err
    assert [reader.finish() for reader in readers] == [(0, "", "")] * 2
    writer = dblock.holder("prices")
    assert dblock("run", "prices", "--shared", "-n", "--", "echo", "ran")[0] == 75
    assert writer.finish() == (0, "", "")
    assert not held(db, "prices")


def test_runs_that_share_have_no_record(dblock: Program, db: Database) -> None:
    """They have one fence, so they would have one record."""
    with Locks(db.url) as locks:
        reader = dblock.holder("prices", "--shared")
        assert locks.last_run("prices") is None
        assert reader.finish() == (0, "", "")
        assert dblock("run", "prices", "--", "sh", "-c", "exit 3")[0] == 3
        reader = dblock.holder("prices", "--shared")
        assert locks.show("prices").run is None
        assert [state.run for state in locks.list()] == [None]
        run = locks.last_run("prices")
        assert reader.finish() == (0, "", "")
    assert run is not None
    assert (run.outcome, run.exit_status) == ("failed", 3)
    assert dblock("runs", "prices", "--json")[1].count("exit_status") == 1


def test_shared_that_makes_no_sense(dblock: Program) -> None:
    for other in (["--slots", "2"], ["--once-per", "day"], ["--at-least", "5m"]):
        code, out, err = dblock("run", "prices", "--shared", *other, "--", "echo", "ran")
        assert (code, out) == (64, "")
        assert other[0] in err
        assert "--shared" in err


def test_waits_for_its_turn(dblock: Program, db: Database, tmp_path: Path) -> None:
    """Two that add to a file, reading it first, do not overwrite each other's line."""
    file = tmp_path / "file"
    file.touch()
    add = f"x=$(cat {shlex.quote(str(file))}); (echo $x +) > {shlex.quote(str(file))}"
    first = dblock.holder("nightly")
    others = [dblock.start("run", "nightly", "--", "sh", "-c", add) for _ in range(2)]
    others[0].until_waiting()
    assert file.read_text() == ""
    first.finish()
    assert [other.finish() for other in others] == [(0, "", "")] * 2
    assert file.read_text() == "+ +\n"


def test_the_lease_is_renewed(dblock: Program, db: Database) -> None:
    holder = dblock.holder("nightly", "--ttl", "1")
    with Locks(db.url) as locks:
        for _ in range(3):  # each is a renewal later than the one before
            before = locks.show("nightly").expires_at
            eventually(functools.partial(moved, locks, before))
            assert locks.lease("nightly", wait=0).acquire() is False
    assert holder.finish() == (0, "", "")
    assert not held(db, "nightly")


def moved(locks: Locks, before: datetime | None) -> bool:
    return locks.show("nightly").expires_at != before


@pytest.mark.parametrize("how", ["forced", "taken over"])
def test_loss_ends_the_command(dblock: Program, db: Database, how: str) -> None:
    holder = dblock.start("run", "nightly", "--ttl", "1", "--grace", "60", "--", *PYTHON, ON_TERM)
    assert holder.line() == "started"
    assert dblock("release", "nightly", "--force")[0] == 0
    if how == "taken over":
        with Locks(db.url) as locks, locks.lease("nightly"):
            assert holder.line() == "terminated"
    code, out, err = holder.finish()
    assert (code, out) == (79, "" if how == "taken over" else "terminated\n")
    lines = err.splitlines()
    assert [line.partition(" (pid")[0] for line in lines] == [
        "dblock: lost the lock, ending the command",
        lines[1].partition(" (pid")[0],
    ]
    assert lines[1].endswith("the command ended with 4")


ON_TERM = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.write(1, b"started\\n")
signal.sigwait({signal.SIGTERM})
os.write(1, b"terminated\\n")
raise SystemExit(4)
"""


def test_loss_found_at_the_end(dblock: Program, db: Database) -> None:
    holder = dblock.holder("nightly", "--ttl", "600")
    with Locks(db.url) as locks:
        locks.release("nightly", force=True)
    code, _, err = holder.finish()
    assert code == 79
    assert err == "dblock: 'nightly' was released by force; the command ended with 0\n"


def test_without_tables(here: Here, database: Database) -> None:
    code, out, err = here.on(database)("run", "nightly", "--", "echo", "ran")
    assert (code, out) == (78, "")
    assert err.startswith("dblock: ")
    assert "dblock upgrade" in err
    assert err.count("\n") == 1


# --- on a file ---------------------------------------------------------------------------------


def test_the_commands_own_code(sqlite: Program) -> None:
    assert sqlite("run", "a", "--", "sh", "-c", "exit 3") == (3, "", "")
    assert sqlite("run", "a", "--", "sh", "-c", "kill -KILL $$") == (137, "", "")


def test_commands_that_cannot_run(sqlite: Program, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(mode=0o600)
    for command, code, why in (
        (str(tmp_path / "missing"), 127, "No such file or directory"),
        (str(file), 126, "Permission denied"),
    ):
        assert sqlite("run", "a", "--", command) == (
            code,
            "",
            f"dblock: cannot run {command!r}: {why}\n",
        )
    assert sqlite("show", "a")[0] == 1


def test_another_code_for_busy(sqlite: Program) -> None:
    holder = sqlite.holder("a")
    code, out, err = sqlite("run", "a", "-n", "-E", "3", "--", "echo", "ran")
    assert (code, out, err.count("\n")) == (3, "", 1)
    # Then busy is as it should be, and cron has nothing to mail.
    assert sqlite("run", "a", "-n", "-E", "0", "--", "echo", "ran") == (0, "", "")
    holder.finish()


def test_no_server_there(here: Here) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        for kind in ("postgresql", "mysql"):
            url = f"{kind}://me:secret@127.0.0.1:{port}/db"
            code, out, err = here("run", "a", "-n", "--url", url, "--", "echo", "ran")
            assert (code, out) == (69, "")
            assert err.startswith("dblock: the database was not reached: ")
            assert err.count("\n") == 1
            assert "secret" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument 'NAME'"),
        (["a"], "give the command after --"),
        (["a", "--"], "give the command after --"),
        (["a", "ls", "-l"], "give the command after --"),
        (["", "--", "ls"], "a lock name cannot be empty"),
        (["x" * 256, "--", "ls"], "at most 255 characters"),
        (["\udcff", "--", "ls"], "UTF-8"),
        (["a", "--ttl", "soon", "--", "ls"], "'soon' is not a duration"),
        (["a", "--ttl", "0", "--", "ls"], "a TTL is at least 0.1 seconds"),
        (["a", "--ttl", "nan", "--", "ls"], "'nan' is not a duration"),
        (["a", "--ttl", "367d", "--", "ls"], "a TTL is at most 366 days"),
        (["a", "--ttl", "400d", "--", "ls"], "a TTL is at most 366 days (31622400 seconds): 400d"),
        (["a", "--at-most", "0.05", "--", "ls"], "--at-most is at least 0.1 seconds: 0.05"),
        (["a", "--at-least", "400d", "--", "ls"], "--at-least is at most 366 days"),
        (
            ["a", "--at-least", "4m", "--at-most", "2m", "--", "ls"],
            "--at-least (4m) is longer than --at-most (2m)",
        ),
        (["a", "--wait", "-1m", "--", "ls"], "a wait cannot be negative: -1m"),
        (["a", "--wait", "-1", "--", "ls"], "a wait cannot be negative"),
        (["a", "--wait", "200000d", "--", "ls"], "a wait is at most"),
        (["a", "--wait", "1", "-n", "--", "ls"], "give either --wait or --nonblock, not both"),
        (["a", "-E", "256", "--", "ls"], "256 is not in the range"),
        (["a", "--label", "\udcff", "--", "ls"], "UTF-8"),
        (["a", "--frobnicate", "--", "ls"], "No such option"),
        (["a", "--url", "db", "--", "ls"], "this is not a database URL"),
        (["a", "--url", "postgresql://db:port/", "--", "ls"], "this is not a database URL"),
        (["a", "--prefix", "a-b", "--", "ls"], "prefix has letters, digits"),
        (["a", "--schema", "", "--", "ls"], "schema has letters, digits"),
    ],
)
def test_wrong_usage(here: Here, arguments: list[str], says: str) -> None:
    code, out, err = here("run", *arguments)
    assert (code, out) == (64, "")
    assert err.startswith("dblock: ")
    assert says in err
    assert beside_the_place(err).count("\n") == 1


@pytest.mark.parametrize("option", ["--ttl", "--at-least"])
def test_a_ttl_beyond_a_day_is_said_once(sqlite: Program, option: str) -> None:
    as_usual = ("-W", "default::UserWarning", "-m", "dblock")
    running = sqlite.start("run", "a", option, "2d", "--", "echo", "ran", program=as_usual)
    code, out, err = running.finish()
    assert (code, out) == (0, "ran\n")
    assert err.startswith("dblock: a TTL is longer than a day: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("oracle://db", "it works on postgresql"),
        ("sqlite://", "give a file"),
        ("mysql://127.0.0.1/db?frobnicate=1", "frobnicate"),
    ],
)
def test_unsupported_databases(here: Here, url: str, says: str) -> None:
    code, out, err = here("run", "a", "--url", url, "--", "echo", "ran")
    assert (code, out) == (78, "")
    assert says in err
    assert err.count("\n") == 1


def test_an_option_after_the_dashes_is_the_commands(sqlite: Program) -> None:
    assert sqlite("run", "a", "--", "echo", "-n", "--", "--ttl") == (0, "-- --ttl", "")


def test_the_command_gets_the_streams_and_the_open_files(sqlite: Program, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        copy = sqlite.start(
            "run", "a", "--", "sh", "-c", f"cat; echo e >&2; echo f >/dev/fd/{file.fileno()}",
            pass_fds=[file.fileno()],
        )  # fmt: skip
        out, err = copy.process.communicate("through\n")
    assert (copy.process.returncode, out, err) == (0, "through\n", "e\n")
    assert (tmp_path / "file").read_text() == "f\n"


def test_signals_are_as_the_command_expects_them(sqlite: Program) -> None:
    """None blocked; those that Python ignores, not ignored."""
    code, out, _ = sqlite("run", "a", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    masks = dict(line.split() for line in out.splitlines())
    assert code == 0
    assert int(masks["SigBlk:"], 16) == 0
    ignored = int(masks["SigIgn:"], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_locks_within_locks(sqlite: Program) -> None:
    inner = [sys.executable, "-m", "dblock", "run", "b", "--", *PYTHON, SHOW]
    code, out, err = sqlite("run", "a", "--", *inner)
    assert (code, err) == (0, "")
    assert out.startswith("b 1 ")


def test_other_tables(program: Program, new_database: NewDatabase) -> None:
    there = program.on(new_database("postgresql"))
    there.environment |= {"DBLOCK_PREFIX": "their_", "DBLOCK_SCHEMA": "public"}
    code, out, err = there("upgrade")
    assert (code, err) == (0, "")
    assert out.startswith("created their_lock, their_guard, ")
    assert there("upgrade")[1].startswith("already at revision dblock_")
    holder = there.holder("a")
    assert there("run", "a", "-n", "--", "true")[0] == 75
    assert there("run", "a", "-n", "--prefix", "other_", "--", "true")[0] == 78
    assert holder.finish() == (0, "", "")


def test_a_database_that_comes_back(sqlite: Program) -> None:
    """A transient error does not end the command: here, tables that are away for a while."""
    holder = sqlite.holder("a", "--ttl", "3")
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
        before = locks.show("a")
        rename(sqlite, "dblock_lock", "away")
        due = time.monotonic() + 1.2  # a third of the TTL, and more: a renewal has failed
        eventually(lambda: time.monotonic() > due)
        rename(sqlite, "away", "dblock_lock")
        eventually(lambda: locks.show("a").expires_at != before.expires_at)
    assert holder.finish() == (0, "", "")


def rename(program: Program, table: str, to: str) -> None:
    file = program.environment["DBLOCK_URL"].removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO {to}")


def test_a_database_that_is_gone_at_the_end(sqlite: Program) -> None:
    """The command's own code counts; the lease runs out by itself."""
    holder = sqlite.start(
        "run", "a", "--ttl", "600", "--", "sh", "-c", "echo started; read x; exit 5"
    )
    assert holder.line() == "started"
    rename(sqlite, "dblock_lock", "away")
    code, _, err = holder.finish()
    assert code == 5
    assert err.startswith("dblock: could not release 'a', so it stays until it expires: ")
    assert err.count("\n") == 1


def test_an_interrupted_acquire_holds_nothing(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the signal: here, when the grant has been heard of."""

    add = dblock.holding.handle_holds.HandleHolds.add

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def add_and_interrupt(*arguments: Any) -> None:
        add(*arguments)
        raise KeyboardInterrupt

    with Locks(new_database("sqlite", migrated=True).url) as locks:
        lease = locks.lease("a", wait=0)
        with monkeypatch.context() as patch:
            patch.setattr(dblock.holding.handle_holds.HandleHolds, "add", interrupt)
            with pytest.raises(KeyboardInterrupt):
                lease.acquire()
        with monkeypatch.context() as patch:
            patch.setattr(dblock.holding.handle_holds.HandleHolds, "add", add_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                lease.acquire()
        assert not lease.held
        state = locks.show("a")
        assert (state.fence, state.remaining) == (2, None)
        assert lease.acquire()
        lease.release()


def test_waits_for_ever_unless_told(sqlite: Program) -> None:
    holder = sqlite.holder("a")
    waiter = sqlite.start("run", "a", "--", *UNTIL_TOLD)
    waiter.until_waiting()
    holder.finish()
    assert waiter.line() == "started"
    assert waiter.finish() == (0, "", "")


def test_verbose(sqlite: Program) -> None:
    holder = sqlite.holder("nightly", "-v", "--ttl", "1")
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
        for _ in range(2):  # the second is sent when the first has been told
            before = locks.show("nightly").expires_at
            eventually(functools.partial(moved, locks, before))
    code, out, err = holder.finish()
    assert (code, out) == (0, "")
    place, first, *renewals, last = err.splitlines()
    assert place == f"dblock: locks are in {sqlite.environment['DBLOCK_URL']}"
    assert re.fullmatch(r"dblock: acquired 'nightly', fence 1, after \d+\.\d s", first)
    assert set(renewals) == {"dblock: renewed 'nightly'"}
    assert re.fullmatch(r"dblock: released 'nightly', held for \d+\.\d s", last)
    assert sqlite("run", "a", "--", "true") == (0, "", "")


def test_verbose_about_slots(sqlite: Program) -> None:
    """What is told is of the slot, not of the name that who takes one has for a moment."""
    holder = sqlite.holder("api", "--slots", "1", "-v")
    reading, writing = os.pipe()
    waiter = sqlite.start("run", "api", "--slots", "1", "-v", "--", "true", stderr=writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.readline().startswith("dblock: locks are in ")
        assert told.readline() == "dblock: waiting for a slot of 'api': all are taken\n"
        code, _, err = holder.finish()
        _, acquired, *renewals, released = err.splitlines()
        assert (code, acquired[:28]) == (0, "dblock: acquired 'api#1', fe")
        assert set(renewals) <= {"dblock: renewed 'api#1'"}
        assert released.startswith("dblock: released 'api#1', held for ")
        assert waiter.process.wait(SECONDS) == 0
        assert "renewed 'api'" not in told.read()


@pytest.mark.parametrize("how", ["terminal", "verbose"])
def test_who_is_waited_for_is_told_once(sqlite: Program, how: str) -> None:
    holder = sqlite.holder("a", "--label", "me\x1b")
    reading, writing = pty.openpty() if how == "terminal" else os.pipe()
    options = () if how == "terminal" else ("-v",)
    waiter = sqlite.start("run", "a", *options, "--", "true", stderr=writing)
    os.close(writing)
    line = ""
    while "waiting" not in line:  # -v names the database before
        line += os.read(reading, 10_000).decode()
    assert re.search(
        r"^dblock: waiting for 'a', held by \S+ pid \d+ me\\x1b since .* UTC, ", line, re.M
    )
    holder.finish()
    assert waiter.process.wait(SECONDS) == 0
    rest = b""
    with contextlib.suppress(OSError):  # Linux's end of a terminal
        rest = os.read(reading, 10_000)
    os.close(reading)
    assert "waiting" not in rest.decode()
    assert bool(rest) is (how == "verbose")


def test_who_is_waited_for_is_no_matter_for_a_log(sqlite: Program) -> None:
    holder = sqlite.holder("a")
    code, out, err = sqlite("run", "a", "--wait", "1.5", "--", "true")
    assert (code, out, err.count("\n")) == (75, "", 1)
    holder.finish()


def test_stands_in_the_queue_if_asked(sqlite: Program) -> None:
    holder, waiters = sqlite.holder("a"), []

    def standing() -> int:
        url = sqlite.environment["DBLOCK_URL"]
        ((queue,),) = execute(url, "SELECT waiters FROM dblock_lock")
        return len(queue.split(",")) if queue else 0

    for number in (1, 2):
        waiters.append(sqlite.start("run", "a", "--fair", "--", "true"))
        eventually(lambda: standing() == number)  # noqa: B023
    holder.finish()
    assert [waiter.finish() for waiter in waiters] == [(0, "", "")] * 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutcomeUnknown("the reply never came"), 70),
        (LockLost("taken over"), 79),
        (DeadlockDetected("waits for itself"), 70),
    ],
)
def test_errors_that_are_hard_to_come_by(
    here: Here, monkeypatch: pytest.MonkeyPatch, error: DBLockError, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Locks, "lease", fail)
    ended, out, err = here("run", "a", "--", "echo", "ran")
    assert (ended, out, beside_the_place(err)) == (code, "", f"dblock: {error}\n")


def test_a_defect_is_told_in_full(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(Locks, "lease", fail)
    code, out, err = here("run", "a", "--", "echo", "ran")
    assert (code, out) == (70, "")
    assert beside_the_place(err).startswith("Traceback")
    assert err.endswith("KeyError: 'a defect'\n")
