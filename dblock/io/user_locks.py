"""Where nobody is told: waiting in the server, for the name's user lock (``GET_LOCK``).

A session has it with the name and lets it go with it, so a connection is kept for that.

It decides nothing. The row does, and the queue in it comes first.
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
    from .connecting import OwnConnection
    from .connections import Connections

# So many a process has or waits for; and as many again for names that are hot: it would starve for
# those while it waits for others.
USER_LOCKS = 4


class UserLocks:
    """Who of this process has a user lock, or waits for one."""

    def __init__(self, connections: Connections, dialect: Dialect, limit: int = USER_LOCKS) -> None:
        self.connections = connections
        self.dialect = dialect
        self.limit = limit
        self._known: WeakSet[UserLock] = WeakSet()

    def user_lock(self, hot: bool) -> UserLock:
        """Return the user lock to wait for.

        ``hot`` tells that it was waited for a moment ago.
        """
        return UserLock(self, hot)

    @property
    def kept(self) -> int:
        """How many there are with a connection, or about to have one."""
        with lock:  # a set does not grow while somebody goes through it
            return sum(user_lock.admitted and not user_lock.inherited for user_lock in self._known)

    def admit(self, user_lock: UserLock) -> None:
        """Let one have a connection.

        Raises StatementError where there are enough with one.
        """
        with lock:
            if self.kept >= (2 * self.limit if user_lock.hot else self.limit):
                raise StatementError(Fault.UNREACHABLE, "this process waits for other user locks")
            self._known.add(user_lock)
            user_lock.admitted = True

    def close(self) -> None:
        """Let all user locks go."""
        with lock:
            user_locks = list(self._known)
        for user_lock in user_locks:
            user_lock.drop()


class UserLock:
    """A session's user lock, or its place before it, and the connection kept for that."""

    def __init__(self, user_locks: UserLocks, hot: bool) -> None:
        self._user_locks = user_locks
        self._connections = user_locks.connections
        self._dialect = user_locks.dialect
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
        """Whether there is a connection that has the user lock, or waits for it."""
        return self._connection is not None and not self.inherited

    def run(self, step: ExecuteOnSession, orphaned: list[Query[bool]] | None) -> Reply:
        """Run a statement of the user lock's session.

        ``orphaned`` is as in :meth:`.Driver.run`. Raises StatementError.
        """
        connection = self._connection  # another thread may drop it at any time
        if connection is None:
            self._user_locks.admit(self)
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
            if orphaned is not None and connection.session.end is not None:
                orphaned.append(connection.session.end)
            self.drop()
            raise
        if step.last and reply.matched == 1:
            self._give()
        elif step.last:
            self._leave(connection)
        return reply

    def _leave(self, connection: OwnConnection) -> None:
        """Let the user lock go, if it is had."""
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
        """Let the user lock go, by closing its connection."""
        connection = self._part()
        if connection is None:
            return
        if self.inherited:
            leave_to_parent(connection)
        else:
            self._connections.drop(connection)
