"""The other commands: list, show, release, upgrade, downgrade; help."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from dblock import Locks, __version__
from dblock.cli import exits
from dblock.io.target import address
from dblock.protocol.schema_version import SCHEMA_VERSION
from tests.cli.conftest import Here, Program
from tests.cli.test_run import rename
from tests.conftest import Database, NewDatabase
from tests.support import SECONDS, Threads, eventually, expire

NAMES = ["a", "b [red]", "c\t☾\x1b[2J"]


def locks_of(program: Program) -> Locks:
    return Locks(program.environment["DBLOCK_URL"])


# --- list ----------------------------------------------------------------------------------------


def test_list(dblock: Program, db: Database) -> None:
    with (
        Locks(db.url, label="me") as locks,
        locks.lease(NAMES[0], renew=False) as a,
        locks.lease(NAMES[1]) as b,
    ):
        c = locks.lease(NAMES[2], ttl=0.1)
        c.acquire()
        expire(locks.engine, locks, NAMES[2])
        locks.engine.dispose()
        text = dblock("list")
        code, out, err = dblock("list", "--json")
        tokens = [lease.token for lease in (a, b, c)]

    assert text[0] == 0
    assert text[2] == f"dblock: locks are in {address(db.url)}\n"
    rows = [line.split("\t") for line in text[1].splitlines()]
    assert [row[0] for row in rows] == ["a", "b [red]", r"c\t☾\x1b[2J"]
    assert all(row[2].endswith(f"pid {os.getpid()} me") for row in rows)
    assert all(row[3].endswith(" UTC") for row in rows)
    assert [row[1] for row in rows] == ["held", "held", "expired"]
    assert [row[4].endswith(" s") for row in rows] == [True, True, False]
    assert [row[5:] for row in rows] == [["1", "0"]] * 3

    assert (code, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)
    assert [item["name"] for item in found] == NAMES
    assert [item["state"] for item in found] == ["held", "held", "expired"]
    assert 0 < found[0]["expires_in"] <= 30
    since, until = (datetime.fromisoformat(found[0][key]) for key in ("since", "expires_at"))
    assert since.tzinfo is not None
    assert (until - since).total_seconds() == pytest.approx(30, abs=1)
    assert abs((datetime.now(UTC) - since).total_seconds()) < 600
    for token in tokens:
        assert token not in text[1] + out


def test_list_nothing(here: Here) -> None:
    assert here("list")[2].endswith("dblock: nobody holds a lock\n")
    assert here("list", "--json")[:2] == (0, "[]\n")


def test_list_on_a_terminal(sqlite: Program) -> None:
    with locks_of(sqlite) as locks, locks.lease(NAMES[1]), locks.lease(NAMES[2]):
        master, slave = pty.openpty()
        run = sqlite.start("list", stdout=slave)
        os.close(slave)
        assert run.process.wait(60) == 0
        shown = os.read(master, 100_000).decode()
        os.close(master)
    assert "NAME" in shown
    assert "b [red]" in shown
    assert "\x1b[2J" not in shown


class Screen:
    """What a terminal of our own is shown, and its keyboard."""

    def __init__(self, program: Program, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.run = program.start(*arguments, terminal=slave, stdout=slave)
        os.close(slave)
        self.shown = ""

    def until(self, words: str) -> None:
        while words not in self.shown:
            self.shown += os.read(self.master, 100_000).decode()
        self.shown = self.shown.rpartition(words)[2]

    def press(self, key: bytes) -> None:
        os.write(self.master, key)


@pytest.mark.parametrize("how", ["q", "INT"])
def test_watch(sqlite: Program, how: str) -> None:
    """It shows what is held, and later what is held then."""
    with locks_of(sqlite) as locks:
        screen = Screen(sqlite, "list", "--watch")
        for name in ("first one", "second one"):
            with locks.lease(name):
                screen.until(name)
        screen.until("locks are in")
        screen.until("press q to quit")
        if how == "q":
            screen.press(b"q")
        else:
            screen.run.send(signal.SIGINT)
        assert screen.run.process.wait(SECONDS) == 0
        os.close(screen.master)


def test_watch_tells_that_the_database_is_away(sqlite: Program) -> None:
    screen = Screen(sqlite, "list", "--watch")
    screen.until("press q to quit")
    rename(sqlite, "dblock_lock", "away")
    screen.until("dblock's tables are missing")
    rename(sqlite, "away", "dblock_lock")
    with locks_of(sqlite) as locks, locks.lease("back again"):
        screen.until("back again")
    screen.press(b"q")
    assert screen.run.process.wait(SECONDS) == 0
    os.close(screen.master)


def test_watch_needs_a_terminal(here: Here) -> None:
    for options in ([], ["--json"]):
        code, out, err = here("list", "--watch", *options)
        assert (code, out) == (64, "")
        assert "--watch is for a terminal" in err


# --- show ----------------------------------------------------------------------------------------


def test_show(here: Here, db: Database) -> None:
    dblock = here.on(db)
    with Locks(db.url, label="me") as locks, locks.lease("a", ttl=600) as lease:
        code, out, err = dblock("show", "a")
        as_json = dblock("show", "a", "--json")
        token = lease.token
    assert (code, err) == (0, "")
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert list(said) == ["name", "state", "holder", "since", "expires", "fence"]
    assert (said["name"], said["state"], said["fence"]) == ("a", "held", "1")
    assert said["holder"].endswith(" me")
    assert re.fullmatch(r"in (600\.0|5\d\d\.\d) s", said["expires"])
    assert as_json[0] == 0
    assert json.loads(as_json[1])["state"] == "held"
    assert token not in out + as_json[1]

    code, out, err = dblock("show", "a", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "name": "a",
        "state": "free",
        "holder": None,
        "since": None,
        "expires_at": None,
        "expires_in": None,
        "fence": 1,
        "readers": None,
        "slots": None,
        "row_lock": None,
        "waiters": [],
        "last_run": None,
    }

    with Locks(db.url) as one, Locks(db.url) as two, one.shared("a"), two.shared("a"):
        code, out, err = dblock("show", "a")
        as_json = dblock("show", "a", "--json")
    assert re.search(r"^state +held, shared by 2$", out, re.MULTILINE)
    assert json.loads(as_json[1])["readers"] == 2


def test_show_a_new_one(here: Here) -> None:
    assert here("show", "a")[:2] == (1, "name     a\nstate    free\nfence    0\n")


def test_waiters(here: Here, db: Database, threads: Threads) -> None:
    dblock = here.on(db)

    def wait() -> None:
        with Locks(db.url, label="you\x1b") as locks, locks.lease("a"):
            pass

    with Locks(db.url) as locks, locks.lease("a"):
        threads.start(wait)
        eventually(lambda: bool(locks.show("a").waiters))
        (line,) = [line for line in dblock("show", "a")[1].splitlines() if "waiter" in line]
        (waiter,) = json.loads(dblock("show", "a", "--json")[1])["waiters"]
        (row,) = dblock("list")[1].splitlines()
    threads.join()
    assert re.fullmatch(rf"waiter   .+ pid {os.getpid()} you\\x1b for \d+\.\d s \(lease\)", line)
    assert set(waiter) == {"waiter", "for", "since", "waited"}
    assert datetime.fromisoformat(waiter["since"]).tzinfo is not None
    assert row.split("\t")[-1] == "1"


def test_show_an_expired_one(sqlite: Program) -> None:
    with locks_of(sqlite) as locks:
        locks.lease("a").acquire()
        expire(locks.engine, locks, "a")
        locks.engine.dispose()
    code, out, _ = sqlite("show", "a")
    assert code == 1
    assert "state    expired\nholder   " in out


def test_a_row_lock_is_told(here: Here, new_database: NewDatabase) -> None:
    db = new_database("postgresql", migrated=True)
    dblock = here.on(db)
    with Locks(db.url) as locks, locks.row("a"):
        code, out, err = dblock("show", "a")
        as_json = json.loads(dblock("show", "a", "--json")[1])
        listed = dblock("list")[1]
    assert (code, err) == (0, "")
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert list(said) == ["name", "state", "holder", "since", "last", "fence"]
    assert said["state"] == as_json["state"] == "locked"
    pid = as_json["row_lock"]["session"]
    assert re.fullmatch(rf"a transaction of \S+ dblock, pid {pid}", said["holder"])
    assert "FOR UPDATE" in as_json["row_lock"]["statement"]
    assert datetime.fromisoformat(as_json["row_lock"]["since"]).tzinfo is not None
    assert listed.split("\t")[:3] == ["a", "locked", said["holder"]]
    assert dblock("show", "a")[0] == 1


# --- release -------------------------------------------------------------------------------------


def test_release(here: Here, db: Database) -> None:
    dblock = here.on(db)
    with Locks(db.url, label="me") as locks:
        lease = locks.lease("a")
        lease.acquire()
        code, out, err = dblock("release", "a")
        assert (code, out) == (64, "")
        assert "--force" in err
        assert lease.locked()
        code, out, err = dblock("release", "a", "--force")
        assert (code, err) == (0, "")
        assert out.startswith("released 'a': it was held by ")
        assert f"pid {os.getpid()} me since " in out
        assert lease.token not in out
        assert not lease.locked()
    assert dblock("release", "a", "--force") == (1, "", "dblock: nobody held 'a'\n")


def test_release_of_the_hold_that_was_seen(here: Here, db: Database) -> None:
    dblock = here.on(db)
    with Locks(db.url) as locks:
        lease = locks.lease("a")
        lease.acquire()
        seen = str(lease.fence)
        lease.release()
        lease.acquire()
        code, out, err = dblock("release", "a", "--force", "--fence", seen)
        assert (code, out) == (75, "")
        assert f"the hold with fence {seen} is over" in err
        assert lease.locked()
        assert dblock("release", "a", "--force", "--fence", str(lease.fence))[0] == 0
        assert not lease.locked()
    code, _, err = dblock("release", "a", "--force", "--fence", "0")
    assert (code, "--fence" in err) == (64, True)


# --- doctor --------------------------------------------------------------------------------------


def test_doctor(sqlite: Program, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBLOCK_URL", sqlite.environment["DBLOCK_URL"])
    code, out, err = here("doctor")
    assert (code, err) == (0, "")
    lines = [line.split("\t") for line in out.splitlines()]
    assert {line[0] for line in lines} == {"ok"}
    assert here("doctor", "--quiet") == (0, "", "")
    rename(sqlite, "dblock_run", "away")
    code, out, err = here("doctor", "--quiet", "--json")
    assert (code, err) == (1, "")
    (found,) = json.loads(out)
    assert (found["level"], found["what"], found["fix"]) == ("wrong", "tables", "dblock upgrade")
    screen = Screen(sqlite, "doctor")
    screen.until("WHAT")
    screen.until("do: dblock upgrade")
    assert screen.run.process.wait(SECONDS) == 1
    os.close(screen.master)


# --- upgrade and downgrade -----------------------------------------------------------------------


def tables(database: Database) -> set[str]:
    engine = create_engine(database.url)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_upgrade_and_downgrade(here: Here, database: Database) -> None:
    there = here.on(database)
    for _ in range(2):
        code, out, err = there("upgrade")
        assert (code, err) == (0, "")
        at = f"dblock_{SCHEMA_VERSION:04d}"
        assert out.endswith((f", at revision {at}\n", f"already at revision {at}\n"))
    assert there("show", "a")[0] == 1
    assert "dblock_lock" in tables(database)
    code, out, err = there("downgrade", "--revision", "base", "--yes")
    assert (code, out.startswith("dropped dblock_lock, "), err) == (0, True, "")
    assert "dblock_lock" not in tables(database)
    nothing = "dblock has no tables here\n"
    assert there("downgrade", "--revision", "base", "--yes") == (0, nothing, "")


def test_functions_for_other_languages(here: Here, new_database: NewDatabase) -> None:
    there = here.on(new_database("postgresql"))
    code, out, err = there("upgrade", "--functions")
    assert (code, err) == (0, "")
    assert "with the functions dblock_acquire, dblock_gate, dblock_release, " in out
    assert "dblock_acquire" in there("upgrade")[1]
    assert "dblock_acquire" not in there("upgrade", "--no-functions")[1]
    assert "CREATE OR REPLACE FUNCTION" in there("upgrade", "--sql", "--functions")[1]
    assert "DROP FUNCTION" in there("upgrade", "--sql", "--no-functions")[1]


def test_the_embedded_default_has_no_functions(here: Here, tmp_path: Path) -> None:
    code, out, err = here("upgrade", "--functions")
    assert (code, out) == (exits.CONFIG, "")
    assert "sqlite has no lock functions; they work on postgresql" in err
    assert here("upgrade", "--no-functions")[0] == 0


def test_sql(here: Here, tmp_path: Path) -> None:
    code, out, err = here("upgrade", "--sql", "--prefix", "my_")
    assert (code, err) == (0, "")
    assert not (tmp_path / "state").exists()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(out)
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert {"my_lock", "my_schema", "my_version"} <= found
    code, out, err = here("upgrade", "--sql", "--url", "postgresql://nowhere.invalid/db")
    assert (code, err) == (0, "")
    assert "CREATE TABLE dblock_lock" in out
    assert "fillfactor" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["upgrade", "--revision", "nope"], "nope"),
        (["upgrade", "--sql", "--revision", "head"], "--sql"),
        (["upgrade", "--functions", "--revision", "head"], "--functions"),
        (["upgrade", "--no-functions", "--revision", "head"], "--functions"),
        (["downgrade", "--revision", "nope", "--yes"], "nope"),
        (["downgrade", "--yes"], "--revision"),
        (["downgrade", "--revision", "base"], "--yes"),
        (["upgrade", "--url", "nope"], "not a database URL"),
        (["upgrade", "--prefix", "a-b"], "prefix"),
        (["list", "--prefix", "a-b"], "prefix"),
        (["frobnicate"], "No such command 'frobnicate'. There are run, rate, list, show, "),
        (["help"], "There are run, rate, list, show, "),
        (["--frobnicate"], "--frobnicate"),
        (["show"], "NAME"),
        (["show", ""], "empty"),
    ],
)
def test_wrong_usage(here: Here, arguments: list[str], says: str) -> None:
    code, out, err = here(*arguments)
    assert (code, out) == (64, "")
    assert err.startswith("dblock: ")
    assert says in err
    assert err.count("\n") == 1


def test_nothing_said(here: Here) -> None:
    """A line of a crontab that lacks its command must not succeed."""
    code, out, err = here()
    assert (code, out) == (64, "")
    assert err.startswith("Usage: dblock")
    assert "dblock run nightly" in err


def test_which_database_may_be_said_first(here: Here, tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path / name}" for name in ("first.db", "second.db"))
    for url in (first, second):
        assert here("upgrade", "--url", url)[0] == 0
    assert here("--url", first, "--prefix=dblock_", "run", "a", "--", "true")[0] == 0
    assert here("--url", first, "show", "a")[:2] == here("show", "a", "--url", first)[:2]
    # What is said behind the command counts.
    assert "fence    1" in here("--url", second, "show", "a", "--url", first)[1]
    assert here("--url", first, "list", "--url", "nope")[0] == 64
    assert here("--url", first)[:2] == (64, "")
    assert here("--url", first, "--version") == here("--version")


def test_a_full_disk(here: Here) -> None:
    here("run", "a", "--", "true")
    done = subprocess.run(
        f"{sys.executable} -m dblock list --json >/dev/full",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 74
    assert done.stderr.endswith("the output could not be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["list", "list --json", "--version", "--help", "show a"])
def test_output_that_is_closed(here: Here, command: str) -> None:
    """What would be lost is told, and what was not wanted is not."""
    code, _, _ = here("show", "a")
    for closed, said in ((">&-", True), (">&- 2>&-", False)):
        done = subprocess.run(
            f"{sys.executable} -m dblock {command} {closed}",
            shell=True,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        wrote = "show" in command or command != "list"  # a list of nothing is said on stderr
        assert done.returncode == (74 if wrote else 0), done.stderr
        if said and wrote:
            assert done.stderr.endswith("could not be written: Bad file descriptor\n")
        assert "Traceback" not in done.stderr
    done = subprocess.run(
        f"{sys.executable} -m dblock show a 2>&-",
        shell=True,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (code, "name     a")


def test_the_command_of_run_finds_closed_what_was_closed(here: Here) -> None:
    here("show", "a")
    done = subprocess.run(
        f"{sys.executable} -m dblock run a -- sh -c 'echo lost' >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "echo" in done.stderr  # it says so in its own words


def test_no_server_there(here: Here) -> None:
    for command in (["show", "a"], ["upgrade"]):
        code, out, err = here(*command, "--url", "postgresql://127.0.0.1:1/db")
        assert (code, out, err.count("\n")) == (69, "", 1)


# --- help ----------------------------------------------------------------------------------------


def test_help(here: Here) -> None:
    texts = {}
    for command in (
        "",
        "run",
        "list",
        "show",
        "runs",
        "release",
        "prune",
        "pause",
        "doctor",
        "metrics",
        "upgrade",
        "downgrade",
    ):
        code, texts[command], err = here(*([command] if command else []), "--help")
        assert (code, err) == (0, "")
    for command, text in texts.items():
        assert f"  dblock {command}" in text  # an example
        assert len(text.splitlines()) < 65
    for number in (64, 69, 70, 75, 78, 79, 126, 127):
        assert f"  {number}  " in texts[""]
    assert "host only" in " ".join(texts[""].split())


def test_version(program: Program) -> None:
    assert program("--version") == (0, f"dblock {__version__}\n", "")


def test_show_tells_how_many_slots_are_held(dblock: Program, db: Database) -> None:
    """A semaphore is free while one of them is."""
    with Locks(db.url) as locks:
        with locks.semaphore("api", 2):
            code, out, _ = dblock("show", "api")
            assert code == 1
            assert re.search(r"^slots +1 of 2 held$", out, re.MULTILINE)
            with locks.semaphore("api", 2):
                code, out, _ = dblock("show", "api")
                assert code == 0
                assert re.search(r"^state +full$", out, re.MULTILINE)
                assert "holder" not in out
                shown = json.loads(dblock("show", "api", "--json")[1])
                assert (shown["state"], shown["slots"]) == ("full", {"limit": 2, "held": 2})
                assert shown["holder"] is None
                assert locks.show("api").describe() == "full, 2 of 2 held"
        assert locks.show("api").status == "free"
        assert locks.show("other").slots is None


def test_resize_changes_the_limit(dblock: Program, db: Database) -> None:
    code, out, err = dblock("resize", "api", "3")
    assert (code, out) == (1, "")
    assert "there is no semaphore 'api'" in err
    with Locks(db.url) as locks:
        with locks.semaphore("api", 2), locks.semaphore("api", 2):
            said = "'api' has 1 slot now; 1 above that is still held\n"
            assert dblock("resize", "api", "1") == (0, said, "")
            assert locks.show("api").slots == (1, 2)
        assert dblock("resize", "api", "3") == (0, "'api' has 3 slots now\n", "")
        with locks.semaphore("api", 3):
            pass
        with locks.election("leader").campaign():
            pass
    assert dblock("resize", "leader", "3")[0] == 1
    for wrong in ("0", "1001"):
        code, _, err = dblock("resize", "api", wrong)
        assert code == 64
        assert "a limit is between 1 and 1000" in err
    assert dblock("resize", "api", "many")[0] == 64
