"""A name's gate as it is seen from outside, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Connection

from dblock import Lease, Locks, Timeouts, clock
from dblock.database import Database
from dblock.dialects import PostgreSQL
from dblock.dialects.gating import ENTER
from tests.support import SECONDS, eventually
from tests.waiting.conftest import NAME, Queue
from tests.worlds.surface import Surface
from tests.worlds.world import World

# Who waits at a gate for as long as a test likes is not cut short by the server.
PATIENT = Timeouts(connect=SECONDS, query=SECONDS, socket=2 * SECONDS)


@dataclass
class Gate(Queue):
    """The gate of :data:`NAME` besides, and who is at it."""

    world: World

    def locks(self) -> Locks:
        return self.stack.enter_context(self.world.locks(self.db.url, timeouts=PATIENT))

    def quick(self, *names: str) -> Locks:
        """Locks that wait at the gate the next time they want one of these names."""
        locks = self.locks()
        hurry(locks, *names or (NAME,))
        return locks

    @cached_property
    def _watching(self) -> Connection:
        return self.stack.enter_context(self.session())

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """A session that is none of dblock's."""
        engine = create_engine(self.db.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            yield connection

    @contextmanager
    def shut(self) -> Iterator[Connection]:
        """Somebody has the gate, and does nothing."""
        with self.session() as session:
            session.exec_driver_sql(f"SELECT pg_advisory_lock({number(NAME)})")
            yield session
            session.exec_driver_sql("SELECT pg_advisory_unlock_all()")

    @contextmanager
    def row_locked(self) -> Iterator[None]:
        with self.session() as session:
            session.exec_driver_sql("BEGIN")
            session.exec_driver_sql(
                f"SELECT FROM dblock_lock WHERE lock_name = '{NAME}' FOR UPDATE"
            )
            yield
            session.exec_driver_sql("ROLLBACK")

    def ask(self, query: str) -> list[Any]:
        """The first column of what is there now."""
        return [row[0] for row in self._watching.exec_driver_sql(query)]

    def _tickets(self, name: str) -> list[str]:
        found = self.ask(f"SELECT unnest(waiters) FROM dblock_lock WHERE lock_name = '{name}'")
        return [str(ticket) for ticket in found]

    def change(self, change: str) -> None:
        self._watching.exec_driver_sql(f"UPDATE dblock_lock {change} WHERE lock_name = '{NAME}'")

    def had_by(self, name: str = NAME) -> list[int]:
        """The sessions that have the gate: one at most."""
        return self._sessions(name, "granted")

    def waited_for_by(self) -> list[int]:
        """The sessions that wait at the gate."""
        return self._sessions(NAME, "NOT granted")

    def _sessions(self, name: str, state: str) -> list[int]:
        return self.ask(
            f"""SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint) = {number(name)} AND {state}"""
        )

    def wait_until_waited_for(self) -> None:
        eventually(lambda: len(self.waited_for_by()) == 1)

    def wait_until_had(self, name: str = NAME) -> None:
        eventually(lambda: len(self.had_by(name)) == 1)

    def wait_until_let_go(self, name: str = NAME) -> None:
        """A connection that was closed is gone from the server in a moment."""
        eventually(lambda: self.had_by(name) == [])

    @property
    def sessions(self) -> list[int]:
        """All of this database but the one that asks."""
        return self.ask(
            """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"""
        )

    @property
    def blocked(self) -> list[int]:
        """The sessions that wait for a lock of whatever kind."""
        return self.ask(
            """SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'"""
        )


class Statements:
    """What dblock's statements are from now on, of some Locks."""

    def __init__(self, locks: Locks | Database, patch: pytest.MonkeyPatch) -> None:
        self.all: list[str] = []
        self._dialect: Any = locks.dialect
        send = self._dialect.send

        def sending(driver: Any, query: Any, *args: Any, **how: Any) -> Any:
            self.all.append(query.sql)
            return send(driver, query, *args, **how)

        patch.setattr(self._dialect, "send", sending)

    @property
    def knocks(self) -> int:
        """How many of them wait at a gate."""
        return sum(ENTER in sql for sql in self.all)


def has(gate: Gate, held: Lease) -> Lease:
    """A hold that has the gate."""
    assert held.acquire()
    assert len(gate.had_by()) == 1
    return held


def number(name: str) -> int:
    """The number of a name's gate, in tables with the usual prefix."""
    return PostgreSQL(None, "dblock_", Timeouts()).gate(name)


def hurry(locks: Locks, *names: str) -> None:
    """Let some Locks have got names in a moment, a moment ago, and have a connection that listens.

    As they would have by queueing for a name that is given back soon.
    """
    if isinstance(locks, Surface):
        locks.run(hurry_here, locks.database, *names)
    else:
        hurry_here(locks.database, *names)


def hurry_here(database: Database, *names: str) -> None:
    """In the world that the database's Locks are of."""
    listener = database.room.listener
    if database.dialect.calls and not listener._open:
        connection = database.holders.take()
        database.holders.give(connection)
        call = listener.ticket(connection.session.server)
        if call is not None:  # behind a pooler nobody can be called
            listener.forget(call)
    for name in names:
        database.gates.note(name, 0.0, clock.now() + SECONDS)


def calls(locks: Locks) -> int:
    """How often some Locks were called so far."""
    return locks.database.room.listener.calls
