"""The driver: performs a procedure's steps on real connections."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..dialects.query import Query
from ..errors import Unavailable
from ..protocol import commands
from ..protocol.commands import Command
from ..protocol.faults import StatementError
from ..protocol.steps import (
    Disown,
    Execute,
    ExecuteInTransaction,
    ExecuteOnSession,
    ForgetTransaction,
    Procedure,
    Reply,
    Sleep,
    Step,
    Turn,
    WaitNotification,
    WaitTurn,
)
from .connecting import OwnConnection
from .connections import UNUSABLE, Connections
from .fork import leave_to_parent

if TYPE_CHECKING:
    from ..dialects import Dialect
    from .local_queue import LocalQueue, LocalWaiter
    from .runtime import Runtime
    from .user_locks import UserLock

T = TypeVar("T")


class Transaction(Protocol):
    """The transaction of a row lock or a guard: dblock's own, or the user's."""

    def run(self, step: ExecuteInTransaction) -> Reply[Any]: ...

    def forget(self) -> None: ...


class Driver:
    """Runs procedures to their end, one step after the other, for the caller."""

    def __init__(
        self,
        connections: Connections,
        dialect: Dialect,
        runtime: Runtime,
        local_queue: LocalQueue,
    ) -> None:
        self.connections = connections
        self.dialect = dialect
        self.runtime = runtime
        self.local_queue = local_queue

    def run(
        self,
        procedure: Procedure[T],
        transaction: Transaction | None = None,
        orphaned: list[Command[bool]] | None = None,
        user_lock: UserLock | None = None,
        waiter: LocalWaiter | None = None,
    ) -> T:
        """Perform ``procedure``'s steps and return its outcome.

        The steps of a row lock run in ``transaction``; the steps that wait in the server, on the
        session of ``user_lock``. ``waiter`` is the procedure's place in the local queue, if it has
        one already. If the caller is interrupted, this appends to ``orphaned`` the command that
        ends the session, on which the server may still run the statement.
        """
        reply: Any = None  # a generator is started by sending None
        failure: StatementError | None = None
        try:
            while True:
                try:
                    step = procedure.throw(failure) if failure else procedure.send(reply)
                except StopIteration as stop:
                    outcome: T = stop.value
                    return outcome
                failure = None
                if waiter is None and isinstance(step, WaitTurn):
                    waiter = self.local_queue.waiter(step.line)
                try:
                    if isinstance(step, Execute):
                        reply = self._run(step, orphaned)
                    else:
                        reply = self._perform(step, transaction, orphaned, waiter, user_lock)
                except StatementError as caught:
                    failure = caught
                    failure.now = self.runtime.now()
                if self.runtime.check is not None:
                    self.runtime.check()
        except Unavailable:
            if waiter is not None:
                waiter.alarm()
            raise
        finally:
            failure = None  # its traceback has this frame, and would keep the caller's handle alive
            if waiter is not None:
                waiter.leave()

    def _perform(
        self,
        step: Step,
        transaction: Transaction | None,
        orphaned: list[Command[bool]] | None,
        waiter: LocalWaiter | None,
        user_lock: UserLock | None,
    ) -> Reply[Any]:
        if isinstance(step, ExecuteOnSession):
            assert user_lock is not None, "only a waiter with a user lock waits for it"
            return user_lock.run(step, orphaned)
        sent = self.runtime.now()
        if isinstance(step, Sleep):
            self.runtime.sleep(step.seconds)
            return Reply(None, sent, self.runtime.now())
        if isinstance(step, WaitTurn):
            assert waiter is not None
            first, alarmed = waiter.stand(step.seconds)
            turn = Turn(first=False, alarmed=True) if alarmed else None
            if first:
                turn = Turn(True, *waiter.ticket(step.server, look=step.look, topic=step.topic))
            return Reply(turn, sent, self.runtime.now())
        if isinstance(step, WaitNotification):
            assert waiter is not None, "a waiter with a ticket has joined the queue"
            called, passed = waiter.wait(step.seconds)
            return Reply(passed or called, sent, self.runtime.now())
        if isinstance(step, Disown):
            self.local_queue.notifier.disown(step.tickets)
            return Reply(None, sent, self.runtime.now())
        assert transaction is not None, "only procedures over a transaction hold or forget"
        if isinstance(step, ExecuteInTransaction):
            return transaction.run(step)
        assert isinstance(step, ForgetTransaction)
        transaction.forget()
        return Reply(None, sent, self.runtime.now())

    def _run(self, step: Execute, orphaned: list[Command[bool]] | None) -> Reply[Any]:
        connection = self.connections.take(first=type(step.command) in commands.FIRST)
        try:
            reply = self.connections.execute(
                connection, self.dialect.query(step.command), step.within
            )
        except StatementError as failure:
            if failure.fault in UNUSABLE:
                self.connections.drop(connection)
                self.connections.clear()
            else:
                self.connections.give(connection)
            raise
        except BaseException:
            # KeyboardInterrupt, or a defect: the state of the connection is unknown.
            self.connections.drop(connection)
            if orphaned is not None and connection.session.end is not None:
                orphaned.append(connection.session.end)
            raise
        self.connections.give(connection)
        return reply


class OwnTransaction:
    """A transaction on one of dblock's own connections, for one row lock."""

    def __init__(self, connections: Connections, dialect: Dialect) -> None:
        self._connections = connections
        self._dialect = dialect
        self._connection: OwnConnection | None = None
        self._begun = False
        self._pid = os.getpid()
        #: The command that ends the session of an interrupted wait, so that the wait does not get
        #: the lock later.
        self.orphaned: Command[bool] | None = None

    def __del__(self) -> None:
        if self._connection is not None:
            self.drop()  # before the warning, which a filter may turn into an error
            if self._pid == os.getpid():
                warnings.warn(
                    "a held row lock was garbage-collected",
                    ResourceWarning,
                    stacklevel=1,
                    source=self,
                )

    def run(self, step: ExecuteInTransaction) -> Reply[Any]:
        try:
            if self._connection is None:
                self._connection = self._connections.take()
            if not self._begun:
                for query in self._dialect.begin(step.patience):
                    self._connections.execute(self._connection, query, waits=True)
                self._begun = True
            return self._connections.execute(
                self._connection, self._dialect.query(step.command), waits=True
            )
        except StatementError as failure:
            if failure.fault in UNUSABLE:
                self.drop()
                self._connections.clear()
            raise
        except BaseException:
            if self._connection is not None:
                self.orphaned = self._connection.session.end
            self.drop()
            raise

    def forget(self) -> None:
        """Undo the transaction and let its connection be used again, or drop it if that fails."""
        connection, begun = self._leave()
        if connection is None:
            return
        try:
            if begun:
                self._connections.execute(connection, Query("ROLLBACK", {}, commands.Rollback()))
        except BaseException as error:
            self._connections.drop(connection)
            if not isinstance(error, StatementError):
                raise
        else:
            self._connections.give(connection)

    def finish(self) -> None:
        """End the transaction. Raises StatementError when it had ended before, with its lock."""
        connection, _ = self._leave()
        assert connection is not None
        try:
            self._connections.execute(connection, Query("COMMIT", {}, commands.Commit()))
        except BaseException:
            self._connections.drop(connection)
            raise
        self._connections.give(connection)

    def check(self) -> None:
        """Raises StatementError when the transaction has ended.

        After that, and after any other error, the connection is dropped.
        """
        assert self._connection is not None
        try:
            self._connections.execute(self._connection, Query("SELECT 1", {}, commands.Probe()))
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """End the transaction by closing its connection, without waiting for the server."""
        connection, _ = self._leave()
        if connection is None:
            return
        if self._pid == os.getpid():
            self._connections.drop(connection)
        else:
            leave_to_parent(connection)

    def _leave(self) -> tuple[OwnConnection | None, bool]:
        left = self._connection, self._begun
        self._connection, self._begun = None, False
        return left
