"""What is printed in columns stays in them, whatever the lock and its name are."""

from __future__ import annotations

import os
import pty
import re
import time
from contextlib import ExitStack

import pytest
from rich.cells import cell_len

from dblock import DeadlockDetected, LockLost, Locks
from tests.cli.conftest import Here, Program
from tests.conftest import Database, NewDatabase
from tests.support import SECONDS, Threads, eventually

WIDE = "夜間バックアップ 🌙"


def values_begin(said: str) -> set[int]:
    """Where the values begin of lines such as ``state   held``."""
    begun = set()
    for line in said.splitlines():
        found = re.fullmatch(r"([a-z]+ {2,})(?=\S).+", line)
        assert found is not None, line
        begun.add(len(found[1]))
    return begun


def test_the_values_of_show_begin_in_one_column(here: Here, db: Database, threads: Threads) -> None:
    """For every kind of lock, and with the record of a run."""
    dblock = here.on(db)

    def wait() -> None:
        with Locks(db.url) as others, others.lease("lease"):
            pass

    with ExitStack() as stack:
        locks = stack.enter_context(Locks(db.url))
        for lock in (
            locks.lease("lease"),
            locks.shared("shared"),
            locks.semaphore("semaphore", 1),
            locks.election("election").campaign(),
            locks.lease(WIDE),
        ):
            stack.enter_context(lock)
        job = locks.cron("job", at_least=60, once_per="day")(lambda: None)
        job()
        threads.start(wait)
        eventually(lambda: bool(locks.show("lease").waiters))
        shown = {
            name: dblock("show", name)[1]
            for name in ("lease", "shared", "semaphore", "election", "job", "free", WIDE)
        }
    threads.join()
    for name, said in shown.items():
        assert values_begin(said) == {9}, (name, said)
    assert "expires  in " in shown["lease"]
    assert "waiter   " in shown["lease"]
    assert "slots    1 of 1 held" in shown["semaphore"]
    assert "ended    exit status 0" in shown["job"]


def test_a_row_lock_is_shown_in_the_same_columns(here: Here, new_database: NewDatabase) -> None:
    db = new_database("postgresql", migrated=True)
    with Locks(db.url) as locks, locks.row("row"):
        said = here.on(db)("show", "row")[1]
    assert "last     " in said
    assert values_begin(said) == {9}, said


def on_terminal(program: Program, columns: int, *arguments: str) -> list[str]:
    """The lines that a terminal so many columns wide is shown, without their styles."""
    master, slave = pty.openpty()
    program.environment |= {"COLUMNS": str(columns), "TERM": "xterm"}
    run = program.start(*arguments, stdout=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 100_000)
        except OSError:  # the program has closed it
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert run.process.wait(SECONDS) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_fit_the_terminal(sqlite: Program, columns: int) -> None:
    with Locks(sqlite.environment["DBLOCK_URL"], label="会計") as locks:
        job = locks.cron(WIDE, once_for="2026-11-23")(lambda: None)
        job()
        with locks.lease(WIDE), locks.lease("x" * 60), locks.lease("a"):
            tables = [
                on_terminal(sqlite, columns, "list"),
                on_terminal(sqlite, columns, "runs", WIDE),
                on_terminal(sqlite, columns, "doctor"),
            ]
    for lines in tables:
        assert all(cell_len(line.rstrip()) <= columns for line in lines), lines
    if columns == 200:
        listed = tables[0]
        state = listed[0].index("STATE")
        for line in listed[1:]:
            cells = 0
            for at, character in enumerate(line):  # where the column begins on the terminal
                if cells == state:
                    assert line[at:].startswith("held"), line
                cells += cell_len(character)


def test_without_a_terminal_each_lock_is_one_line(sqlite: Program) -> None:
    with (
        Locks(sqlite.environment["DBLOCK_URL"]) as locks,
        locks.lease(WIDE),
        locks.lease("tab\there"),
    ):
        out = sqlite("list")[1]
        sqlite.environment["COLUMNS"] = "20"
        narrow = sqlite("list")[1]
    assert [line.count("\t") for line in out.splitlines()] == [6, 6]
    assert [row.split("\t")[:3] for row in narrow.splitlines()] == [
        row.split("\t")[:3] for row in out.splitlines()
    ]


# --- numbers and their nouns ---------------------------------------------------------------------


def test_one_is_not_said_as_many(here: Here, sqlite: Program) -> None:
    """The record of the last run stays, so one of two is deleted."""
    url = sqlite.environment["DBLOCK_URL"]
    with Locks(url) as locks:
        for slot in ("a", "b"):
            time.sleep(0.01)  # for two runs that begin in one millisecond both are the last
            locks.cron("job", once_for=slot)(lambda: None)()
        said = ""

        def pruned() -> bool:
            nonlocal said
            said = here("prune", "--older-than", "0", "--url", url)[1]
            return "0 records" not in said

        eventually(pruned)  # the clock has to be past their end
        assert said == "deleted 0 idempotency keys and 1 record of a run\n"
        with locks.shared("a"):
            assert "shared by 1 reader," in locks.show("a").describe()
        lease = locks.lease("renewed", ttl=3, max_renewals=1)
        lease.acquire()
        eventually(lease.lost.is_set)
        with pytest.raises(LockLost, match="renewed 1 time "):
            lease.release()
        semaphore = locks.semaphore("api", 1, wait=0)
        with semaphore, pytest.raises(DeadlockDetected, match="holds the one slot of"):
            semaphore.acquire(timeout=1)
    with pytest.raises(ValueError, match="a text of 1 character is"):
        locks.attach("x")
