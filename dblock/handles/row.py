"""The row lock: ``SELECT ... FOR UPDATE`` on the name's row, until its transaction ends."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from ..arguments import Seconds, check_name
from ..errors import DBLockError, LockLost, NotAcquired, Unsupported
from ..events import Kind
from ..holding.handle_holds import HandleHolds
from ..holding.holds import RowHold
from ..io.driver import OwnTransaction
from ..protocol import release, row_lock
from ..protocol.commands import Command
from ..protocol.exchange import Exchange
from ..protocol.faults import Fault, StatementError
from ..protocol.observer import Belief, Change
from ..protocol.row_lock import Locked
from .base import SingleHandle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..holding.database import Database
    from ..holding.holds import CallerHolds
    from ..io.borrowed import Borrowable, Root
    from ..policy import RetryPolicy
    from ..protocol.waiters import Waiter


class RowLock(SingleHandle):
    """A named row lock, made by :meth:`Locks.row`.

    With ``on=`` dblock takes the lock in your transaction. The lock ends when the transaction ends,
    by commit or rollback. On PostgreSQL it also ends when you roll back a savepoint around it
    (:attr:`held` sees SQLAlchemy's savepoints). So do not call :meth:`release`. You can take the
    lock again in the same transaction.

    Without ``on=`` the lock has its own connection and transaction until you release it. Any thread
    that has this handle may release it.

    A row lock has no fence. If its transaction is rolled back, work outside that transaction is not
    undone. On SQLite a row lock is the file's one write transaction: it excludes every other
    writer.
    """

    strategy = "row"

    def __init__(
        self,
        database: Database,
        name: str,
        wait: Seconds | None,
        on: Borrowable | None,
        *,
        retry: RetryPolicy,
    ) -> None:
        super().__init__(wait, database)
        self.name = check_name(name)
        self._on = on
        self._retry = retry
        self._holds: HandleHolds[RowHold] = HandleHolds("row lock", self.name, database.callers)
        #: The user's transaction in which it was last locked, and the caller.
        self._within: tuple[Root, CallerHolds] | None = None

    def __repr__(self) -> str:
        return f"<RowLock {self.name!r} {'held' if self.held else 'not held'}>"

    @property
    def borrowed(self) -> bool:
        """Whether the lock is in your own transaction, and ends with it."""
        return self._on is not None

    @property
    def _excludes_all(self) -> bool:
        """Whether it blocks every other lock statement of this process, as on SQLite."""
        return self._database.dialect.traits.one_writer and not self.borrowed

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        """Lock the row, waiting up to ``wait`` seconds, as a limit that the server keeps.

        Raises DeadlockDetected when this thread would wait for itself or the database broke a
        cycle, and Conflict if the transaction's snapshot is too old: in both cases run the whole
        transaction again.
        """
        transaction = None if self._on is None else self._database.borrow(self._on)
        root = None if transaction is None else transaction.root
        runtime, callers = self._database.runtime, self._database.callers
        refusal = callers.refuse_self_wait(
            self.name, wait, one_writer=self._database.dialect.traits.one_writer, within=root
        )
        if refusal is not None:
            return refusal
        own = None
        if transaction is None:
            own = OwnTransaction(self._database.holders, self._database.dialect)
        start, dialect = runtime.now(), self._database.dialect
        waiters: list[Waiter] = []  # has one once the caller may have to wait

        def waiter() -> Waiter:
            waiters.append(self._database.waiter(self.name, self.strategy, start))
            return waiters[0]

        hold: RowHold | None = None
        try:
            procedure = row_lock.lock(
                Exchange(dialect, self.name, start, wait, dialect.timeouts.socket, start),
                self._retry,
                borrowed=transaction is not None,
                waiter=waiter,
            )
            outcome = self._database.run(procedure, transaction or own)
            if isinstance(outcome, Locked):
                if own is not None:
                    hold = RowHold(self.name, runtime, runtime.now(), transaction=own)
                    self._holds.add(hold)
                elif runtime.observer is not None:
                    runtime.observer(Belief(self.strategy, self.name), Change.GRANTED)
                self._tell(Kind.ACQUIRED, start)
            if waiters:
                self._database.withdraw(waiters[0])
        except BaseException as error:
            runtime.undo(error, partial(self._undo, error, hold, own, waiters))
            raise
        if not isinstance(outcome, Locked):
            if own is not None:
                own.forget()
            return self._database.not_acquired(self.name, outcome, wait)
        if transaction is not None:
            root = transaction.root  # the first statement may have begun the transaction
            if root is not None:
                mine = callers.mine()
                self._within = root, mine
                new = mine.add_borrowed(root, self.name)
                # PostgreSQL unlocks a row when a savepoint from before the lock is rolled back. A
                # database with `refusal_holds` keeps the row locked until the transaction ends.
                if new and not self._database.dialect.traits.refusal_holds:
                    transaction.on_undo(partial(mine.forget_borrowed, self.name))
        return None

    def _undo(
        self,
        error: BaseException,
        hold: RowHold | None,
        own: OwnTransaction | None,
        waiters: Sequence[Waiter],
    ) -> None:
        """Undo a try that failed."""
        if hold is not None:
            self._holds.take(hold, Change.ABANDONED)
        orphaned = None
        if own is not None:
            own.drop()
            orphaned = own.orphaned
        traces = any(one.trace for one in waiters)
        if not isinstance(error, DBLockError) and (orphaned is not None or traces):
            # The lost session may still wait for the lock, and hold it once it is granted.
            self._database.runtime.finish(partial(self._abandon, orphaned, waiters), cancelled=True)

    def release(self) -> None:
        """End the row lock's own transaction. One round trip.

        Raises NotHeld if this handle does not hold the lock, LockLost if the connection has ended
        and the lock with it, and Unsupported for a lock in your own transaction.
        """
        if self._on is not None:
            raise Unsupported(
                f"the row lock on {self.name!r} is in your transaction and ends with it: "
                "commit or roll that back",
                name=self.name,
            )
        self._database.runtime.finish(self._release)

    def _release(self) -> None:
        hold = self._holds.get()
        if not self._holds.take(hold):
            raise self._holds.not_held()
        if hold.renewing:  # another thread runs check() on the same connection
            patience = self._database.timeouts.socket
            with self._database.runtime.settled(lambda: not hold.renewing, patience):
                pass
        if hold.loss is not None:
            raise hold.loss
        try:
            hold.transaction.finish()
        except StatementError as failure:
            self._end(failure.end)
            raise self._lost(hold, failure) from failure.__cause__
        self._tell(Kind.RELEASED, hold.since)

    def _leave(self) -> None:
        if not self.borrowed:  # the user's transaction ends it
            self.release()

    def check(self) -> None:
        """Ask the server whether the lock's own transaction still exists; raise LockLost if not.

        One round trip. Raises NotHeld if this handle holds no lock in its own transaction.
        """
        hold = self._holds.get()
        with hold.renewed_here(self._database.timeouts.socket):
            if hold.ended or hold.loss is not None:
                raise hold.loss or self._holds.not_held()
            try:
                hold.transaction.check()
            except StatementError as failure:
                self._end(failure.end)
                raise self._lost(hold, failure) from failure.__cause__

    def _abandon(self, end: Command[bool] | None, waiters: Sequence[Waiter]) -> None:
        """End the session and delete the waiters' rows that an interrupted wait may have left."""
        with contextlib.suppress(Exception):
            self._end(end)
        for waiter in waiters:
            with contextlib.suppress(Exception):
                self._database.withdraw(waiter)

    def _end(self, end: Command[bool] | None) -> None:
        """End the lost session, which may still keep the row locked on the server."""
        if end is not None:
            with contextlib.suppress(StatementError):
                exchange = self._database.exchange(timeout=self._database.timeouts.connect)
                self._database.run(release.end_session(exchange, end))

    def _lost(self, hold: RowHold, failure: StatementError) -> LockLost:
        if failure.fault is Fault.DEADLOCK:  # this statement does not wait: so no real deadlock
            why = "because another node of the cluster has committed a lock on it first"
            reason = "taken over"
        else:
            why, reason = "with its connection", "connection lost"
        loss = LockLost(
            f"the row lock on {self.name!r} ended {why}: {failure}", name=self.name, reason=reason
        )
        if hold.lose(loss):
            self._tell(Kind.LOST, hold.since, loss)
        return loss

    @property
    def held(self) -> bool:
        """Whether the row is locked, as far as dblock knows without asking the server."""
        if self._on is not None:
            if self._within is None:
                return False
            root, holds = self._within
            return root.is_active and holds.has_borrowed(root, self.name)
        hold = self._holds.find()
        return hold is not None and hold.alive
