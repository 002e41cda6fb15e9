"""Taking a row lock: in a transaction of dblock's own, or in the user's.

The server queues row lockers, so waiting for one another is left to it. A lease on the name is no
lock in the server's sense: its end is looked for, holding nothing meanwhile.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Conflict, DBLockError
from .deadline import Deadline
from .epoch import consult
from .explain import explain
from .faults import Fault, StatementError
from .inspect import look
from .lease import Refused
from .overview import with_row_lock
from .place import check, explain_borrowed
from .release import end_session
from .retry import AWAY, PASSING, retry
from .state import LockRow, RowOutcome
from .steps import ExecuteInTransaction, ForgetTransaction, Procedure, Query, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..policy import RetryPolicy
    from .statements import Statements
    from .waiters import Waiter


@dataclass(frozen=True, slots=True)
class Locked:
    """The row is locked until its transaction ends."""


@dataclass(slots=True)
class _Attempts:
    """How far one row lock's waiting has come."""

    name: str
    policy: RetryPolicy
    waiter: Waiter
    deadline: Deadline
    number: int = 0
    opens: float = 0.0  # when anything at all may be granted
    #: Whether the user's transaction is known to be where the tables are.
    placed: bool = False
    #: Whether a try was repeated at once in it, after the witness was mended.
    mended: bool = False
    #: Since when the database is not reached. Nothing but the lock itself is tried then, for all
    #: else would wait for a connection as well, and nobody's deadline is its.
    away_since: float | None = None

    @property
    def left(self) -> float | None:
        """How long the lock may be waited for yet."""
        left = self.deadline.left
        return None if left is None else max(0.0, left)

    @property
    def closed(self) -> float:
        """For how long nothing at all is granted."""
        return max(0.0, self.opens - self.deadline.now)

    def mend(self, dialect: Statements) -> Procedure[bool]:
        """Let the witness be mended that refused a try; False if it has to be waited for."""
        try:
            consulted = yield from consult(dialect, 0.0, self.deadline.reach, self.deadline.now)
        except StatementError as failure:
            raise explain(dialect, failure, self.name, harmless=True) from failure.__cause__
        self.deadline.now = consulted.now
        self.opens = consulted.opens
        return not self.closed

    def chunk(self, dialect: Statements) -> Procedure[float | None]:
        """Return how long the server may wait in one go, having seen to the waiter before."""
        longest = [self.left, dialect.longest_patience]
        if dialect.one_writer:  # with this lock nothing could be removed any more
            yield from self.waiter.leave()
        elif self.away_since is None:
            self.deadline.now = yield from self.waiter.note(self.deadline.now)
            longest.append(self.waiter.piece(self.left, self.deadline.now))
        return min((seconds for seconds in longest if seconds is not None), default=None)

    def pause(self, state: LockRow | None) -> Procedure[bool]:
        """Sleep before the next try, no longer than the lease in the way; False to give up."""
        self.number += 1
        elapsed = self.deadline.elapsed
        sleep = self.policy.sleep_after(self.name, self.number, elapsed, self.left)
        if sleep is None:
            return False
        if state is not None and state.held and state.remaining is not None:
            sleep = min(sleep, state.remaining)
        if self.closed:
            sleep = self.deadline.within(self.closed)
        if self.away_since is not None:
            self.deadline.now = (yield Sleep(sleep)).now
        else:
            reply = yield from self.waiter.wait(Sleep, sleep, self.deadline.now)
            self.deadline.now = reply.now
        return True


def lock(
    dialect: Statements,
    name: str,
    policy: RetryPolicy,
    *,
    borrowed: bool,
    start: float,
    wait: float | None,
    patience: float,
    waiter: Callable[[], Waiter],
) -> Procedure[Locked | Refused]:
    """Lock the name's row, waiting up to ``wait`` seconds from ``start``: in the user's
    transaction, which stays usable if that fails, where that is ``borrowed``; else in one of
    dblock's own.

    ``patience`` bounds how long an unreachable database is tried. ``waiter`` makes the one that
    others see: none is made where a try that does not wait has got it.

    Raises, in the user's, Conflict where the transaction's snapshot is too old to ever see the row,
    and DeadlockDetected where the database undid the transaction: both want it run again.
    """
    deadline = Deadline(start, wait, patience, start)
    if borrowed and dialect.skips_locked and (yield from _try_free(dialect, name, deadline)):
        return Locked()
    tries = _Attempts(name, policy, waiter(), deadline)
    return (yield from tries.waiter.during(_wait(dialect, tries, borrowed)))


