"""Taking a row lock: in a transaction of dblock's own, or in the user's.

The server itself queues transactions that lock one row, so this waits in the server for them. A
lease on the name is no lock to the server: this polls for its end, and holds nothing meanwhile.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Conflict
from .commands import Command, Create, SelectForUpdate
from .epoch import consult
from .exchange import Exchange
from .faults import Fault, StatementError
from .inspect import look
from .lease import Refused
from .overview import with_row_lock
from .place import IN_USE, check, in_transaction
from .release import end_session
from .retry import AWAY, PASSING
from .state import LockRow, RowOutcome
from .steps import ExecuteInTransaction, ForgetTransaction, Procedure, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..policy import RetryPolicy
    from .waiters import Waiter


@dataclass(frozen=True, slots=True)
class Locked:
    """The row is locked until its transaction ends."""


@dataclass(slots=True)
class _Attempts:
    """The progress of one row lock's wait."""

    exchange: Exchange
    policy: RetryPolicy
    waiter: Waiter
    number: int = 0
    opens: float = 0.0  # the end of the pause after a crash or a failover, by our clock
    #: Whether the user's transaction is known to use the expected tables.
    placed: bool = False
    #: Whether a try in the user's transaction was repeated at once after the witness was repaired.
    mended: bool = False
    #: Since when the database is not reached. Only the lock itself is tried then: every other
    #: statement would wait for a connection too, without regard to the caller's deadline.
    away_since: float | None = None

    @property
    def closed(self) -> float:
        """Seconds for which the database still grants nothing to any caller."""
        return max(0.0, self.opens - self.exchange.now)

    def mend(self) -> Procedure[bool]:
        """Repair the witness that refused a try; False if its pause still lasts."""
        self.opens = (yield from consult(self.exchange)).opens
        return not self.closed

    def chunk(self) -> Procedure[float | None]:
        """Register the waiter or extend its row; then return how many seconds one wait in the
        server may last."""
        dialect = self.exchange.dialect
        longest = [self.exchange.left, dialect.longest_patience]
        if dialect.traits.one_writer:  # once the lock is held, no statement could delete the row
            yield from self.waiter.leave()
        elif self.away_since is None:
            self.exchange.now = yield from self.waiter.note(self.exchange.now)
            longest.append(self.waiter.piece(self.exchange.left, self.exchange.now))
        return min((seconds for seconds in longest if seconds is not None), default=None)

    def pause(self, state: LockRow | None) -> Procedure[bool]:
        """Sleep before the next try, at most until the present lease expires; False to give up."""
        self.number += 1
        exchange = self.exchange
        sleep = self.policy.sleep_after(exchange.name, self.number, exchange.elapsed, exchange.left)
        if sleep is None:
            return False
        if state is not None and state.held and state.remaining is not None:
            sleep = min(sleep, state.remaining)
        if self.closed:
            sleep = self.exchange.capped(self.closed)
        if self.away_since is not None:
            self.exchange.now = (yield Sleep(sleep)).now
        else:
            reply = yield from self.waiter.wait(Sleep, sleep, self.exchange.now)
            self.exchange.now = reply.now
        return True


def lock(
    exchange: Exchange,
    policy: RetryPolicy,
    *,
    borrowed: bool,
    waiter: Callable[[], Waiter],
) -> Procedure[Locked | Refused]:
    """Lock the name's row, waiting until the deadline.

    With ``borrowed`` this uses the user's transaction, which stays usable if the lock is refused;
    otherwise a transaction of dblock's own. ``waiter`` makes the entry in the table of waiters; it
    is not called if a first try without waiting succeeds.

    In the user's transaction this raises Conflict if the snapshot is too old to ever see the row,
    and DeadlockDetected if the database undid the transaction. After both the user has to run the
    transaction again.
    """
    if borrowed and exchange.dialect.traits.skips_locked:
        step = _undone_if_refused(
            SelectForUpdate(exchange.name, 0.0, borrowed=True), 0.0, exchange.timeout
        )
        try:
            tried: RowOutcome = (yield from in_transaction(exchange, step, IN_USE)).answer
        except StatementError:
            tried = RowOutcome(locked=False)
        if tried.locked:
            return Locked()
    tries = _Attempts(exchange, policy, waiter())
    return (yield from tries.waiter.during(_wait(tries, borrowed)))


def _wait(tries: _Attempts, borrowed: bool) -> Procedure[Locked | Refused]:
    """Try until the row is locked, or refused for good."""
    exchange, try_row = tries.exchange, _try_borrowed if borrowed else _try_own
    while True:
        state: LockRow | None = None
        # A waiter reads the name first: a read costs less than a transaction.
        looks = borrowed or tries.number or not exchange.dialect.traits.looks_itself
        if looks and tries.away_since is None:
            state = yield from _look_first(tries)
        if state is None or not state.held:
            tried = yield from try_row(tries)
            if tried is None:
                continue
            if tried.locked:
                return Locked()
            state = yield from look(exchange)
            conflict = _conflict(exchange, state, stale=tried.stale) if borrowed else None
            if conflict is not None and not tries.closed:
                if state is not None and state.held and exchange.left == 0:
                    return Refused(state)
                raise conflict
            if state is None and (yield from _create(tries)):
                continue
        if not (yield from tries.pause(state)):
            refused = Refused(state, tries.closed)
            if exchange.wait == 0:
                return refused
            return (yield from with_row_lock(exchange, refused))


