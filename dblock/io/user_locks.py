"""Waiting in the server for a name's user lock (``GET_LOCK``), on a database that cannot notify.

The holder's session has the user lock for as long as the name, so its connection is kept for that.

The user lock grants nothing. The name's row does, and the queue in the row comes first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..protocol.commands import Command, UnlockAll
from ..protocol.faults import Fault, StatementError
from ..protocol.retry import UNDONE
from .connections import UNUSABLE
from .fork import leave_to_parent
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..protocol.steps import ExecuteOnSession, Reply
    from .connecting import OwnConnection
    from .connections import Connections

# User locks that a process has or waits for, at most; and as many again for hot names, for which it
# would starve while it waits for others.
USER_LOCKS = 4


class UserLocks:
    """The user locks that this process has or waits for."""

    def __init__(self, connections: Connections, dialect: Dialect, limit: int = USER_LOCKS) -> None:
        self.connections = connections
        self.dialect = dialect
        self.limit = limit
        self._known: WeakSet[UserLock] = WeakSet()

    def user_lock(self, hot: bool) -> UserLock:
        """Return a user lock to wait for.

        ``hot`` means that this process waited for the name a moment ago.
        """
        return UserLock(self, hot)

    @property
    def kept(self) -> int:
        """The number of user locks that have a connection, or are about to get one."""
        with lock:  # the set must not grow while it is iterated
            return sum(user_lock.admitted and not user_lock.inherited for user_lock in self._known)

    def admit(self, user_lock: UserLock) -> None:
        """Allow a user lock a connection.

        Raises StatementError if as many as the limit have one.
        """
        with lock:
            if self.kept >= (2 * self.limit if user_lock.hot else self.limit):
                raise StatementError(Fault.UNREACHABLE, "this process waits for other user locks")
            self._known.add(user_lock)
            user_lock.admitted = True

    def close(self) -> None:
        """Release all user locks."""
        with lock:
            user_locks = list(self._known)
        for user_lock in user_locks:
            user_lock.drop()


class UserLock:
    """A user lock that a session has or waits for, and the connection kept for that."""

    def __init__(self, user_locks: UserLocks, hot: bool) -> None:
        self._user_locks = user_locks
        self._connections = user_locks.connections
        self._dialect = user_locks.dialect
        self._connection: OwnConnection | None = None
        self._pid = os.getpid()
        #: Whether it has a connection, or is about to get one.
        self.admitted = False
        self.hot = hot

    def __del__(self) -> None:
        self.drop()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, and the user lock its parent's."""
        return self._pid != os.getpid()

    @property
    def kept(self) -> bool:
        """Whether there is a connection that has the user lock, or waits for it."""
        return self._connection is not None and not self.inherited

    def run(self, step: ExecuteOnSession, orphaned: list[Command[bool]] | None) -> Reply[Any]:
        """Run a statement on the user lock's session.

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
            query = self._dialect.query(step.command)
            reply = self._connections.execute(connection, query, waits=step.first)
        except StatementError as failure:
            if failure.fault not in UNDONE:
                self.drop()
            elif step.first or step.last:
                self._leave(connection)  # the session may have it anyway: only the row was busy
            if failure.fault in UNUSABLE:
                self._connections.clear()
            raise
        except BaseException:
            if orphaned is not None and connection.session.end is not None:
                orphaned.append(connection.session.end)
            self.drop()
            raise
        if step.last and reply.answer == 1:
            self._give()
        elif step.last:
            self._leave(connection)
        return reply

    def _leave(self, connection: OwnConnection) -> None:
        """Release the user lock, if the session has it."""
        try:
            self._connections.execute(connection, self._dialect.query(UnlockAll()))
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
        """Give up the connection, and return it, to one thread only."""
        with lock:
            connection, self._connection, self.admitted = self._connection, None, False
        return connection

    def drop(self) -> None:
        """Release the user lock by closing its connection."""
        connection = self._part()
        if connection is None:
            return
        if self.inherited:
            leave_to_parent(connection)
        else:
            self._connections.drop(connection)
