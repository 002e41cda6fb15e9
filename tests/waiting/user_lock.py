"""A name's user lock as it is seen from outside: in the list of processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from dblock import Lease, Locks, Timeouts
from dblock.dialects import MariaDB
from dblock.dialects.mysql import MySQL
from dblock.dialects.query import Query
from dblock.holding.database import Database
from dblock.protocol.commands import Grant, Join, WaitInServer
from dblock.system import clock
from tests.support import SECONDS, eventually
from tests.waiting.conftest import NAME
from tests.waiting.watching import Statements, Watched, before_each
from tests.worlds.surface import Surface

TABLE = "dblock_lock"
DIALECTS = {"mariadb": MariaDB, "mysql": MySQL}


@dataclass
class WatchedUserLock(Watched):
    """The user lock of :data:`NAME`, who has it, and who waits for it."""

    def create(self) -> None:
        self._watching.exec_driver_sql(f"INSERT INTO dblock_guard (lock_name) VALUES ('{NAME}')")
        self._watching.exec_driver_sql(
            f"INSERT INTO {TABLE} (lock_name, fence) VALUES ('{NAME}', 0)"
        )

    def hot(self, *names: str) -> Locks:
        """Locks that wait in the server at once when they next want one of these names."""
        locks = self.locks()
        make_hot(locks, *names or (NAME,))
        return locks

    @contextmanager
    def taken(self, *names: str) -> Iterator[Connection]:
        with self.session() as session:
            for name in names or (NAME,):
                session.exec_driver_sql(f"DO GET_LOCK({self.called(name)}, {SECONDS})")
            yield session
            session.exec_driver_sql("DO RELEASE_ALL_LOCKS()")

    @contextmanager
    def row_locked(self) -> Iterator[None]:
        with self.session() as session:
            session.exec_driver_sql("BEGIN")
            session.exec_driver_sql(
                f"SELECT 1 FROM dblock_guard WHERE lock_name = '{NAME}' FOR UPDATE"
            )
            yield
            session.exec_driver_sql("ROLLBACK")

    def expire(self, seconds: float) -> None:
        """Let the name have run out so long ago."""
        self._expire("'of who had it'", seconds)

    def give_back(self, seconds: float) -> None:
        """Let the name have been given back so long ago."""
        self._expire("NULL", seconds)

    def _expire(self, token: str, seconds: float) -> None:
        ago = f"UTC_TIMESTAMP(6) - INTERVAL {round(seconds * 1e6)} MICROSECOND"
        self.change(f"SET token = {token}, expires_at = {ago}")

    def called(self, name: str = NAME) -> str:
        """What a name's user lock is called in the session's database."""
        dialect = DIALECTS[self.db.kind](None, "dblock_", Timeouts())
        return dialect.lock_of_users.replace("%(user_lock)s", f"'{dialect.user_lock(name)}'")

    def had_by(self, name: str = NAME) -> list[int]:
        """The sessions that have it: one at most."""
        return [pid for pid in self.ask(f"SELECT IS_USED_LOCK({self.called(name)})") if pid]

    def waited_for_by(self) -> list[int]:
        """The sessions that wait for a user lock."""
        return self._with("state = 'User lock'")

    def _tickets(self, name: str) -> list[str]:
        found = self.ask(f"SELECT waiters FROM {TABLE} WHERE lock_name = '{name}'")
        return found[0].split(",") if found and found[0] else []

    @property
    def sessions(self) -> list[int]:
        """All of this database but the one that asks."""
        return self._with("true")

    @property
    def blocked(self) -> list[int]:
        return self.waited_for_by()

    def _with(self, condition: str) -> list[int]:
        return self.ask(
            f"""SELECT id FROM information_schema.processlist
            WHERE db = DATABASE() AND id <> CONNECTION_ID() AND {condition} ORDER BY id"""
        )

    def wait_until_waited_for(self, by: int = 1) -> None:
        eventually(lambda: len(self.waited_for_by()) == by)

    def wait_until_had(self, name: str = NAME) -> None:
        eventually(lambda: len(self.had_by(name)) == 1)

    def wait_until_let_go(self, name: str = NAME) -> None:
        """A connection that was closed is gone from the server in a moment."""
        eventually(lambda: self.had_by(name) == [])


class Asked(Statements):
    """What is asked from now on, and by which threads."""

    def __init__(self, locks: Locks, patch: pytest.MonkeyPatch) -> None:
        super().__init__(locks._database, patch)
        #: How long each may wait in the server.
        self.patience: list[float] = []
        #: How many take a name, or try to, without a user lock.
        self.grants = 0
        self.threads: set[int] = set()

        def note(query: Query[Any]) -> None:
            self.threads.add(threading.get_ident())
            if isinstance(query.command, WaitInServer):
                self.patience.append(query.command.patience)
            elif isinstance(query.command, (Grant, Join)):
                self.grants += 1

        before_each(locks._database, patch, note)

    @property
    def waits(self) -> int:
        return len(self.patience)


def has(user_lock: WatchedUserLock, held: Lease) -> Lease:
    """A hold that has its user lock."""
    assert held.acquire()
    assert len(user_lock.had_by()) == 1
    return held


def make_hot(locks: Locks, *names: str) -> None:
    """Let some Locks have got names in a moment, a moment ago."""
    if isinstance(locks, Surface):
        locks.run(make_hot_here, locks._database, *names)
    else:
        make_hot_here(locks._database, *names)


def make_hot_here(database: Database, *names: str) -> None:
    """In the world that the database's Locks are of."""
    for name in names:
        database.contenders.names.note(name, True, clock.now() + SECONDS)
