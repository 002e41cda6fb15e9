"""A name and its queue as they are seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Connection

from dblock import Locks, Timeouts
from dblock.dialects.query import Query
from dblock.holding.database import Database
from dblock.io.connecting import OwnConnection
from dblock.io.connections import Connections
from dblock.protocol.steps import Reply
from tests.support import SECONDS
from tests.waiting.conftest import NAME, Queue
from tests.worlds.world import World

# Who waits in the server for as long as a test likes is not cut short by it.
PATIENT = Timeouts(connect=SECONDS, query=SECONDS, socket=2 * SECONDS)


@dataclass
class Watched(Queue):
    """The queue of :data:`NAME`, its row, and who is at it, in one of the worlds."""

    world: World

    def locks(self) -> Locks:
        locks = self.world.locks(self.db.url, timeouts=PATIENT)
        return self.stack.enter_context(self.timed(locks))

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

    @property
    def blocked(self) -> list[int]:
        """The sessions that wait for a lock of whatever kind."""
        return self.ask(
            """SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'"""
        )


def before_each(
    database: Database, patch: pytest.MonkeyPatch, do: Callable[[Query[Any]], object]
) -> None:
    """Have something done before each statement of some Locks is sent."""
    adapter, execute = database.dialect.adapter, Connections.execute

    def executing(
        of: Connections, connection: OwnConnection, query: Query[Any], *args: Any, **how: Any
    ) -> Reply[Any]:
        if of._adapter is adapter:
            do(query)
        return execute(of, connection, query, *args, **how)

    patch.setattr(Connections, "execute", executing)


class Statements:
    """What dblock's statements are from now on, of a Database."""

    def __init__(self, database: Database, patch: pytest.MonkeyPatch) -> None:
        self.all: list[str] = []
        #: The same as they are called for all databases.
        self.kinds: list[str] = []

        def note(query: Query[Any]) -> None:
            self.all.append(query.sql)
            self.kinds.append(query.kind)

        before_each(database, patch, note)


def calls(locks: Locks) -> int:
    """How often some Locks were called so far."""
    return locks._database.contenders.local_queue.notifier.calls