def _try_own(tries: _Attempts) -> Procedure[RowOutcome | None]:
    """Try to lock the row in dblock's own transaction, which holds nothing if that fails.

    None to try again at once without another read of the name: after one of several waits in the
    server, or when the database was away.
    """
    exchange, chunk = tries.exchange, (yield from tries.chunk())
    left = exchange.left
    try:
        command = SelectForUpdate(exchange.name, chunk, borrowed=False)
        tried: RowOutcome = (yield ExecuteInTransaction(command, left)).answer
        if tried.locked:
            return tried
        if exchange.dialect.traits.one_writer:
            created = yield ExecuteInTransaction(Create(exchange.name))
            if created.answer == 1:
                return RowOutcome(locked=True)
        tries.away_since = None
        if tried.closed:
            exchange.now = (yield ForgetTransaction()).now
            if (yield from tries.mend()):
                return None
    except StatementError as failure:
        if failure.fault in AWAY:
            yield from _outlast(tries, failure)
            return None
        if failure.fault not in PASSING:
            raise exchange.explain(failure) from failure.__cause__
        tries.away_since = None
        if failure.fault is not Fault.DEADLOCK and chunk != left:
            exchange.now = (yield ForgetTransaction()).now
            return None
    exchange.now = (yield ForgetTransaction()).now
    return RowOutcome(locked=False)


def _outlast(tries: _Attempts, failure: StatementError) -> Procedure[None]:
    """Wait before the next try to reach a database that is away. Raises Unavailable.

    A row lock ends with its connection, so no outcome is in doubt.
    """
    first, exchange = tries.away_since is None, tries.exchange
    if tries.away_since is None:
        tries.away_since = exchange.now
    yield from _leave_no_ghost(exchange, failure)
    if first and failure.fault is Fault.DISCONNECTED:  # it may have died while it was idle
        return
    over = exchange.now >= tries.away_since + exchange.timeout or exchange.left == 0
    if over or not (yield from tries.pause(None)):
        raise exchange.explain(failure, harmless=True) from failure.__cause__


def _try_borrowed(tries: _Attempts) -> Procedure[RowOutcome | None]:
    """Try to lock the row in the user's transaction; None as with :func:`_try_own`."""
    exchange, chunk = tries.exchange, (yield from tries.chunk())
    left = 0.001 if exchange.left == 0 else exchange.left
    chunk = chunk or left
    command = SelectForUpdate(exchange.name, chunk, borrowed=True)
    step = _undone_if_refused(command, left, None if chunk is None else chunk + exchange.timeout)
    try:
        tried: RowOutcome = (yield from in_transaction(exchange, step, IN_USE)).answer
        if not tried.locked and exchange.dialect.traits.one_writer:
            step = ExecuteInTransaction(Create(exchange.name, borrowed=True), left)
            created = yield from in_transaction(exchange, step, IN_USE)
            tried = tried._replace(locked=created.answer == 1)
    except StatementError:
        return None if chunk != left else RowOutcome(locked=False)
    if not (tried.locked or tried.here or tries.placed):
        if (yield from check(exchange)):
            return None
        tries.placed = True
    # If the transaction's snapshot cannot show the repaired witness, the next try comes later.
    if tried.closed and (yield from tries.mend()) and not (tried.stale or tries.mended):
        tries.mended = True
        return None
    return tried


def _undone_if_refused(
    command: Command[RowOutcome], left: float | None, within: float | None
) -> ExecuteInTransaction:
    """Return the step that locks a row in the user's transaction, and undoes a refusal.

    A wait may fail; and PostgreSQL keeps a row locked that was free when the statement began and
    is held by now. Both must be undone.
    """
    return ExecuteInTransaction(command, left, within, keep=lambda tried: tried.locked)


def _conflict(exchange: Exchange, state: LockRow | None, *, stale: bool) -> Conflict | None:
    """Return the error if no further try can succeed in this transaction; None if one may."""
    dialect, name = exchange.dialect, exchange.name
    if state is None:
        if not dialect.traits.refusal_holds or dialect.traits.one_writer:
            return None
        why = "was deleted just now, and this transaction keeps others from creating it"
    elif stale:
        why = "is newer than this transaction's snapshot"
    elif state.held and dialect.traits.refusal_holds:
        why = "was leased just before, and this transaction blocks that lease"
    else:
        return None
    return Conflict(
        f"the row of {name!r} {why}. Retry the whole transaction, and take the lock first in it",
        name=name,
    )


def _look_first(tries: _Attempts) -> Procedure[LockRow | None]:
    """Read the name before locking it, on a database where even a refused lock blocks others.

    InnoDB also locks the gap in which a missing row would be, so the row is created before.
    """
    state: LockRow | None = None
    if tries.exchange.dialect.traits.refusal_holds:
        state = yield from look(tries.exchange)
        if state is None:
            yield from _create(tries)
    return state


def _create(tries: _Attempts) -> Procedure[bool]:
    """Create the name's row outside the locking transaction, so that every session sees it.

    Return whether the row exists now. False if another session is creating it, or if only one
    transaction writes at a time: then the locking transaction creates the row itself.
    """
    exchange = tries.exchange
    if exchange.dialect.traits.one_writer:
        return False
    try:
        yield from exchange.ask(Create(exchange.name))
    except StatementError as failure:
        if failure.fault in PASSING:
            return False
        raise exchange.explain(failure) from failure.__cause__
    return True


def _leave_no_ghost(exchange: Exchange, failure: StatementError) -> Procedure[None]:
    """End a lost session, which may still wait for the row or have it locked: it would block this
    lock's own next try."""
    exchange.now = (yield ForgetTransaction()).now
    if failure.end is not None:
        with contextlib.suppress(StatementError):
            yield from end_session(exchange, failure.end)
