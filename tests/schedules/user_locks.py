"""UserLocks: no more of them than there may be; their connections are closed once, and all of them.

The statements do nothing, and the connections are SQLite's: only who has which matters here.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from dblock.dialects.query import Query
from dblock.dialects.sqlite import SQLite
from dblock.dialects.sqlite.adapter import SQLite3
from dblock.io.user_locks import USER_LOCKS, UserLock, UserLocks
from dblock.protocol.commands import Command, UnlockAll
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.steps import ExecuteOnSession

from .connecting import TIMEOUTS, Counted, some
from .exploring import scenario
from .scheduler import Run

R = TypeVar("R")
NOTHING: Query[int] = Query("SELECT 1", {})


class WithUserLocks(SQLite):
    """A dialect that has them."""

    traits = replace(SQLite.traits, can_wait_in_server=True)

    def query(self, command: Command[R]) -> Query[R]:
        return cast(Query[R], NOTHING) if isinstance(command, UnlockAll) else super().query(command)


class Closing(SQLite3):
    """A connection that was closed meanwhile has broken."""

    def classify(self, error: BaseException) -> Fault | None:
        closed = isinstance(error, sqlite3.ProgrammingError)
        return Fault.DISCONNECTED if closed else super().classify(error)


class User:
    """One who has a name with its user lock."""

    def __init__(self, user_locks: UserLocks) -> None:
        self.user_lock = UserLock(user_locks, hot=False)
        self.refused = False

    def take(self) -> None:
        self._run(ExecuteOnSession(UnlockAll(), first=True))

    def release(self) -> None:
        self._run(ExecuteOnSession(UnlockAll(), last=True))

    def take_and_release(self) -> None:
        self.take()
        if not self.refused:
            self.release()

    def _run(self, step: ExecuteOnSession) -> None:
        try:
            self.user_lock.run(step, None)
        except (StatementError, ValueError):  # there are enough of them; or it was closed meanwhile
            self.refused = True


def made(run: Run) -> UserLocks:
    adapter = Closing(TIMEOUTS)
    return UserLocks(some(run, adapter), WithUserLocks(None, "dblock_", TIMEOUTS, adapter))


LOOKED_AT = (UserLocks, UserLock)


@scenario(*LOOKED_AT)
def the_last_user_lock(run: Run) -> None:
    """Two want the last one that there may be."""
    user_locks = made(run)
    before = [User(user_locks) for _ in range(USER_LOCKS - 1)]
    for user in before:
        user.take()
    users = [User(user_locks) for _ in range(2)]
    for name, user in zip(("one", "two"), users, strict=True):
        run.start(name, user.take, alike=user_locks)
    run.go()
    assert [user.refused for user in users].count(True) == 1
    assert user_locks.kept == len(Counted.open) == USER_LOCKS


@scenario(*LOOKED_AT)
def dropped_by_two(run: Run) -> None:
    """It is dropped by who was waiting for it, and by who closes all."""
    user_locks = made(run)
    user = User(user_locks)
    user.take()
    run.start("one", user.user_lock.drop)
    run.start("two", user_locks.close)
    run.go()
    assert user_locks.kept == 0
    assert not Counted.open
    assert Counted.closed_twice == 0


@scenario(*LOOKED_AT)
def its_user_locks_are_closed(run: Run) -> None:
    """Nothing stays open, wherever the other is."""
    user_locks = made(run)
    user = User(user_locks)

    def close() -> None:
        user_locks.close()
        user_locks.connections.close()

    run.start("user", partial(user.take_and_release))
    run.start("other", close)
    run.go()
    user.user_lock.drop()
    assert user_locks.kept == 0
    assert not Counted.open
