"""The wire between one process and the database, where the faults happen."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..dialects.adapter import Answer, Send, ServerSession
from ..dialects.query import Query, any_row
from ..dialects.sqlite import SQLite
from ..dialects.sqlite.adapter import SQLite3
from ..policy import Timeouts
from ..protocol import commands
from ..protocol.commands import Command, EndSession, Grant, Join, Renew, SelectForUpdate
from ..protocol.faults import Fault
from ..protocol.rate import TakePlace
from .store import Store

R = TypeVar("R")


class Error(Exception):
    """The base of a driver's errors (PEP 249)."""


class ConnectionLost(Error):
    """The connection broke, or none was made."""


class Unwired(Command[Any]):
    """A command that no fault of the wire meets: it runs for the user's transaction."""

    command: Command[Any]


class Loss(NamedTuple):
    """The next statement of one of these kinds gets lost, before or after it runs."""

    #: The call that asked for it.
    asked: str
    of: frozenset[str]
    reply: bool
    then_away: bool


class Wire:
    """One process's wire to the database."""

    def __init__(self) -> None:
        #: Whether the database cannot be reached.
        self.away = False
        self.losses: deque[Loss] = deque()
        #: Names whose renewals do not arrive.
        self.missing: set[str] = set()
        #: By name: a function to call before the name's next guard.
        self.guards: dict[str, Callable[[], None]] = {}

    def request(self, does: str | None) -> Loss | None:
        """Note that a statement is about to be sent; return the loss of its reply, if any."""
        if self.away:
            raise ConnectionLost("the database is unreachable, as the test asked")
        loss = self.losses[0] if self.losses else None
        if loss is None or does not in loss.of:
            return None
        self.losses.popleft()
        if not loss.reply:
            raise self._lost(loss, "before the statement arrived")
        return loss

    def guard(self, name: str) -> None:
        """Note that a guard's statement is about to run."""
        before = self.guards.pop(name, None)
        if before is not None:
            before()

    def reply(self, loss: Loss | None) -> None:
        """Note that the reply is on its way."""
        if loss is not None:
            raise self._lost(loss, "before the reply came")

    def _lost(self, loss: Loss, when: str) -> ConnectionLost:
        self.away = self.away or loss.then_away
        return ConnectionLost(f"the connection broke {when}, as the test asked")


#: The purpose of each statement that can be lost. The end of its transaction releases a row lock.
DOES: dict[type[Command[Any]], str] = {
    commands.Grant: "acquire",
    commands.GrantSlot: "acquire",
    commands.Take: "acquire",
    commands.Vote: "acquire",
    commands.Join: "acquire",
    commands.JoinReaders: "acquire",
    commands.Attach: "acquire",
    TakePlace: "acquire",
    commands.SelectForUpdate: "acquire",
    commands.Renew: "renew",
    commands.Release: "release",
    commands.ReleaseAndUnlock: "release",
    commands.PassOn: "release",
    commands.LeaveReaders: "release",
    commands.Commit: "release",
}


class Wired(SQLite3):
    """sqlite3 with the test's clock, at the end of a wire."""

    def __init__(self, timeouts: Timeouts, store: Store, wire: Wire) -> None:
        super().__init__(timeouts)
        self.store = store
        self.wire = wire

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        return self._over_the_wire(partial(super().send, connection), query, within, waits)

    def sender(self, connection: Any) -> Send:
        return partial(self._over_the_wire, super().sender(connection))

    def _over_the_wire(
        self,
        send: Callable[..., Answer],
        query: Query[Any],
        within: float | None,
        waits: bool = False,
    ) -> Answer:
        command = query.command
        loss = self.wire.request(None if command is None else DOES.get(type(command)))
        if isinstance(command, Grant | Join | SelectForUpdate) and self.store.row_of(command.name):
            answer: Answer = (), 0  # a user's transaction has locked the name
        else:
            answer = send(self._timed(query), within, waits)
        self.wire.reply(loss)
        return answer

    def _timed(self, query: Query[Any]) -> Query[Any]:
        """Return the statement with the test's time for 'now'."""
        return query._replace(sql=query.sql.replace("'now'", f"'{self.store.clock.stamp()}'"))

    def prepare_connection(self, connection: Any) -> ServerSession:
        super().prepare_connection(connection)
        self.ask(connection, Query("PRAGMA synchronous = OFF", {}))
        self.store.connections.append(connection)
        # As on a server, dblock can end the session of a lost connection.
        return ServerSession(end=EndSession(0, None))

    def is_usable(self, connection: Any) -> bool:
        return not self.wire.away  # an idle connection counts as closed

    def close(self, connection: sqlite3.Connection) -> None:
        if connection in self.store.connections:
            self.store.connections.remove(connection)
        super().close(connection)

    def classify(self, error: BaseException) -> Fault | None:
        if isinstance(error, ConnectionLost):
            return Fault.DISCONNECTED
        return super().classify(error)


class WiredSQLite(SQLite):
    """SQLite's statements at the end of a wire that can lose renewals."""

    def __init__(self, timeouts: Timeouts, store: Store, wire: Wire) -> None:
        super().__init__(None, "dblock_", timeouts, Wired(timeouts, store, wire))
        self._wire = wire

    def query(self, command: Command[R]) -> Query[R]:
        if isinstance(command, EndSession):
            return Query("SELECT 1 WHERE false", {}, read=any_row)  # type: ignore[arg-type] # R is bool
        if isinstance(command, Unwired):
            return super().query(command.command)._replace(command=None, patience=None)
        found = super().query(command)
        if not isinstance(command, Renew):
            return found
        missing = self._wire.missing
        arriving = Renew(tuple(one for one in command.asked if one.name not in missing))
        return found._replace(params=super().query(arriving).params)