def _wait(dialect: Statements, tries: _Attempts, borrowed: bool) -> Procedure[Locked | Refused]:
    """Try until it is locked, or refused for good."""
    name, try_row = tries.name, _try_borrowed if borrowed else _try_own
    while True:
        state: LockRow | None = None
        # Waiters look: cheaper than a transaction.
        looks = borrowed or tries.number or not dialect.looks_itself
        if looks and tries.away_since is None:
            state = yield from _look_first(dialect, tries)
        if state is None or not state.held:
            tried = yield from try_row(dialect, tries)
            if tried is None:
                continue
            if tried.locked:
                return Locked()
            state, tries.deadline.now = yield from look(
                dialect, name, tries.deadline.reach, tries.deadline.now
            )
            conflict = _conflict(dialect, name, state, stale=tried.stale) if borrowed else None
            if conflict is not None and not tries.closed:
                if state is not None and state.held and tries.left == 0:
                    return Refused(state)
                raise conflict
            if state is None and (yield from _create(dialect, tries)):
                continue
        if not (yield from tries.pause(state)):
            refused = Refused(state, tries.closed)
            if tries.deadline.wait == 0:
                return refused
            return (yield from with_row_lock(dialect, refused, tries.deadline.now))


def _try_own(dialect: Statements, tries: _Attempts) -> Procedure[RowOutcome | None]:
    """Try to lock the row in dblock's own transaction, which holds nothing if that fails.

    None where it is to be tried again without a look: after the server's share of one long wait,
    or when the database was away.
    """
    chunk = yield from tries.chunk(dialect)
    left = tries.left
    try:
        query = dialect.lock_row(tries.name, chunk, borrowed=False)
        tried = query.read((yield ExecuteInTransaction(query, left)))
        if tried.locked:
            return tried
        if dialect.one_writer:
            created = yield ExecuteInTransaction(dialect.create(tries.name))
            if created.matched == 1:
                return RowOutcome(locked=True)
        tries.away_since = None
        if tried.closed:
            tries.deadline.now = (yield ForgetTransaction()).now
            if (yield from tries.mend(dialect)):
                return None
    except StatementError as failure:
        if failure.fault in AWAY:
            yield from _outlast(dialect, tries, failure)
            return None
        if failure.fault not in PASSING:
            raise explain(dialect, failure, tries.name) from failure.__cause__
        tries.away_since = None
        if failure.fault is not Fault.DEADLOCK and chunk != left:
            tries.deadline.now = (yield ForgetTransaction()).now
            return None
    tries.deadline.now = (yield ForgetTransaction()).now
    return RowOutcome(locked=False)


def _outlast(dialect: Statements, tries: _Attempts, failure: StatementError) -> Procedure[None]:
    """Wait until it makes sense to try a database again that is away. Raises Unavailable.

    A row lock dies with its connection, so nothing is in doubt.
    """
    first, deadline = tries.away_since is None, tries.deadline
    if tries.away_since is None:
        tries.away_since = deadline.now
    yield from _leave_no_ghost(dialect, tries, failure)
    if first and failure.fault is Fault.DISCONNECTED:  # while idle, perhaps
        return
    over = deadline.now >= tries.away_since + deadline.timeout or tries.left == 0
    if over or not (yield from tries.pause(None)):
        raise explain(dialect, failure, tries.name, harmless=True) from failure.__cause__


def _try_free(dialect: Statements, name: str, deadline: Deadline) -> Procedure[bool]:
    """Try to lock the row in the user's transaction if nobody is in the way."""
    query = dialect.lock_row(name, 0.0, borrowed=True)
    try:
        reply = yield _undone_if_refused(query, 0.0, deadline.timeout)
    except StatementError as failure:
        yield from _refused(dialect, name, deadline, failure)
        return False
    deadline.now = reply.now
    return query.read(reply).locked


