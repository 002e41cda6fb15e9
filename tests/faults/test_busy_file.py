"""SQLite's row of the fault matrix: another has the file locked, for longer than a statement waits.

Nothing can be lost on the way to a file; that is all that can be in the way of those who wait.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from dblock import Locks, Timeouts
from dblock.dialects.query import Query
from tests.conftest import NewDatabase
from tests.faults.matrix.expected import Cell
from tests.faults.matrix.expected_of_waiting import GOT, PASSED, REFUSED
from tests.faults.matrix.operations import Ways
from tests.faults.matrix.site import Outcome
from tests.faults.matrix.waiting import WAITING
from tests.support import LONG, SECONDS
from tests.waiting.watching import before_each
from tests.worlds.portal import WORLDS

# After `query` seconds a statement fails, and the waiter tries it again.
IMPATIENT = Timeouts(query=0.2, socket=10)
# A reader has to outwait the writer, who is gone by its second try.
PATIENT = Timeouts(query=SECONDS / 2, socket=SECONDS)
# What is sent by who does each, of what waiting has to do with; and what comes of it.
SENT: dict[str, tuple[Cell, set[str]]] = {
    "wait": (GOT, {"join", "look_queued", "register", "sweep", "unregister"}),
    "wait (timeout)": (
        REFUSED,
        {"join", "look_queued", "register", "sweep", "leave", "unregister"},
    ),
    "release (waited for)": (PASSED, {"release"}),
}
CELLS = [(operation, kind) for operation, (_, kinds) in SENT.items() for kind in sorted(kinds)]


class Busy:
    """Locks the file when a kind of statement is about to be sent, until the next one is."""

    def __init__(self, locks: Any, file: str, kind: str, patch: pytest.MonkeyPatch) -> None:
        self.kinds: set[str] = set()
        self.met = False
        self._other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)

        def lock(query: Query[Any]) -> None:
            self.kinds.add(query.kind)
            self.end()
            if query.kind == kind and not self.met:
                self.met = True
                self._other.execute("BEGIN EXCLUSIVE")

        before_each(locks._database, patch, lock)

    def end(self) -> None:
        if self._other.in_transaction:
            self._other.execute("ROLLBACK")

    def close(self) -> None:
        self.end()
        self._other.close()


@pytest.fixture
def timeouts() -> Timeouts:
    return IMPATIENT


@pytest.fixture(params=WORLDS)
def ways(
    request: pytest.FixtureRequest, new_database: NewDatabase, timeouts: Timeouts
) -> Iterator[Ways]:
    db = new_database("sqlite", migrated=True)
    onlooker = create_engine(db.url, poolclass=NullPool)
    with (
        WORLDS[request.param]() as world,
        world.locks(db.url, timeouts=timeouts) as locks,
        Locks(db.url) as direct,
    ):
        yield Ways(locks, onlooker, direct, onlooker, LONG, SECONDS)


def busy(ways: Ways, kind: str, patch: pytest.MonkeyPatch) -> contextlib.closing[Busy]:
    file = make_url(str(ways.onlooker.url)).database
    assert file is not None
    return contextlib.closing(Busy(ways.locks, file, kind, patch))


@pytest.mark.parametrize(("operation", "kind"), CELLS)
def test_a_statement_of_those_who_wait_finds_the_file_locked(
    ways: Ways, monkeypatch: pytest.MonkeyPatch, operation: str, kind: str
) -> None:
    subject = WAITING[operation](ways)
    subject.prepare()
    with busy(ways, kind, monkeypatch) as other:
        told = subject.told()
        other.end()
        outcome = Outcome(told, subject.found(), ())
        assert other.met
    cell = SENT[operation][0]
    assert outcome.fits(cell), f"expected {cell}, but {outcome}"


@pytest.mark.parametrize("operation", SENT)
def test_every_statement_is_there(
    ways: Ways, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    subject = WAITING[operation](ways)
    subject.prepare()
    with busy(ways, "none of them", monkeypatch) as other:
        subject.told()
        subject.found()
        assert other.kinds - {"grant", "look"} == SENT[operation][1]


# --- those who look ------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[Any], object]] = {
    "show": lambda locks: locks.show("report"),
    "list": lambda locks: locks.list(),
    "locked": lambda locks: locks.lease("report").locked(),
    "runs": lambda locks: locks.runs("report"),
}
ASKED = [
    *(("show", kind) for kind in ("look_at_slots", "list_waiters", "list_runs")),
    *(("list", kind) for kind in ("list_held", "list_waiters", "list_held_runs")),
    *(("locked", "look"), ("runs", "list_runs")),
]


@pytest.mark.parametrize("timeouts", [PATIENT], ids=["patient"])
@pytest.mark.parametrize(("look", "kind"), ASKED)
def test_who_looks_waits_for_the_writer(
    look: str, kind: str, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rollback journal, as Django's files have, a commit keeps readers out too."""
    with ways.onlooker.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode = DELETE").scalar() == "delete"
    with ways.direct.lease("report"):  # a name without a lease has no runs
        pass
    with busy(ways, kind, monkeypatch) as writer:
        LOOKS[look](ways.locks)
        assert writer.met
