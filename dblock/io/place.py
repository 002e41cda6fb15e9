"""Finds dblock's tables: on its own connections, and from the transactions of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dialects import meet
from ..protocol import place
from ..protocol.commands import LookAround
from ..protocol.exchange import Exchange
from ..protocol.explain import explain
from ..protocol.faults import Fault, StatementError
from .fork import begins_anew

if TYPE_CHECKING:
    from ..dialects import Dialect
    from .borrowed import Borrowed
    from .connecting import OwnConnection
    from .connections import Connections
    from .runtime import Runtime


class SchemaCheck:
    """Checks the tables of a database on the first connection to it; and on the first one after its
    server has joined or left a cluster."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        begins_anew(self)

    def __call__(self, connections: Connections, connection: OwnConnection) -> None:
        """Raises SchemaMissing for tables of another version, or none."""
        meet(self._dialect)
        known = self._dialect.place
        if known is not None and known.clustered == self._dialect.adapter.clustered:
            return
        query = self._dialect.query(LookAround())
        try:
            reply = connections.execute(connection, query, self._dialect.timeouts.connect)
        except StatementError as failure:
            if failure.fault is Fault.DISCONNECTED:  # report it as a connection that was not made
                raise StatementError(
                    Fault.UNREACHABLE, str(failure), timed_out=failure.timed_out
                ) from failure.__cause__
            raise explain(self._dialect, failure) from failure.__cause__
        place.settle(self._dialect, reply.answer)

    def forget_parent(self) -> None:
        """Check again in a forked child, whose database may have another name, as in tests."""
        self._dialect.settle(None)


class Whereabouts:
    """Finds the place of the tables, before dblock runs statements in users' transactions."""

    def __init__(self, dialect: Dialect, run: Callable[..., Any], runtime: Runtime) -> None:
        self._dialect = dialect
        self._run = run
        self._runtime = runtime
        #: Whether only the user's connection can reach the database: it is in memory.
        self.alone: Callable[[], bool] = bool

    def find(self, transaction: Borrowed) -> None:
        """Find the place of the tables, unless it is known."""
        if self._dialect.place is None:
            self._run(place.locate(self._exchange(), alone=self.alone()), transaction)

    def moved(self, transaction: Borrowed, name: str) -> bool:
        """Check why a statement matched no row; see :func:`.place.check`."""
        moved: bool = self._run(place.check(self._exchange(name)), transaction)
        return moved

    def _exchange(self, name: str = "") -> Exchange:
        now = self._runtime.now()
        return Exchange(self._dialect, name, now, None, self._dialect.timeouts.socket, now)
