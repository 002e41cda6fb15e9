"""Where nobody is told: waiting in the server, at the name's gate.

The gate is a lock of the session's. It is had with the name and let go with it, in one session, so
a connection is kept for it.

A gate decides nothing. The row does, and the queue in it comes first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from ..protocol.faults import Fault, StatementError
from ..protocol.retry import UNDONE
from .connections import UNUSABLE
from .fork import leave_to_parent
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..protocol.steps import ExecuteOnSession, Query, Reply
    from .connections import Connections, OwnConnection

# So many gates a process has or waits at; and as many again for names that are hot: it would starve
# there while it waits for others.
GATES = 4


class Gates:
    """Who of this process is at gates."""

    def __init__(self, connections: Connections, dialect: Dialect) -> None:
        self.connections = connections
        self.dialect = dialect
        self._known: WeakSet[Gate] = WeakSet()

    def gate(self, hot: bool) -> Gate | None:
        """Return the gate to wait at, where names have one; ``hot`` if that one was waited for a
        moment ago."""
        return Gate(self, hot) if self.dialect.can_wait_in_server else None

    @property
    def kept(self) -> int:
        """How many there are with a connection, or about to have one."""
        with lock:  # a set does not grow while somebody goes through it
            return sum(gate.admitted and not gate.inherited for gate in self._known)

    def admit(self, gate: Gate) -> None:
        """Let a gate have a connection. Raises StatementError where there are enough with one."""
        with lock:
            if self.kept >= (2 * GATES if gate.hot else GATES):
                raise StatementError(Fault.UNREACHABLE, "this process waits at other gates")
            self._known.add(gate)
            gate.admitted = True

    def close(self) -> None:
        """Let all gates go."""
        with lock:
            gates = list(self._known)
        for gate in gates:
            gate.drop()


class Gate:
    """A session's gate, or its place before it, and the connection kept for that."""

    def __init__(self, gates: Gates, hot: bool) -> None:
        self._gates = gates
        self._connections = gates.connections
        self._dialect = gates.dialect
        self._connection: OwnConnection | None = None
        self._pid = os.getpid()
        #: It has a connection, or is about to.
        self.admitted = False
        self.hot = hot

    def __del__(self) -> None:
        self.drop()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child looking at its parent's."""
        return self._pid != os.getpid()

    @property
    def kept(self) -> bool:
        """Whether there is a connection that has the gate, or waits for it."""
        return self._connection is not None and not self.inherited

    def run(self, step: ExecuteOnSession, left: list[Query[bool]] | None) -> Reply:
        """Run a statement of the gate's session.

        ``left`` is as in :meth:`.Driver.run`. Raises StatementError.
        """
        connection = self._connection  # another thread may drop it at any time
        if connection is None:
            self._gates.admit(self)
            try:
                connection = self._connection = self._connections.take()
            except BaseException:
                self.admitted = False
                raise
        try:
            reply = self._connections.execute(connection, step.query, waits=step.first)
        except StatementError as failure:
            if failure.fault not in UNDONE:
                self.drop()
            elif step.first or step.last:
                self._leave(connection)  # it may be had all the same: the row was busy
            if failure.fault in UNUSABLE:
                self._connections.clear()
            raise
        except BaseException:
            if left is not None and connection.session.end is not None:
                left.append(connection.session.end)
            self.drop()
            raise
        if step.last and reply.matched == 1:
            self._give()
        elif step.last:
            self._leave(connection)
        return reply

    def _leave(self, connection: OwnConnection) -> None:
        """Let the gate go, if it is had."""
        try:
            self._connections.execute(connection, self._dialect.unlock_all())
        except BaseException as error:
            self.drop()
            if not isinstance(error, StatementError):
                raise
        else:
            self._give()

    def _give(self) -> None:
        connection = self._part()
        if connection is not None:
            self._connections.give(connection)

    def _part(self) -> OwnConnection | None:
        """Have no connection from now on; return the one there was, to one thread only."""
        with lock:
            connection, self._connection, self.admitted = self._connection, None, False
        return connection

    def drop(self) -> None:
        """Let the gate go, by closing its connection."""
        connection = self._part()
        if connection is None:
            return
        if self.inherited:
            leave_to_parent(connection)
        else:
            self._connections.drop(connection)
