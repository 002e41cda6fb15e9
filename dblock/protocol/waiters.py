"""A waiter's row in the table of waiters: its owner, its name, since when it waits, what it holds.

A waiter registers only after it has waited for a moment, so that short contention costs nothing. Of
a process's waiters that hold nothing only one for each name registers. A waiter that holds
something always registers, and checks whether it is part of a deadlock.

A waiter checks at growing intervals: the waiter that began to wait last closes the cycle, so the
others need not check often.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import DBLockError, DeadlockDetected, OutcomeUnknown, QueryTimeout, Unavailable
from ..lock_state import printable
from .commands import ListBlocked, Register, Sweep, Unregister
from .deadlock import Blocked, find_cycle
from .faults import Fault, StatementError
from .retry import AWAY, PASSING, retry_after
from .steps import Execute, Procedure, Reply, Step

if TYPE_CHECKING:
    from .dialect import AbstractDialect

T = TypeVar("T")

# A waiter that holds something checks for a deadlock at intervals of this share of its wait so far.
LOOK_SHARE = 0.5
# In seconds: a waiter that holds nothing extends its row at intervals of SIGN. Each row lasts LATE
# longer than its waiter's interval.
SIGN, LATE = 20.0, 5.0
# Seconds for which a waiter retries to delete its row while others have it locked.
LEAVING = 0.5

# After these faults a waiter stops trying to register.
NEVER = frozenset({Fault.SCHEMA, Fault.PRIVILEGE})
# After these it tries again to delete its row.
_ANY_MORE = PASSING | {Fault.DISCONNECTED}


def _answered(error: DBLockError) -> bool:
    """Whether the server itself canceled the statement, so that it can answer another statement."""
    return isinstance(error, QueryTimeout) or isinstance(error.__cause__, QueryTimeout)


class Caller(NamedTuple):
    """The caller that waits, as its process knows it."""

    #: Its owner label, for people.
    owner: Callable[[], str]
    #: The names that it holds, with their fences; None for a row lock.
    holds: Callable[[], Mapping[str, int | None]]
    new_id: Callable[[], str]
    #: This process's registered waiters that hold nothing.
    seen: dict[object, Waiter]


@dataclass(slots=True)
class Waiter:
    """One wait of one caller for one name. Its methods are parts of procedures."""

    dialect: AbstractDialect
    name: str
    strategy: str
    start: float
    caller: Caller
    id: str | None = None
    #: When :meth:`note` next has to run, in monotonic seconds; at once if it has not run yet.
    next: float = -math.inf
    _seen_as: object = None
    #: It registers even if another waiter of its process is registered for the same name.
    _stands_out: bool = False

    @property
    def seen(self) -> bool:
        """Whether it is registered itself, or can never be."""
        return self.id is not None or self.next == math.inf

    def stand_out(self, now: float) -> Procedure[float]:
        """Register this waiter itself; return the time. :attr:`seen` says whether it succeeded."""
        if not self.seen:
            self._stands_out, self.next = True, now
        return (yield from self.note(now))

    def wait(
        self, step: Callable[[float], Step], seconds: float | None, now: float
    ) -> Procedure[Reply[Any]]:
        """Wait ``seconds`` with a step, or less if the step has a result before. The wait goes in
        pieces, and :meth:`note` runs between them.

        Raises DeadlockDetected.
        """
        until = math.inf if seconds is None else now + seconds
        while True:
            if now >= self.next:
                now = yield from self.note(now)
            reply = yield step(self.piece(until - now, now))
            now = reply.now
            if reply.answer or now >= until:
                return reply

    def piece(self, seconds: float | None, now: float) -> float:
        """Return how much of ``seconds`` may pass before :meth:`note` has to run."""
        left = max(0.001, self.next - now)
        return left if seconds is None else max(0.0, min(seconds, left))

    def note(self, now: float) -> Procedure[float]:
        """Register this waiter or extend its row, and check for a deadlock; return the time.

        This does nothing before :attr:`next`. Raises DeadlockDetected when the wait would never
        end.
        """
        timing = self.dialect.timing
        if self.next == -math.inf:
            first = timing.look if self.caller.holds() else timing.visible_after
            self.next = self.start + first
        if now < self.next:
            return now
        holds = self.caller.holds()
        if not holds and not self._stands_out and not self._is_seen():
            self.next = now + timing.look_max
            return now
        waited = now - self.start
        look = min(max(timing.look, LOOK_SHARE * waited), timing.look_max) if holds else SIGN
        if holds and self.strategy == "row" and waited > 2 * timing.look:
            look = timing.look_max  # each check gives up the position in the server's own queue
        self.next = now + look
        try:
            now = (yield from self._write(look + LATE, holds, now)).now
            if holds:
                command = ListBlocked()
                reply = yield Execute(command)
                now = reply.now
                self._judge(reply.answer)
        except StatementError as failure:
            # A waiter that cannot register still may be granted the lock.
            now = failure.now
            away = failure.fault in AWAY
            self.next = now + (timing.look_max if away else min(look, timing.look))
            if failure.fault in NEVER:
                self.next = math.inf
        return now

    def _write(
        self, lasts: float, holds: Mapping[str, int | None], now: float
    ) -> Procedure[Reply[Any]]:
        first = self.id is None
        if self.id is None:
            self.id = self.caller.new_id()
        command = Register(
            self.id,
            self.name,
            self.strategy,
            owner=self.caller.owner(),
            waited=now - self.start,
            lasts=lasts,
            holds=holds,
        )
        try:
            reply = yield Execute(command)
        except StatementError as failure:
            if first and failure.fault is not Fault.DISCONNECTED:
                self.id = None  # the server wrote no row
            raise
        if first:
            reply = yield Execute(Sweep())
        return reply

    def _judge(self, blocked: list[Blocked]) -> None:
        assert self.id is not None
        cycle = find_cycle(blocked, self.id)
        if cycle is None:
            return
        held = ", ".join(
            f"{waiter.name!r} is held by {printable(holder.owner)}, who waits for {holder.name!r}"
            for waiter, holder in pairwise(cycle)
        )
        raise DeadlockDetected(
            f"waiting for {self.name!r} would never end: {held}, which is held here. Release what "
            "you hold, or roll it back, and begin again",
            name=self.name,
            cycle=tuple((one.name, one.owner) for one in cycle),
        )

    @property
    def trace(self) -> bool:
        """Whether there is a row or an entry to be removed."""
        return self.id is not None or self._seen_as is not None

    def leave(self) -> Procedure[None]:
        """Delete this waiter's row. If that fails the row expires by itself."""
        self._let_another_be_seen()
        if self.id is not None:
            command, self.id, self.next = Unregister(self.id), None, -math.inf
            try:
                yield Execute(command)
            except StatementError as failure:
                with contextlib.suppress(StatementError):
                    yield from retry_after(failure, command, LEAVING, failure.now, _ANY_MORE)

    def during(self, waiting: Procedure[T]) -> Procedure[T]:
        """Run a procedure that waits, and delete this waiter's row if the procedure fails.

        If it succeeds, its caller deletes the row, after the lock is held.
        """
        try:
            return (yield from waiting)
        except DBLockError as error:
            yield from self.failed(error)
            raise

    def failed(self, error: DBLockError) -> Procedure[None]:
        """Delete this waiter's row after the wait has ended with an error."""
        if isinstance(error, Unavailable | OutcomeUnknown) and not _answered(error):
            self._let_another_be_seen()  # the database is away
        else:
            yield from self.leave()

    def _is_seen(self) -> bool:
        """Whether its process registers this waiter, of all waiters for the same name with the
        same strategy and owner."""
        key = self.name, self.strategy, self.caller.owner()
        if self.caller.seen.setdefault(key, self) is not self:
            return False
        self._seen_as = key
        return True

    def _let_another_be_seen(self) -> None:
        if self._seen_as is not None:
            self.caller.seen.pop(self._seen_as, None)
            self._seen_as = None