def _try_borrowed(dialect: Statements, tries: _Attempts) -> Procedure[RowOutcome | None]:
    """Try to lock the row in the user's transaction; None as with :func:`_try_own`."""
    name = tries.name
    chunk = yield from tries.chunk(dialect)
    left = 0.001 if tries.left == 0 else tries.left
    try:
        chunk = chunk or left
        query = dialect.lock_row(name, chunk, borrowed=True)
        within = None if chunk is None else chunk + tries.deadline.timeout
        reply = yield _undone_if_refused(query, left, within)
        tried = query.read(reply)
        if not tried.locked and dialect.one_writer:
            reply = yield ExecuteInTransaction(dialect.create(name, borrowed=True), left)
            tried = tried._replace(locked=reply.matched == 1)
    except StatementError as failure:
        yield from _refused(dialect, name, tries.deadline, failure)
        return None if chunk != left else RowOutcome(locked=False)
    tries.deadline.now = reply.now
    if not (tried.locked or tried.here or tries.placed):
        if (yield from check(dialect, name, tries.deadline.reach, reply.now)):
            return None
        tries.placed = True
    # Where its witness still cannot be seen in this transaction, the next try is due later.
    if tried.closed and (yield from tries.mend(dialect)) and not (tried.stale or tries.mended):
        tries.mended = True
        return None
    return tried


def _undone_if_refused(
    query: Query[RowOutcome], left: float | None, within: float | None
) -> ExecuteInTransaction:
    """Lock a row in the user's transaction.

    A refusal is undone not only because a wait can fail: PostgreSQL also keeps a row locked that
    was free when the statement began and is not any more.
    """
    return ExecuteInTransaction(query, left, within, keep=lambda reply: query.read(reply).locked)


def _refused(
    dialect: Statements, name: str, deadline: Deadline, failure: StatementError
) -> Procedure[None]:
    """Take a failure in the user's transaction for a refusal. Raises what it is otherwise."""
    if failure.fault not in (Fault.BUSY, Fault.CANCELED):
        raise explain_borrowed(dialect, failure, name) from failure.__cause__
    deadline.now = (yield Sleep(0)).now


def _conflict(
    dialect: Statements, name: str, state: LockRow | None, *, stale: bool
) -> Conflict | None:
    """Return why a refused try is of no use in this transaction, if it is of none."""
    if state is None:
        if not dialect.refusal_holds or dialect.one_writer:
            return None
        why = "was deleted just now, and this transaction keeps others from creating it"
    elif stale:
        why = "is newer than this transaction's snapshot"
    elif state.held and dialect.refusal_holds:
        why = "was leased just before, and this transaction blocks that lease"
    else:
        return None
    return Conflict(
        f"the row of {name!r} {why}. Retry the whole transaction, and take the lock first in it",
        name=name,
    )


def _look_first(dialect: Statements, tries: _Attempts) -> Procedure[LockRow | None]:
    """Look at the name before locking it, where even a refused lock would be in others' way.

    InnoDB also locks the gap where a missing row would be, so the row is created before.
    """
    state: LockRow | None = None
    if dialect.refusal_holds:
        state, tries.deadline.now = yield from look(
            dialect, tries.name, tries.deadline.reach, tries.deadline.now
        )
        if state is None:
            yield from _create(dialect, tries)
    return state


def _create(dialect: Statements, tries: _Attempts) -> Procedure[bool]:
    """Create the name's row outside the locking transaction, where everybody can see it.

    Return whether it is there now; False where others are at it just now, or where the one
    writer, which creates it itself, has not come to it.
    """
    if dialect.one_writer:
        return False
    query = dialect.create(tries.name)
    try:
        reply = yield from retry(query, tries.deadline.reach, tries.deadline.now, AWAY | PASSING)
    except StatementError as failure:
        if failure.fault in PASSING:
            return False
        raise explain(dialect, failure, tries.name) from failure.__cause__
    tries.deadline.now = reply.now
    return True


def _leave_no_ghost(
    dialect: Statements, tries: _Attempts, failure: StatementError
) -> Procedure[None]:
    """End what a lost session may still wait for, or have: it would be this lock's own rival."""
    tries.deadline.now = (yield ForgetTransaction()).now
    if failure.end is not None:
        with contextlib.suppress(DBLockError):
            _, tries.deadline.now = yield from end_session(
                dialect, failure.end, tries.deadline.reach, tries.deadline.now
            )
